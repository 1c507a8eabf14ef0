"""The cost model counts what the nets do, and docs/scaling.md shows what it gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks.cost_model import count as counting
from benchmarks.cost_model import tables

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("resnet10", {"image_size": 32, "width": 16, "stem": "stride2", "channels": 1}),
        ("resnet18", {"image_size": 32}),
        ("resnet50", {"image_size": 224}),
        ("mobilenet_v2", {"image_size": 64}),  # convolutions in groups
    ],
)
def test_counted_flops_of_a_net_are_those_of_its_layers_shapes(name: str, settings: dict[str, Any]) -> None:
    net = counting.Net(name, **settings)
    cost = counting.passes(net, batch=2)
    assert (cost.forward.flops, cost.backward.flops) == counting.layer_flops(net, batch=2)
    assert cost.key.flops == cost.forward.flops


def test_a_convolution_counts_the_same_when_it_is_written_as_a_product() -> None:
    images, weight = torch.randn(3, 4, 6, 6, requires_grad=True), torch.randn(5, 4, 1, 1, requires_grad=True)

    def product() -> torch.Tensor:
        return images.permute(0, 2, 3, 1).reshape(-1, 4) @ weight.flatten(1).T

    as_convolution = counting.count(lambda: torch.conv2d(images, weight).sum().backward())
    assert as_convolution.flops == counting.count(lambda: product().sum().backward()).flops
    assert as_convolution.flops == 3 * 2 * (3 * 6 * 6) * (4 * 5)


@pytest.mark.parametrize(("batch", "bank", "dim"), [(8, 100, 16), (128, 8192, 128), (256, 65536, 128)])
def test_relation_and_loss_cost_what_the_formula_says(batch: int, bank: int, dim: int) -> None:
    work = counting.relation_work(batch, bank, dim)
    assert work.flops == counting.relation_flops(batch, bank, dim)
    assert 10 < work.moved / (4 * batch * bank) < 40  # passes over an array [B, K]


def test_bytes_moved_are_those_read_and_those_written() -> None:
    left, right = torch.zeros(10, 7), torch.zeros(10, 7)
    assert counting.count(lambda: left + right).moved == 3 * left.nbytes
    assert counting.count(lambda: left.add_(right)).moved == 3 * left.nbytes
    assert counting.count(lambda: left.T).moved == 0
    assert counting.count(lambda: left.T @ right).moved == 0  # a product: its cost is its arithmetic


def test_updates_move_the_bytes_the_formulas_say() -> None:
    query, key = torch.nn.Linear(100, 100), torch.nn.Linear(100, 100).requires_grad_(False)
    parameters = sum(parameter.numel() for parameter in query.parameters())
    optimiser = torch.optim.SGD(query.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4, foreach=True)
    for parameter in query.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimiser.step()  # the first one makes the velocities

    def norm_and_step() -> None:
        gradients = [parameter.grad for parameter in query.parameters() if parameter.grad is not None]
        torch.nn.utils.get_total_norm(gradients, foreach=True)
        optimiser.step()

    def follow() -> None:
        torch._foreach_lerp_(list(key.parameters()), list(query.parameters()), 0.01)

    with torch.no_grad():
        followed = counting.count(follow).moved
    assert followed == counting.momentum_bytes(parameters)
    assert counting.count(norm_and_step).moved == pytest.approx(
        counting.optimiser_bytes(parameters), rel=0.02
    )


def test_the_bank_takes_the_bytes_the_formula_says() -> None:
    from maskcon.methods.memory_bank import MemoryBank

    bank = MemoryBank(100, 16, compared_dim=32)
    held = sum(buffer.nbytes for name, buffer in bank.named_buffers() if name != "_state")
    assert held == counting.bank_bytes(100, 16, compared=32)


def test_the_document_shows_the_computed_tables() -> None:
    text = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
    assert [name for name, made in tables.TABLES.items() if made() not in text] == []


def test_the_rates_told_in_the_document_follow_from_the_published_ones() -> None:
    assert tables.usable_flops() / 1e12 == pytest.approx(60, rel=0.01)
    assert tables.usable_flops() / tables.PEAK_FLOPS == pytest.approx(0.19, abs=0.005)
    assert pytest.approx(0.84, abs=0.005) == tables.SCALING
    cost = tables.cost_of(tables.NETS["ResNet-50, 224 px"])
    key_net_too = cost.all.flops / (cost.forward + cost.backward).flops
    assert 200 * tables.IMAGENET / 2855 * key_net_too / 3600 == pytest.approx(33, abs=0.5)  # eight V100
