"""Nets made fast for embedding compute the same features, by either engine."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from maskcon.models import (
    Axes,
    Backbone,
    FeatureHead,
    FrozenEncoder,
    build_backbone,
    engine_of,
    for_inference,
    inference,
)

OURS = ["mobilenet_v2", "efficientnet_lite0", "efficientnet_lite2"]


def net(name: str, in_channels: int = 3) -> Backbone:
    """A net whose BatchNorm has statistics worth folding, and maps that ReLU6 cuts at both ends."""
    torch.manual_seed(0)
    made = build_backbone(name, image_size=96, in_channels=in_channels)
    for module in made.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 3.0)
            nn.init.normal_(module.bias, std=0.5)
            nn.init.normal_(module.running_mean, std=0.2)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
    return made.eval()


@pytest.fixture(params=["torch", "onnxruntime"])
def engine(request, monkeypatch) -> str:
    if request.param == "torch":
        monkeypatch.setattr(inference, "find_spec", lambda _name: None)
    else:
        pytest.importorskip("onnx")
        pytest.importorskip("onnxruntime")
    return request.param


def assert_same(found: Tensor, expected: Tensor) -> None:
    """The tolerance of the docs: 1e-5 of the length of a row."""
    assert found.shape == expected.shape
    difference = (found - expected).norm(dim=1) / expected.norm(dim=1)
    assert float(difference.max()) < 1e-5


@torch.inference_mode()
@pytest.mark.parametrize("name", [*OURS, "resnet18"])
@pytest.mark.parametrize("sides", [(64, 64), (51, 38)])
def test_features_and_levels_are_those_of_the_net(name, sides, engine):
    made = net(name)
    fast = for_inference(made)
    assert engine_of(made, "cpu") == ("torch" if name == "resnet18" else engine)
    assert not any(isinstance(module, nn.BatchNorm2d) for module in fast.modules())
    assert any(isinstance(module, nn.BatchNorm2d) for module in made.modules())
    assert (fast.name, fast.features, fast.in_channels) == (made.name, made.features, made.in_channels)
    images = torch.randn(3, 3, *sides)
    for batch in (images, images.contiguous(memory_format=torch.channels_last), images[:1]):
        assert_same(fast(batch), made(batch))
        if made.earlier_features:
            assert_same(fast.levels(batch, 0.5), made.levels(batch, 0.5))
            assert torch.equal(fast.levels(batch, 0.0), fast(batch))
    assert float(made(images).std()) > 1e-3


@torch.inference_mode()
@pytest.mark.parametrize("weight", [0.0, 0.5])
def test_a_frozen_encoder_keeps_its_axes_and_head(weight, engine):
    backbone = net("mobilenet_v2", in_channels=1)
    length = backbone.level_features(weight)
    head = FeatureHead(8)
    nn.init.normal_(head.layer.weight)
    made = FrozenEncoder(backbone, head, Axes(length, 8, torch.randn(length, 8)), earlier_weight=weight)
    images = torch.randn(2, 1, 48, 48)
    assert_same(for_inference(made)(images), made(images))
    assert any(isinstance(module, nn.BatchNorm2d) for module in made.modules())


@torch.inference_mode()
def test_onnxruntime_gives_the_same_bytes_for_any_batch_and_number_of_threads():
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    images, before, found = torch.randn(5, 3, 64, 64), torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            fast = for_inference(net("efficientnet_lite0"))
            found += [
                fast.levels(images, 0.5),
                torch.cat([fast.levels(part, 0.5) for part in images.split(2)]),
            ]
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(found[0], other) for other in found)


def test_other_nets_and_devices_are_left_to_torch(engine):
    assert engine_of(net("mobilenet_v2"), "cpu") == engine
    assert engine_of(net("mobilenet_v2"), "cuda:1") == "torch"
    assert engine_of(net("resnet18"), "cpu") == "torch"
