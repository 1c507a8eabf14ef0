from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file

from maskcon.models import build_backbone
from maskcon.training import setup
from maskcon.training.frozen import features as prepared


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(autouse=True)
def few_features(monkeypatch):
    monkeypatch.setattr(setup, "HEAD_FEATURES", 12)
    monkeypatch.setattr(prepared, "CACHED_VIEWS", 2)


@pytest.fixture
def weights(tmp_path):
    """A net of TINY's shape that has seen no image, yet keeps images apart."""
    torch.manual_seed(5)
    net = build_backbone("resnet6", image_size=16, in_channels=1, width=8, stem="stride2")
    net.train()
    net(torch.rand(64, 1, 16, 16))
    save_file(net.state_dict(), tmp_path / "weights.safetensors")
    return tmp_path / "weights.safetensors"
