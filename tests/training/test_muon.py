"""Muon against a loop that follows its formulas a matrix at a time, in double precision."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from maskcon.config.settings import RunConfig
from maskcon.models import build_backbone, build_model
from maskcon.training.muon import Muon, orthogonal
from maskcon.training.signals import Interrupted
from maskcon.training.state import build_optimizer
from tests.training.runs import OFTEN, Told, fit, weights


def iterated(matrix):
    """The published iteration as it is written: five steps on the matrix itself."""
    matrix = matrix.double()
    norm = matrix.norm()
    if norm == 0:
        return matrix
    matrix = matrix / norm
    tall = matrix.shape[0] > matrix.shape[1]
    matrix = matrix.T if tall else matrix
    for _ in range(5):
        gram = matrix @ matrix.T
        matrix = 3.4445 * matrix + (-4.7750 * gram + 2.0315 * gram @ gram) @ matrix
    return matrix.T if tall else matrix


@settings(max_examples=50, deadline=None)
@given(
    count=st.integers(1, 3),
    rows=st.integers(1, 24),
    columns=st.integers(1, 24),
    fall=st.floats(0, 2),
    scale=st.sampled_from([1e-12, 1e-3, 1.0, 1e6]),
    seed=st.integers(0, 2**20),
)
def test_orthogonal_matches_the_iteration_on_each_matrix(count, rows, columns, fall, scale, seed):
    made = torch.Generator().manual_seed(seed)
    strengths = torch.logspace(0, -fall, columns)  # from strong to weak directions
    matrices = torch.randn(count, rows, columns, generator=made) * strengths * scale
    expected = torch.stack([iterated(matrix) for matrix in matrices])
    # float32 squares what is weak in the gram: a direction a hundred times weaker keeps three digits
    torch.testing.assert_close(orthogonal(matrices).double(), expected, atol=5e-3, rtol=0)


def test_singular_values_come_near_one_and_their_directions_stay():
    left, strengths, right = torch.linalg.svd(
        torch.randn(1, 8, 30, generator=torch.Generator().manual_seed(0)), full_matrices=False
    )
    strengths = torch.logspace(0, -2, 8).unsqueeze(0)
    made = orthogonal(left @ torch.diag_embed(strengths) @ right)
    turned_back = left.mT @ made @ right.mT  # diagonal, if the directions are the same
    values = turned_back.diagonal(dim1=1, dim2=2)
    assert ((values > 0.6) & (values < 1.25)).all()
    torch.testing.assert_close(turned_back, torch.diag_embed(values), atol=1e-4, rtol=0)


def test_a_matrix_of_zeros_stays_one():
    assert torch.equal(orthogonal(torch.zeros(2, 3, 5)), torch.zeros(2, 3, 5))


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_steps_match_the_formulas_for_matrices_filters_and_scales(weight_decay):
    made = torch.Generator().manual_seed(1)
    shapes = [(6, 4), (4, 3, 3, 3), (6, 4), (5,)]
    start = [torch.randn(shape, generator=made) for shape in shapes]
    parameters = [torch.nn.Parameter(value.clone()) for value in start]
    optimizer = Muon(parameters[:3], parameters[3:], lr=0.3, momentum=0.8, weight_decay=weight_decay)
    expected, buffers = [value.double() for value in start], [torch.zeros_like(value) for value in start]
    for _ in range(3):
        for number, parameter in enumerate(parameters):
            parameter.grad = torch.randn(parameter.shape, generator=made)
            gradient = parameter.grad.clone()
            if number == 3:
                gradient += weight_decay * expected[3].float()
            buffers[number] = 0.8 * buffers[number] + gradient
            update = gradient + 0.8 * buffers[number]
            if number < 3:
                rows, columns = update.flatten(1).shape
                scale = max(1, rows / columns) ** 0.5
                update = scale * iterated(update.flatten(1)).view(update.shape)
                expected[number] = expected[number] * (1 - 0.3 * weight_decay)
            expected[number] = expected[number] - 0.3 * update
        optimizer.step()
    for parameter, value in zip(parameters, expected, strict=True):
        torch.testing.assert_close(parameter.double(), value, atol=2e-4, rtol=1e-4)


def test_a_parameter_without_a_gradient_stays():
    first, second = torch.nn.Parameter(torch.ones(2, 2)), torch.nn.Parameter(torch.ones(2, 2))
    first.grad = torch.eye(2)
    Muon([first, second], [], lr=0.1).step()
    assert torch.equal(second, torch.ones(2, 2))
    assert not torch.equal(first, torch.ones(2, 2))


def test_a_vector_among_the_matrices_is_refused():
    with pytest.raises(ValueError, match="two or more axes"):
        Muon([torch.nn.Parameter(torch.ones(3))], [], lr=0.1)


def test_a_run_makes_filters_and_projector_orthogonal_but_not_the_classifier():
    model = build_model(build_backbone("resnet6", image_size=32, width=8), coarse_classes=3)
    config = RunConfig.build({"source": "x", "optimizer": "muon"})
    optimizer = build_optimizer(model, config)
    matrices, others = (set(group["params"]) for group in optimizer.param_groups)
    assert matrices | others == set(model.parameters())
    assert model.backbone.conv1.weight in matrices
    assert model.projector.layers[0].weight in matrices
    assert model.classifier.linear.weight in others
    assert model.backbone.bn1.weight in others


def test_a_stopped_run_goes_on_to_the_same_bytes(tmp_path):
    muon = {"optimizer": "muon", "learning_rate": 0.1, "coarse_weight": 1.0}
    fit(tmp_path / "whole", **muon)

    class StopsOnce(Told):
        steps = 0

        def on_step(self, *values) -> None:
            self.steps += 1
            if self.steps == 3:
                raise KeyboardInterrupt

    with pytest.raises((KeyboardInterrupt, Interrupted)):
        fit(tmp_path / "stopped", callback=StopsOnce(), machine=OFTEN, **muon)
    fit(tmp_path / "stopped", **muon)
    assert weights(tmp_path / "stopped") == weights(tmp_path / "whole")
