from __future__ import annotations

import copy
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from maskcon.models import compiled_norm
from maskcon.models.batchnorm import freeze_batchnorm, measure_statistics
from maskcon.models.compiled_norm import CompiledBatchNorm2d, compile_batchnorm
from maskcon.models.fusion import for_inference
from maskcon.models.resnet import ResNet

pytest.importorskip("numba")


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def layer_of(channels: int) -> CompiledBatchNorm2d:
    layer = nn.BatchNorm2d(channels)
    nn.init.normal_(layer.weight)
    nn.init.normal_(layer.bias)
    nn.init.normal_(layer.running_mean)
    nn.init.uniform_(layer.running_var)
    assert compile_batchnorm(layer) == 1
    return layer


def maps_of(*shape: int) -> torch.Tensor:
    return torch.randn(shape).contiguous(memory_format=torch.channels_last)


def oracle(layer, maps, beside, rectify):
    """What BatchNorm is, in float64, a channel at a time: output, running mean and running variance."""
    channels = []
    means, variances = [], []
    for channel in range(maps.shape[1]):
        values = maps[:, channel]
        mean = values.mean()
        variance = (values - mean).square().mean()
        count = values.numel()
        channels.append(
            (values - mean) / (variance + layer.eps).sqrt() * layer.weight[channel].double()
            + layer.bias[channel].double()
        )
        means.append(0.9 * layer.running_mean[channel].double() + 0.1 * mean)
        variances.append(0.9 * layer.running_var[channel].double() + 0.1 * variance * count / (count - 1))
    out = torch.stack(channels, dim=1)
    out = out if beside is None else out + beside
    return (out.relu() if rectify else out), torch.stack(means), torch.stack(variances)


# 65 lines and more: several blocks of sums. 3 channels: lines of an odd length. 600: longer than a line.
SHAPES = st.one_of(
    st.tuples(st.integers(2, 5), st.integers(1, 9), st.integers(1, 5), st.integers(1, 5)),
    st.sampled_from([(67, 16, 16, 9), (3, 600, 3, 1), (130, 32, 1, 7), (71, 3, 8, 13)]),
)


@settings(deadline=None, max_examples=80)
@given(st.integers(0, 10_000), SHAPES, st.booleans(), st.booleans(), st.sampled_from([0.0, 1.0, 300.0]))
def test_output_statistics_and_gradients_are_those_of_the_definition(
    seed, shape, with_beside, rectify, offset
):
    torch.manual_seed(seed)
    rectify = rectify or with_beside
    layer = layer_of(shape[1])
    maps = (maps_of(*shape) + offset).requires_grad_()
    beside = maps_of(*shape).requires_grad_() if with_beside else None
    exact = maps.detach().double().requires_grad_()
    exact_beside = beside.detach().double().requires_grad_() if beside is not None else None
    expected, mean, variance = oracle(layer, exact, exact_beside, rectify)
    exact_layer = copy.deepcopy(layer).double()
    assert layer.fits(maps)
    found = layer.rectified(maps, beside) if rectify else layer(maps)

    # float32 holds the maps themselves to 2**-24 of their size, and a channel of a few pixels may have a small spread
    spread = exact.detach().transpose(0, 1).flatten(1).std(dim=1).min().item()
    slack = 2e-6 * (1 + offset) / max(spread, 1e-3) * (1 + layer.weight.abs().max().item())
    torch.testing.assert_close(found.double(), expected.detach(), rtol=1e-5, atol=10 * slack)
    torch.testing.assert_close(
        layer.running_mean.double(), mean.detach(), rtol=1e-6, atol=1e-5 * (1 + offset)
    )
    torch.testing.assert_close(layer.running_var.double(), variance.detach(), rtol=1e-4, atol=1e-4)
    assert layer.num_batches_tracked == 1
    assert found.is_contiguous(memory_format=torch.channels_last)

    scale = torch.randn(shape)
    if rectify:  # a value within rounding of 0 may fall to either side of it
        scale = scale * (expected.detach().abs() > 100 * slack)
        expected = expected * (expected.detach().abs() > 100 * slack)
    (found * scale.contiguous(memory_format=torch.channels_last)).sum().backward()
    plain = exact_layer.weight  # the oracle read the float32 layer's parameters, so ask torch for these two
    out = nn.functional.batch_norm(exact, None, None, plain, exact_layer.bias, training=True, eps=layer.eps)
    out = out if exact_beside is None else out + exact_beside
    ((out.relu() if rectify else out) * scale.double()).sum().backward()
    loose = {"rtol": 1e-3, "atol": 100 * slack * math.sqrt(maps.numel())}
    torch.testing.assert_close(maps.grad.double(), exact.grad, **loose)
    torch.testing.assert_close(layer.weight.grad.double(), exact_layer.weight.grad, **loose)
    torch.testing.assert_close(layer.bias.grad.double(), exact_layer.bias.grad, **loose)
    if beside is not None:
        torch.testing.assert_close(beside.grad.double(), exact_beside.grad, **loose)


@pytest.mark.parametrize("offset", [0.0, 10.0, 1000.0])
def test_rounding_is_no_worse_than_that_of_torch(offset):
    torch.manual_seed(0)
    layer = layer_of(16)
    theirs = nn.BatchNorm2d(16)
    theirs.load_state_dict(layer.state_dict())
    maps = maps_of(128, 16, 16, 16) + offset
    exact, _, _ = oracle(layer, maps.double(), None, rectify=False)
    ours, torchs = ((found - exact).abs().max() for found in (layer(maps), theirs(maps)))
    assert ours <= 2 * torchs + 1e-6


