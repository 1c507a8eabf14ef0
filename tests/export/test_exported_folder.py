"""The folder of an export: its card, what it was checked on, and that nothing else is replaced by it."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from maskcon._utils.errors import MaskconError, UsageError
from maskcon.api import Run
from maskcon.data import Dataset, load
from maskcon.export import export_run
from maskcon.export import write as writing
from maskcon.export.card import card_text
from maskcon.export.embedder import Preprocessing
from maskcon.export.plain import model_source
from maskcon.export.sample import random_images
from maskcon.models.encoder_file import read_encoder
from maskcon.training.callbacks import Callback
from maskcon.training.run_folder import ENCODER
from tests.export.pictures_for_export import photo_data
from tests.finished_run import finished_run
from tests.miniature import miniature


def test_the_card_says_what_was_trained_on_what_and_how_good_it_is(photos, exported) -> None:
    folder, data, _ = photos
    card = (exported / "README.md").read_text(encoding="utf-8")
    assert card.startswith("---\nlibrary_name: transformers\n")
    assert "# MaskCon encoder trained on photos" in card
    assert f"photos, {len(data.train)} images in 2 coarse classes: cat, dog" in card
    assert "| | R@1 | R@2 | R@5 | R@10 |" in card
    assert "| Raw pixels | 25.00 | 37.50 | 50.00 | 75.00 |" in card
    assert "| This model | 50.00 | 62.50 | 75.00 | 87.50 |" in card
    assert f"{len(data.test)} test images with one of the same coarse label" in card
    assert "| `backbone` | resnet6 |" in card
    assert "| `epochs` | 2 |" in card
    assert re.search(r"PyTorch, from images: largest difference \S+ on \d+ test images", card)
    assert "## Licence\n\nNot chosen yet." in card
    assert "\nlicense:" not in card
    assert str(folder) not in card  # where the pictures lay is nobody else's business


def test_names_cannot_become_markup_in_the_card(tmp_path: Path) -> None:
    data = miniature()
    data = Dataset(**{**data.__dict__, "coarse_names": ("<script>alert(1)</script>", "a|b\n# title")})
    exported = export_run(finished_run(tmp_path / "run", data), tmp_path / "out", data=data)
    card = (exported.folder / "README.md").read_text(encoding="utf-8")
    assert "<script>" not in card
    assert "\\<script\\>" in card
    assert "\n# title" not in card


def test_the_folder_holds_what_it_needs_and_the_weights_have_plain_names(photos, exported) -> None:
    names = {path.name for path in exported.iterdir()}
    assert names - {"__pycache__"} == {
        "README.md",
        "SHA256SUMS",
        "config.json",
        "model.py",
        "model.safetensors",
        "modeling_maskcon.py",
    }
    config = json.loads((exported / "config.json").read_text(encoding="utf-8"))
    assert config["auto_map"]["AutoModel"] == "modeling_maskcon.MaskConModel"
    assert config["preprocessing"]["image_size"] == photos[2].config.image_size
    assert str(photos[0]) not in json.dumps(config)


def test_an_export_that_computes_something_else_is_refused_and_nothing_is_left(
    photos, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(
        writing, "model_source", lambda encoder: model_source(encoder).replace("/ 255", "/ 254")
    )
    with pytest.raises(
        MaskconError, match=r"does not compute what the run does: PyTorch, from images: largest"
    ):
        export_run(photos[2], tmp_path / "out", data=photos[1])
    assert list(tmp_path.iterdir()) == []


def test_an_earlier_export_is_replaced_and_anything_else_is_not(photos, tmp_path) -> None:
    target = tmp_path / "out"
    (tmp_path / ".out-scratch" / "out").mkdir(parents=True)  # of a killed export
    for _ in range(2):
        export_run(photos[2], target, data=photos[1])
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError, match="not an earlier export; choose another --out"):
        export_run(photos[2], other, data=photos[1])
    assert (other / "thesis.tex").read_text() == "years of work"


def test_an_export_that_somebody_went_on_working_on_is_not_replaced(photos, tmp_path) -> None:
    """The card asks for a licence to be written into it, and a folder to publish may be a clone."""
    folder = export_run(photos[2], tmp_path / "out", data=photos[1]).folder
    (folder / ".git").mkdir()
    with pytest.raises(
        UsageError, match=r"other files than an earlier export \(\.git\); choose another --out"
    ):
        export_run(photos[2], folder, data=photos[1])
    (folder / ".git").rmdir()
    card = (folder / "README.md").read_text(encoding="utf-8").replace("Not chosen yet.", "CC-BY-4.0.")
    (folder / "README.md").write_text(card, encoding="utf-8")
    with pytest.raises(UsageError, match=r"README\.md was edited .* move it away, or choose another --out"):
        export_run(photos[2], folder, data=photos[1])
    assert (folder / "README.md").read_text(encoding="utf-8") == card
    (folder / "README.md").unlink()
    export_run(photos[2], folder, data=photos[1])
    assert (folder / "README.md").is_file()


class Listener(Callback):
    def __init__(self) -> None:
        self.heard: list[str] = []

    def on_message(self, text: str) -> None:
        self.heard.append(text)


def test_pictures_that_changed_since_still_serve_to_check_the_export(photos, tmp_path) -> None:
    """Grey ones at that, for an encoder of colour pictures; but the card claims nothing from them."""
    listener = Listener()
    exported = export_run(photos[2], tmp_path / "out", data=miniature(), callback=listener)
    assert all(difference.relative < 1e-5 for difference in exported.differences)
    assert "changed since the run was trained" in listener.heard[0]
    card = (exported.folder / "README.md").read_text(encoding="utf-8")
    assert f"- Data: photos, {len(photos[1].train)} images\n" in card
    assert "stripes" not in card


@pytest.fixture
def copied(tmp_path: Path) -> Run:
    """A run whose pictures stayed on another machine."""
    photo_data(tmp_path / "photos")
    data = load(str(tmp_path / "photos"), image_size=24)
    run = finished_run(tmp_path / "run", data, source=str(tmp_path / "photos"))
    shutil.rmtree(tmp_path / "photos")
    return run


def test_without_its_pictures_a_run_is_checked_on_random_images_and_says_so(copied, tmp_path) -> None:
    listener = Listener()
    exported = export_run(copied, tmp_path / "out", callback=listener)
    assert "nor found from here" in listener.heard[0]
    assert "; until then the export is checked on random images" in listener.heard[0]
    assert all(difference.relative < 1e-5 for difference in exported.differences)
    assert all("on 32 random images" in str(difference) for difference in exported.differences)
    card = (exported.folder / "README.md").read_text(encoding="utf-8")
    assert re.search(r"PyTorch, from images: largest difference \S+ on 32 random images", card)
    assert re.search(r"- Data: photos, \d+ images\n", card)


def test_random_images_notice_an_export_that_computes_something_else(copied, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(
        writing, "model_source", lambda encoder: model_source(encoder).replace("/ 255", "/ 254")
    )
    with pytest.raises(MaskconError, match="does not compute what the run does: PyTorch, from images"):
        export_run(copied, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("channels", [1, 3])
def test_random_images_are_the_same_every_time_and_of_many_shapes(photos, channels: int) -> None:
    facts = replace(read_encoder(photos[2].folder / ENCODER)[1], in_channels=channels)
    images = random_images(facts, 32)
    np.testing.assert_array_equal(images.images, random_images(facts, 32).images)
    assert images.images.shape == (32, channels, facts.canvas, facts.canvas)
    assert images.sizes is not None
    assert len(np.unique(images.sizes, axis=0)) > 20


def test_the_card_of_a_frozen_run_says_so_and_shows_the_backbone_alone(photos) -> None:
    _, _, run = photos
    config = run.config.changed(freeze=True, backbone="mobilenet_v2", weights="imagenet")
    alone = {"1": 0.3, "2": 0.4, "5": 0.6, "10": 0.8}
    run = replace(run, config=config, result={**run.result, "frozen_backbone": alone})
    settings = Preprocessing(96, 110, 3, "shorter", (0.5,) * 3, (0.25,) * 3)
    card = card_text(run, ("cat", "dog"), settings, 1280, checks=[], onnx=False)
    assert "mobilenet\\_v2, from ImageNet weights, kept frozen: only the head" in card
    assert "| Backbone alone | 30.00 | 40.00 | 60.00 | 80.00 |" in card
    assert "| `freeze` | True |" in card
    assert "`width`" not in card  # the backbone has its own shape
    plain = card_text(photos[2], None, settings, 16, checks=[], onnx=False)
    assert "from random weights; 2 epochs" in plain
    assert "`freeze`" not in plain
    assert "Backbone alone" not in plain
