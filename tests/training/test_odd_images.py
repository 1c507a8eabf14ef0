"""Images smaller than a HOG cell, without any gradient, all alike, or alone in their class: whole runs end."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import maskcon
from maskcon.data import Dataset
from maskcon.models import build_backbone
from tests.miniature import TINY, miniature
from tests.training.runs import OFTEN


def odd(kind: str) -> Dataset:
    data = miniature(size=2 if kind == "smaller than a cell" else 16, fine=kind != "alone")

    def changed(images: np.ndarray) -> np.ndarray:
        return {"even": np.zeros_like(images), "alike": images[:1].repeat(len(images), axis=0)}.get(
            kind, images
        )

    train, test = (replace(part, images=changed(part.images)) for part in (data.train, data.test))
    if kind == "alone":
        train = replace(train, coarse=(np.arange(len(train)) == 0).astype(np.int64))
    return replace(data, train=train, test=test)


@pytest.mark.parametrize("kind", ["smaller than a cell", "even", "alike", "alone"])
@pytest.mark.parametrize("teacher", ["hog", "features"])
def test_odd_images_are_learnt_from_without_nan(tmp_path, monkeypatch, kind, teacher):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    settings = {**TINY, "epochs": 1}
    if teacher == "features":
        torch.manual_seed(5)
        net = build_backbone("resnet6", image_size=16, in_channels=1, width=8, stem="stride2")
        save_file(net.state_dict(), tmp_path / "weights.safetensors")
        settings |= {"freeze": True, "image_size": 16, "weights": str(tmp_path / "weights.safetensors")}
    data = odd(kind)
    run = maskcon.fit(data, method="teachcon", settings=settings, out=tmp_path / "run", machine=OFTEN)
    assert (run.config.relation_space, run.config.image_size) == (
        teacher, 8 if kind == "smaller than a cell" and teacher == "hog" else 16,
    )  # fmt: skip
    assert run.encode(data.test.images).isfinite().all()