def test_gradient_is_that_of_finite_differences():
    torch.manual_seed(0)
    layer = layer_of(4)
    maps, step = maps_of(6, 4, 3, 3), maps_of(6, 4, 3, 3)
    beside = maps_of(6, 4, 3, 3) + 3  # far enough from 0 that no step of this size turns a ReLU
    wanted = maps_of(6, 4, 3, 3)
    at = maps.clone(memory_format=torch.preserve_format).requires_grad_()
    (layer.rectified(at, beside) * wanted).sum().backward()

    def loss(distance: float) -> torch.Tensor:
        out, _, _ = oracle(layer, (maps + distance * step).double(), beside.double(), rectify=True)
        return (out * wanted).sum()

    numerical = (loss(1e-4) - loss(-1e-4)) / 2e-4
    torch.testing.assert_close((at.grad * step).sum().double(), numerical, rtol=1e-4, atol=1e-3)


def test_without_gradients_the_output_is_the_same_to_the_bit():
    torch.manual_seed(0)
    layer, maps, beside = layer_of(5), maps_of(4, 5, 3, 3), maps_of(4, 5, 3, 3)
    with torch.no_grad():
        found = copy.deepcopy(layer)
        assert torch.equal(found.rectified(maps, beside), layer.rectified(maps, beside))
    assert torch.equal(found.running_var, layer.running_var)
    assert torch.equal(copy.deepcopy(layer).rectified(maps), layer.rectified(maps))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_no_number_is_not_hidden_by_the_relu(bad):
    layer, maps = layer_of(2), maps_of(3, 2, 2, 2)
    maps[1, 0, 1, 1] = bad
    out = layer.rectified(maps)
    assert out[:, 0].isnan().any()
    assert out[:, 1].isfinite().all()
    maps, beside = maps_of(3, 2, 2, 2), maps_of(3, 2, 2, 2)
    beside[0, 1, 0, 0] = math.nan
    assert layer.rectified(maps, beside).isnan().sum() == 1


def test_a_constant_channel_gives_its_bias():
    layer, maps = layer_of(3), maps_of(4, 3, 5, 5)
    maps[:, 1] = 3.3
    out = layer(maps)
    torch.testing.assert_close(out[:, 1], layer.bias[1].expand(4, 5, 5), rtol=0, atol=1e-3)


def test_loops_are_taken_for_plain_training_on_one_thread_alone():
    layer, maps = layer_of(4), maps_of(2, 4, 3, 3)
    assert layer.fits(maps)
    assert not layer.fits(maps.contiguous())
    assert not layer.fits(maps.double())
    assert not layer.fits(maps.to("meta"))
    assert not layer.fits(maps[:1, :, :1, :1])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not layer.fits(maps)
    torch.set_num_threads(2)
    assert not layer.fits(maps)
    torch.set_num_threads(1)
    assert not copy.deepcopy(layer).eval().fits(maps)
    layer.momentum = None
    assert not layer.fits(maps)


@pytest.mark.parametrize("maps", [maps_of(2, 3, 4, 4).contiguous(), maps_of(2, 3, 4, 4).double()])
def test_elsewhere_it_is_torch_to_the_bit(maps):
    ours = layer_of(3).to(maps.dtype)
    theirs = nn.BatchNorm2d(3).to(maps.dtype)
    theirs.load_state_dict(ours.state_dict())
    assert torch.equal(ours(maps), theirs(maps))
    assert torch.equal(ours.rectified(maps, maps), torch.relu(theirs(maps) + maps))
    assert torch.equal(ours.eval()(maps), theirs.eval()(maps))
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        ours.train()(maps[:1, :, :1, :1])


@pytest.mark.parametrize(("name", "width"), [("resnet10", 16), ("resnet50", 8)])
def test_a_net_learns_the_same_by_loops_as_without(name, width):
    torch.manual_seed(0)
    plain = ResNet(name, width=width, stem="stride2").to(memory_format=torch.channels_last)
    compiled = copy.deepcopy(plain)
    layers = sum(isinstance(layer, nn.BatchNorm2d) for layer in plain.modules())
    assert compile_batchnorm(compiled) == layers
    assert compile_batchnorm(compiled) == 0
    images = maps_of(16, 3, 32, 32)

    def learnt(net: ResNet) -> torch.Tensor:
        features = net(images.to(net.conv1.weight.dtype))
        features.square().sum().backward()
        gradients = [parameter.grad / parameter.grad.norm() for parameter in net.parameters()]
        return torch.cat([part.double().flatten() for part in (features.detach(), *gradients)])

    exact = learnt(copy.deepcopy(plain).double())
    errors = [torch.linalg.vector_norm(learnt(net) - exact) for net in (compiled, plain)]
    assert errors[0] <= 2 * errors[1]  # a deep net makes much of a rounding, whoever rounds
    assert plain.state_dict().keys() == compiled.state_dict().keys()
    for one, other in zip(plain.buffers(), compiled.buffers(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(plain.eval()(images), compiled.eval()(images), rtol=1e-3, atol=1e-3)


def test_other_treatments_of_batchnorm_know_it(monkeypatch):
    net = ResNet("resnet8", width=8, stem="stride2").to(memory_format=torch.channels_last)
    compile_batchnorm(net)
    images = maps_of(4, 3, 16, 16)
    calls = []
    monkeypatch.setattr(compiled_norm, "_normalise", lambda *_: calls.append(1))
    assert measure_statistics(net, [images, images]) > 0
    fused = for_inference(net)
    assert not any(isinstance(layer, nn.BatchNorm2d) for layer in fused.modules())
    torch.testing.assert_close(fused(images), net.eval()(images), rtol=1e-3, atol=1e-3)
    assert not calls
    assert freeze_batchnorm(net.train()) > 0
    before = net.bn1.running_mean.clone()
    net(images)
    assert torch.equal(net.bn1.running_mean, before)
