"""BatchNorm statistics that are measured at the end of a run, from images in their key view."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from maskcon._utils.errors import UsageError
from maskcon.api import Run
from maskcon.models.batchnorm import FrozenBatchNorm1d, freeze_batchnorm, measure_statistics
from maskcon.training import loop
from maskcon.training.callbacks import Callback
from tests.miniature import miniature
from tests.training.runs import ends_as_if_never_stopped, fit, weights


def slow_statistics(batches: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean over batches of each one's mean and unbiased variance."""
    means = torch.stack([batch.double().mean(0) for batch in batches]).mean(0)
    variances = torch.stack([batch.double().var(0) for batch in batches]).mean(0)
    return means, variances


@pytest.mark.parametrize("count", [1, 4])
def test_statistics_are_those_of_the_batches_and_nothing_before(count):
    torch.manual_seed(count)
    layer = nn.BatchNorm1d(3, momentum=0.3)
    layer(torch.randn(50, 3) * 9 - 4)  # to be forgotten
    batches = [torch.randn(20, 3) * 2 + 1 for _ in range(count)]
    net = nn.Sequential(layer).eval()
    assert measure_statistics(net, batches) == 1
    means, variances = slow_statistics(batches)
    torch.testing.assert_close(layer.running_mean.double(), means, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(layer.running_var.double(), variances, atol=1e-5, rtol=1e-5)
    assert not net.training
    assert layer.momentum == 0.3


def test_later_layers_see_what_earlier_ones_make_of_a_batch():
    torch.manual_seed(0)
    net = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2), nn.BatchNorm1d(2))
    batch = torch.randn(64, 2) * 5 + 3
    measure_statistics(net, [batch])
    first = (batch - batch.mean(0)) / (batch.var(0, correction=0) + net[0].eps).sqrt()
    torch.testing.assert_close(net[2].running_mean, net[1](first).mean(0), atol=1e-5, rtol=0)


def test_frozen_statistics_stay_and_a_net_without_any_is_let_be():
    net = nn.Sequential(nn.BatchNorm1d(2))
    freeze_batchnorm(net)
    assert isinstance(net[0], FrozenBatchNorm1d)
    assert measure_statistics(net, [torch.randn(8, 2) + 7]) == 0
    assert net[0].running_mean.tolist() == [0.0, 0.0]
    assert measure_statistics(nn.Linear(2, 2), [torch.randn(8, 2)]) == 0


def parts(folder) -> dict[str, dict[str, torch.Tensor]]:
    from safetensors.torch import load_file

    saved = load_file(folder / "encoder.safetensors")
    running = {name: value for name, value in saved.items() if "running_" in name}
    return {
        "running": running,
        "learnt": {n: v for n, v in saved.items() if "running_" not in n and v.ndim > 0},
    }


def test_a_run_learns_the_same_and_ends_with_other_statistics(tmp_path):
    fit(tmp_path / "along")
    fit(tmp_path / "measured", final_statistics=40)
    along, measured = parts(tmp_path / "along"), parts(tmp_path / "measured")
    assert all(along["learnt"][name].equal(value) for name, value in measured["learnt"].items())
    assert not any(along["running"][name].equal(value) for name, value in measured["running"].items())
    scores = [Run.open(tmp_path / name).result["recall"] for name in ("along", "measured")]
    assert scores[0] != scores[1]


@pytest.mark.parametrize("every", [0, 1])
def test_a_run_stopped_at_its_end_or_before_ends_the_same(tmp_path, every):
    settings = {"final_statistics": 40, "eval_every_epochs": every}
    assert ends_as_if_never_stopped(tmp_path, **settings)


def test_one_image_is_refused(tmp_path):
    with pytest.raises(UsageError, match="no variance"):
        fit(tmp_path / "run", final_statistics=1)


class Counting(Callback):
    def __init__(self) -> None:
        self.measured: list[tuple[int, int]] = []

    def on_statistics(self, done: int, total: int) -> None:
        self.measured.append((done, total))


@pytest.mark.parametrize(("images", "begins"), [(2, [0]), (32, [0]), (33, [0, 17]), (10_000, None)])
def test_any_other_number_of_images_is_parted_evenly(tmp_path, images, begins, monkeypatch):
    """33 by batches of 32 are 17 and 16, since one alone has no variance; more than there are is all of them."""
    sizes: list[int] = []

    def measure(module, batches):
        kept = list(batches)
        sizes.extend(len(batch) for batch in kept)
        return measure_statistics(module, kept)

    monkeypatch.setattr(loop, "measure_statistics", measure)
    told, data = Counting(), miniature()
    fit(tmp_path / "run", final_statistics=images, batch_size=32, data=data, epochs=1, announce=told)
    count = min(images, len(data.train))
    assert sum(sizes) == count
    assert max(sizes) <= 32
    assert max(sizes) - min(sizes) <= 1
    assert told.measured == [(sum(sizes[:number]), count) for number in range(len(sizes))]
    assert begins is None or [done for done, _ in told.measured] == begins


def test_nets_without_batchnorm_have_nothing_to_measure(tmp_path):
    fit(tmp_path / "along", norm="group")
    fit(tmp_path / "measured", norm="group", final_statistics=40)
    assert weights(tmp_path / "along") == weights(tmp_path / "measured")
