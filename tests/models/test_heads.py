from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from maskcon._utils.errors import UsageError
from maskcon.models.heads import CoarseClassifier, Projector, unit_rows


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10_000), scale=st.sampled_from([1e-6, 1.0, 1e6]))
def test_unit_rows_have_length_one_and_keep_direction(seed: int, scale: float) -> None:
    vectors = torch.randn(3, 7, generator=torch.Generator().manual_seed(seed)) * scale
    rows = unit_rows(vectors)
    torch.testing.assert_close(rows.norm(dim=1), torch.ones(3))
    torch.testing.assert_close(rows * vectors.norm(dim=1, keepdim=True), vectors)


def test_zero_row_stays_zero_without_gradient() -> None:
    vectors = torch.tensor([[0.0, 0.0], [3.0, 4.0]], requires_grad=True)
    rows = unit_rows(vectors)
    rows.sum().backward()
    assert rows[0].tolist() == [0.0, 0.0]
    assert vectors.grad is not None
    assert vectors.grad[0].tolist() == [0.0, 0.0]
    # d/dx of (x + y) / |v| at (3, 4): (16 - 12) / 125 and (9 - 12) / 125
    torch.testing.assert_close(vectors.grad[1], torch.tensor([4.0, -3.0]) / 125)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_a_row_that_is_not_finite_stays_visible_instead_of_turning_into_zeros(value: float) -> None:
    rows = unit_rows(torch.tensor([[value, 1.0], [3.0, 4.0]]))
    assert not rows[0].isfinite().all()
    torch.testing.assert_close(rows[1], torch.tensor([0.6, 0.8]))


def test_projector_is_linear_relu_linear_then_unit() -> None:
    projector = Projector(6, hidden=5, out=4)
    features = torch.randn(3, 6)
    state = projector.state_dict()
    assert [tuple(value.shape) for value in state.values()] == [(5, 6), (5,), (4, 5), (4,)]
    first_weight, first_bias, second_weight, second_bias = state.values()
    hidden = (features @ first_weight.T + first_bias).clamp_min(0)
    expected = nn.functional.normalize(hidden @ second_weight.T + second_bias, dim=1)
    torch.testing.assert_close(projector(features), expected)


def test_projector_defaults_are_the_papers_sizes() -> None:
    shapes = [tuple(parameter.shape) for parameter in Projector(512).parameters()]
    assert shapes == [(512, 512), (512,), (128, 512), (128,)]


def test_projection_is_exact_float32_under_autocast() -> None:
    projector = Projector(32, 16, 8)
    with torch.autocast("cpu", torch.bfloat16):
        rows = projector(torch.randn(5, 32))
    assert rows.dtype == torch.float32
    torch.testing.assert_close(rows.norm(dim=1), torch.ones(5), rtol=0, atol=1e-6)


def test_dead_hidden_layer_gives_zero_rows_not_nan() -> None:
    projector = Projector(4, 3, 2)
    for parameter in projector.parameters():
        nn.init.zeros_(parameter)
    rows = projector(torch.randn(2, 4))
    rows.sum().backward()
    assert rows.tolist() == [[0.0, 0.0]] * 2
    assert all(p.grad is not None and p.grad.isfinite().all() for p in projector.parameters())


def test_classifier_is_linear() -> None:
    classifier = CoarseClassifier(6, 3)
    features = torch.randn(2, 6)
    expected = features @ classifier.linear.weight.T + classifier.linear.bias
    torch.testing.assert_close(classifier(features), expected)


def test_wrong_head_settings_are_named() -> None:
    with pytest.raises(UsageError, match="hidden=0"):
        Projector(4, hidden=0)
    with pytest.raises(UsageError, match="classes=1"):
        CoarseClassifier(4, 1)
