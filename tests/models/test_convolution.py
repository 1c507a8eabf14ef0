from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from maskcon.models import convolution
from maskcon.models.convolution import Convolution
from maskcon.models.resnet import ResNet

F64 = torch.float64


def pair_of(channels, outputs, kernel, stride, dtype=F64) -> tuple[Convolution, nn.Conv2d]:
    ours = Convolution(channels, outputs, kernel, stride, padding=kernel // 2, bias=False).to(dtype)
    ours = ours.to(memory_format=torch.channels_last)
    theirs = nn.Conv2d(channels, outputs, kernel, stride, padding=kernel // 2, bias=False).to(dtype)
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


def maps_of(batch, channels, height, width, dtype=F64) -> torch.Tensor:
    return torch.randn(batch, channels, height, width, dtype=dtype).contiguous(
        memory_format=torch.channels_last
    )


@settings(deadline=None, max_examples=150)
@given(
    st.integers(0, 10_000), st.integers(1, 3), st.integers(1, 4), st.integers(1, 4), st.integers(1, 6),
    st.integers(1, 6), st.sampled_from([1, 3, 5, 7]), st.integers(1, 3), st.sampled_from([0, 4, 16, 10_000]),
)  # fmt: skip
def test_every_way_gives_the_output_and_gradients_of_the_plain_convolution(
    seed, batch, channels, outputs, height, width, kernel, stride, limit
):
    torch.manual_seed(seed)
    ours, theirs = pair_of(channels, outputs, kernel, stride)
    one = maps_of(batch, channels, height, width).requires_grad_()
    other = one.detach().contiguous().requires_grad_()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(convolution, "SMALLEST_PRODUCT", 1)
        patch.setattr(convolution, "ALL_BY_PRODUCTS_PIXELS", limit)
        patch.setattr(convolution, "WEIGHTS_BY_PRODUCTS_PIXELS", 10_000)
        found, expected = ours(one), theirs(other)
        scale = torch.randn_like(expected)
        (found * scale).sum().backward()
    (expected * scale).sum().backward()
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(one.grad, other.grad)
    torch.testing.assert_close(ours.weight.grad, theirs.weight.grad)


@pytest.mark.parametrize(("kernel", "stride"), [(1, 2), (3, 1), (3, 2)])
def test_where_no_gradient_is_wanted_the_output_is_the_same_to_the_bit(kernel, stride):
    torch.manual_seed(0)
    ours, _ = pair_of(64, 128, kernel, stride, torch.float32)
    maps = maps_of(3, 64, 2 * stride, 2 * stride, torch.float32)
    with torch.no_grad():
        found = ours(maps)
    assert torch.equal(found, ours(maps))
    assert not found.requires_grad


def test_memory_that_held_nan_does_not_reach_the_output(monkeypatch):
    def spoilt(like, channels, height, width):
        made = torch.full((len(like), channels, height, width), torch.nan, dtype=like.dtype)
        return made.contiguous(memory_format=torch.channels_last)

    monkeypatch.setattr(convolution, "_channels_last", spoilt)
    ours, theirs = pair_of(64, 128, 3, 1)
    maps = maps_of(2, 64, 2, 2)
    torch.testing.assert_close(ours(maps), theirs(maps))


@pytest.mark.parametrize(
    ("channels", "outputs", "size", "kernel", "stride", "way"),
    [
        (8, 16, 6, 1, 2, "pointwise"),
        (8, 16, 6, 1, 1, "library"),
        (64, 128, 2, 3, 1, "products"),
        (64, 128, 4, 3, 2, "products"),
        (64, 128, 4, 3, 1, "weights by products"),
        (64, 128, 5, 3, 1, "library"),
        (8, 8, 2, 3, 1, "library"),
    ],
)
def test_each_way_is_taken_where_it_pays_and_its_gradient_is_the_numerical_one(
    channels, outputs, size, kernel, stride, way
):
    torch.manual_seed(0)
    ours, theirs = pair_of(channels, outputs, kernel, stride)
    maps = maps_of(2, channels, size, size).requires_grad_()
    assert ours.way(maps) == way
    found = ours(maps)
    torch.testing.assert_close(found, theirs(maps))
    assert found.is_contiguous(memory_format=torch.channels_last)
    assert torch.autograd.gradcheck(ours, maps, fast_mode=True)
    (found.square().sum()).backward()
    step = torch.randn_like(ours.weight)
    with torch.no_grad():
        ahead, behind = ours.weight + 1e-4 * step, ours.weight - 1e-4 * step
        difference = [
            nn.functional.conv2d(maps, w, stride=stride, padding=kernel // 2).square().sum()
            for w in (ahead, behind)
        ]
    numerical = (difference[0] - difference[1]) / 2e-4
    torch.testing.assert_close((ours.weight.grad * step).sum(), numerical, rtol=1e-6, atol=1e-4)


@pytest.mark.parametrize("kernel", [1, 3])
def test_what_is_not_asked_for_gets_no_gradient(kernel):
    ours, _ = pair_of(64, 128, kernel, 2)
    maps = maps_of(2, 64, 4, 4)
    ours(maps).sum().backward()
    assert maps.grad is None
    assert ours.weight.grad is not None
    ours.requires_grad_(False)
    assert not ours(maps).requires_grad
    ours(maps.requires_grad_()).sum().backward()
    assert maps.grad is not None


def test_only_plain_cpu_arithmetic_on_channels_last_maps_goes_by_products():
    ours, _ = pair_of(64, 128, 3, 1, torch.float32)
    maps = maps_of(2, 64, 2, 2, torch.float32)
    assert ours.way(maps) == "products"
    assert ours.way(maps.contiguous()) == "library"
    assert ours.way(maps.double()) == "library"
    assert ours.way(maps.to("meta")) == "library"
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert ours.way(maps) == "library"
        assert ours(maps).dtype == torch.bfloat16
    assert ours.bfloat16().way(maps.bfloat16()) == "library"


def test_a_traced_net_keeps_its_convolutions():
    ours, _ = pair_of(64, 128, 3, 1, torch.float32)
    program = torch.export.export(ours, (maps_of(2, 64, 2, 2, torch.float32),))
    assert [str(node.target) for node in program.graph.nodes if node.op == "call_function"] == [
        "aten.conv2d.default"
    ]


@pytest.mark.parametrize(
    ("name", "width", "ways"),
    [
        ("resnet10", 16, {"library", "pointwise", "products"}),
        ("resnet50", 16, {"library", "pointwise", "products"}),
        ("resnet18", 32, {"library", "pointwise", "products", "weights by products"}),
    ],
)
def test_a_net_learns_the_same_by_products_as_without(name, width, ways, monkeypatch):
    def gradients() -> list[torch.Tensor]:
        torch.manual_seed(0)
        net = ResNet(name, width=width, stem="stride2").double().to(memory_format=torch.channels_last)
        met = set()
        for layer in net.modules():
            if isinstance(layer, Convolution):
                layer.register_forward_pre_hook(lambda layer, inputs: met.add(layer.way(inputs[0])))
        features = net(maps_of(4, 3, 32, 32))
        features.square().sum().backward()
        taken.append(met)
        return [features.detach(), *(parameter.grad for parameter in net.parameters())]

    taken: list[set[str]] = []
    ours = gradients()
    monkeypatch.setattr(Convolution, "way", lambda self, maps: "library")
    for one, other in zip(ours, gradients(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-8)
    assert taken == [ways, {"library"}]
