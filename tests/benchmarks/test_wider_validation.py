"""More validation images for the embedded set: which they are, and that runs are scored by them."""

from __future__ import annotations

import gzip
import json
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest

from maskcon.data.builtin.embedded import load_embedded
from tests.benchmarks.test_time_to_recall import SMALL
from tests.data.miniatures import idx_bytes


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    import wider_validation

    return wider_validation


def official_files(folder: Path, count: int) -> Path:
    """The two training files in their true format: every image is as grey as its row number says."""
    labels = (np.arange(count) % 10).astype(np.uint8)
    images = np.broadcast_to((np.arange(count) % 251).astype(np.uint8)[:, None, None], (count, 28, 28))
    for name, array in (("images-idx3", images), ("labels-idx1", labels)):
        packed = gzip.compress(idx_bytes(np.ascontiguousarray(array)), compresslevel=1)
        (folder / f"train-{name}-ubyte.gz").write_bytes(packed)
    return folder


def test_they_are_balanced_galleries_of_images_that_the_embedded_set_has_not(script, tmp_path, monkeypatch):
    monkeypatch.setattr(script, "PER_CLASS", 3)
    found = script.further_images(official_files(tmp_path, 400))
    rows = found.index - script.FIRST_NUMBER
    assert len(set(rows.tolist())) == len(rows) == 5 * 3 * 10
    assert not set(rows.tolist()) & set(load_embedded().train.index.tolist())
    for gallery in np.split(found.fine, 5):
        assert np.bincount(gallery).tolist() == [3] * 10
    assert found.fine.tolist() == (rows % 10).tolist()
    assert found.images.shape == (150, 1, 32, 32)
    again = script.further_images(tmp_path)
    assert np.array_equal(found.images, again.images)
    assert np.array_equal(found.index, again.index)


def test_recall_is_the_mean_over_galleries_and_not_across_them(script, tmp_path, monkeypatch):
    """Two images of one kind in each of five galleries: found within it, or not at all."""
    monkeypatch.setattr(script, "PER_CLASS", 2)
    images = script.further_images(official_files(tmp_path, 300))
    features = np.eye(10, dtype=np.float32)[images.fine]
    features[:20] = np.eye(20, dtype=np.float32)[:, :10]  # the first gallery knows only half of its images

    class Known:
        def encode(self, _):
            import torch

            return torch.from_numpy(features)

    monkeypatch.setattr(script.Run, "open", lambda folder: Known())
    first = script.recall_at_k(*[script.torch.from_numpy(x[:20]) for x in (features, images.fine)], (1,))[1]
    assert first < 1
    assert script.recall(tmp_path, images) == pytest.approx(100 * (4 + first) / 5)


@pytest.mark.slow
def test_the_whole_command_trains_and_scores_without_the_test_images(script, tmp_path, monkeypatch, capsys):
    recipe = script.Recipe("fast", "maskcon", {**SMALL, "test_limit": 200, "epochs": 1})
    monkeypatch.setattr(script, "RECIPES", {"fast": recipe})
    idx = official_files(tmp_path, 14_000)
    script.carry_out(Namespace(out=tmp_path / "out", recipes="all", idx=idx, seeds=1, jobs=1))
    found = json.loads((tmp_path / "out" / "wider.json").read_text())["fast"]
    assert len(found["recall@1"]) == 1
    assert 0 < found["recall@1"][0] < 100
    assert "| fast | 1 |" in capsys.readouterr().out
    result = json.loads((tmp_path / "out" / "fast-seed0" / "result.json").read_text())
    assert result["data"] != load_embedded().limited(40, 200).fingerprint()
