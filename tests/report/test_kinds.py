"""The finer kinds and the verdict on the page of a run."""

from __future__ import annotations

import numpy as np
import pytest

from maskcon.discovery.kinds import Wanted, find_kinds
from maskcon.discovery.kinds_folder import Origin, write_folder
from maskcon.report.contact_sheet import draw_sheets
from maskcon.report.kinds import kinds_of, kinds_section, verdict
from maskcon.report.sample import Sample
from tests.discovery.generated import cloud, clustered, joined

SETTINGS: dict[str, object] = {
    "learning_rate": 0.5,
    "weight_decay": 5e-4,
    "method": "maskcon",
    "w": 1.0,
    "epochs": 8,
}


@pytest.fixture
def folder(tmp_path):
    apples, _ = clustered((30, 20), distance=2, coarse="<apple>")
    embedded = joined(apples, cloud(30, coarse="pear"))
    kinds = find_kinds(embedded, Wanted(by_class={"<apple>": 2, "pear": 1}))
    sheets = draw_sheets(
        tmp_path, kinds, lambda paths: {path: np.zeros((3, 8, 8), np.uint8) for path in paths}, {}
    )
    write_folder(tmp_path, kinds, Origin("digest", None, sheets))
    return tmp_path


def test_classes_of_several_kinds_are_shown_and_all_are_listed(folder):
    found = kinds_of(folder, "digest")
    assert found is not None
    body = str(kinds_section(*found).body)
    assert body.count("<img") == 1
    assert 'alt="&lt;apple&gt;: kind 1 (30 images), kind 2 (20 images)"' in body
    assert '<th scope="row">pear' in body
    assert "<apple>" not in body
    (folder / "sheets" / "_apple_.png").write_bytes(b"no image")
    (folder / "sheets" / "apple.png").write_bytes(b"no image")
    assert "<img" not in str(kinds_section(*found).body)


def test_kinds_of_another_encoder_or_damaged_ones_are_left_out(folder):
    assert kinds_of(folder, "another") is None
    (folder / "kinds.npz").write_bytes(b"PK")
    assert kinds_of(folder, "digest") is None
    assert kinds_of(folder / "none", "digest") is None


def test_verdict_names_the_state_and_what_to_try(folder):
    found = kinds_of(folder, "digest")
    assert found is not None
    images = np.zeros((80, 3, 4, 4), np.uint8)
    coarse = np.repeat([0, 1], 40)
    ids = [row.path for row in found[0].rows]
    collapsed = Sample(images, coarse, ("a", "b"), {"one": np.ones((80, 8))}, ids=ids)
    told = " ".join(verdict(collapsed, SETTINGS, None, "runs/x"))
    assert told.startswith("Collapsed")
    assert "learning_rate=0.05" in told
    spread = np.random.default_rng(0).standard_normal((80, 32))
    told = " ".join(
        verdict(Sample(images, coarse, ("a", "b"), {"one": spread}, ids=ids), SETTINGS, found[0], "r")
    )
    assert "collapsed? no" in told
    assert "kinds sure?" in told
