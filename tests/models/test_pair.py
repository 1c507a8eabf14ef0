from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from maskcon._utils.errors import UsageError
from maskcon.models.backbones import FrozenBatchNorm2d, build_backbone, freeze_batchnorm
from maskcon.models.momentum import Model, MomentumPair, build_model

IMAGES = torch.randn(6, 1, 16, 16, generator=torch.Generator().manual_seed(0))


def model(**heads: int | None) -> Model:
    torch.manual_seed(0)
    return build_model(build_backbone("resnet6", image_size=16, in_channels=1, width=4), hidden=8, **heads)  # type: ignore[arg-type]


def perturb(module: nn.Module) -> None:
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter))


def snapshot(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in module.state_dict().items()}


def test_output_has_exactly_the_parts_the_model_has() -> None:
    for projection in (None, 5):
        for classes in (None, 3):
            output = model(projection=projection, coarse_classes=classes)(IMAGES)
            assert output.features.shape == (6, 8)
            assert (None if output.projection is None else output.projection.shape[1]) == projection
            assert (None if output.logits is None else output.logits.shape[1]) == classes


def test_a_pair_without_projector_is_refused() -> None:
    with pytest.raises(UsageError, match="no projector"):
        MomentumPair(model(projection=None))


@settings(max_examples=20, deadline=None)
@given(momentum=st.one_of(st.sampled_from([0.0, 0.99, 1.0]), st.floats(0, 1)), seed=st.integers(0, 1000))
def test_update_matches_loop_oracle(momentum: float, seed: int) -> None:
    torch.manual_seed(seed)
    pair = MomentumPair(build_model(build_backbone("resnet6", image_size=16, width=2), coarse_classes=3))
    perturb(pair.query)
    before = snapshot(pair.key)
    query_before = snapshot(pair.query)
    pair.update(momentum)
    query = dict(pair.query.named_parameters())
    for name, follower in pair.key.named_parameters():
        expected = momentum * before[name].double() + (1 - momentum) * query[name].detach().double()
        torch.testing.assert_close(follower.double(), expected, rtol=1e-5, atol=1e-6)
    for name, value in pair.query.state_dict().items():
        assert torch.equal(value, query_before[name])


def test_update_at_the_ends_is_exact() -> None:
    pair = MomentumPair(model())
    perturb(pair.query)
    before = snapshot(pair.key)
    pair.update(1.0)
    assert all(torch.equal(value, before[name]) for name, value in pair.key.state_dict().items())
    pair.update(0.0)
    query = dict(pair.query.named_parameters())
    assert all(torch.equal(value, query[name]) for name, value in pair.key.named_parameters())


def test_key_starts_as_a_copy_without_classifier_and_shares_no_memory() -> None:
    pair = MomentumPair(model(coarse_classes=3))
    assert pair.key.classifier is None
    query = dict(pair.query.named_parameters())
    for name, value in pair.key.named_parameters():
        assert torch.equal(value, query[name])
        assert value.data_ptr() != query[name].data_ptr()


def test_key_never_gets_gradients() -> None:
    pair = MomentumPair(model())
    keys = pair.encode_keys(IMAGES)
    projection = pair.query(IMAGES).projection
    (projection * keys).sum().backward()
    assert not keys.requires_grad
    assert all(value.grad is None and not value.requires_grad for value in pair.key.parameters())
    assert all(value.grad is not None for value in pair.query.parameters())
    pair.update(0.5)
    assert not any(value.requires_grad for value in pair.key.parameters())


def test_keys_are_unit_float32_rows_also_under_autocast() -> None:
    pair = MomentumPair(model())
    with torch.autocast("cpu", torch.bfloat16):
        keys = pair.encode_keys(IMAGES)
    assert keys.dtype == torch.float32
    torch.testing.assert_close(keys.norm(dim=1), torch.ones(6))


def test_keys_with_their_features_are_the_same_keys() -> None:
    pair = MomentumPair(model()).eval()
    keys, features = pair.encode_keys_and_features(IMAGES)
    assert torch.equal(keys, pair.encode_keys(IMAGES))
    assert not features.requires_grad
    assert torch.equal(features, pair.key.backbone(IMAGES))


def test_own_buffers_follow_the_key_images_only() -> None:
    pair = MomentumPair(model()).train()
    pair.query(IMAGES * 3 + 1)
    started = snapshot(pair.key)
    pair.update(0.5)
    assert all(torch.equal(value, started[name]) for name, value in pair.key.named_buffers())
    pair.encode_keys(IMAGES)
    mean = pair.key.state_dict()["backbone.bn1.running_mean"]
    assert not torch.equal(mean, started["backbone.bn1.running_mean"])
    assert not torch.equal(mean, pair.query.state_dict()["backbone.bn1.running_mean"])


def test_key_batchnorm_train_normalises_by_the_batch() -> None:
    pair = MomentumPair(model()).train()
    assert not torch.allclose(pair.encode_keys(IMAGES)[:3], pair.encode_keys(IMAGES[:3]), atol=1e-4)


def test_pair_state_round_trips() -> None:
    pair = MomentumPair(model(coarse_classes=3))
    perturb(pair)
    other = MomentumPair(model(coarse_classes=3))
    other.load_state_dict(snapshot(pair))
    assert torch.equal(other.eval().encode_keys(IMAGES), pair.eval().encode_keys(IMAGES))


def test_wrong_pair_settings_are_named() -> None:
    for momentum in (-0.1, 1.1, float("nan")):
        with pytest.raises(UsageError, match="between 0 and 1"):
            MomentumPair(model()).update(momentum)
    with pytest.raises(UsageError, match="float32"):
        MomentumPair(model()).bfloat16().update(0.99)


def test_frozen_batchnorm_stays_frozen_through_train_and_deepcopy() -> None:
    net = model()
    names = list(net.state_dict())
    freeze_batchnorm(net)
    freeze_batchnorm(net)
    assert sum(isinstance(layer, FrozenBatchNorm2d) for layer in net.modules()) == 6
    assert list(net.state_dict()) == names
    for candidate in (net.train(), copy.deepcopy(net).train(), MomentumPair(net).train().key):
        before = snapshot(candidate)
        together = candidate(IMAGES).features
        torch.testing.assert_close(together[:1], candidate(IMAGES[:1]).features)
        assert all(torch.equal(value, before[name]) for name, value in candidate.state_dict().items())
    net(IMAGES).features.sum().backward()
    assert net.get_submodule("backbone.bn1").weight.grad is not None
