"""Views, steps and scores on a device that is not here: nothing stays on the CPU, and no step waits; 16 bits."""

from __future__ import annotations

import functools

import pytest
import torch

from maskcon import transforms
from maskcon.config.resolution import resolve
from maskcon.methods import losses, registry, relations
from maskcon.methods.registry import all_methods
from maskcon.retrieval.recall import recall_at_k
from maskcon.training import distributed, step
from maskcon.training.callbacks import Callback
from maskcon.training.evaluation import Evaluator
from maskcon.training.setup import assemble, settle
from maskcon.training.step import Place, encode_keys, train_step
from maskcon.transforms.policies import POLICIES
from tests import elsewhere
from tests.elsewhere import DEVICE, Elsewhere
from tests.miniature import TINY, miniature


@pytest.fixture
def device(monkeypatch):
    """The device, where foreach kernels and autocast are known as on a GPU."""
    for name in ("_has_foreach_support", "_device_has_foreach_support"):
        monkeypatch.setattr(torch.nn.utils.clip_grad, name, lambda *_: True)
    named = torch.autocast
    monkeypatch.setattr(
        torch,
        "autocast",
        lambda kind, *given, **more: named("cpu" if kind == "meta" else kind, *given, **more),
    )
    with Elsewhere() as found:
        yield found


def here(value):
    return value.inner if isinstance(value, elsewhere.Away) else value


SPACES = {"teachcon": ("hog", "features")}
CASES = [
    (method.name, space) for method in all_methods() for space in SPACES.get(method.name, ("projection",))
]


def steps(method, space, processes, *, watched=None, count=3, **changes):
    """Train some steps; return the learner, the losses, and how many waits the steps made."""
    data = miniature()
    given = {
        **TINY,
        "relation_space": space,
        "coarse_weight": 1.0 if method == "teachcon" else 0.0,
        **changes,
    }
    config = settle(resolve("miniature", method=method, preset="cpu", overrides=given).config, data)
    assembly = assemble(config, data, processes, download=False)
    training = assembly.prepare(Callback())
    learner, batches = assembly.learner, training.batches(config, 0)
    assert len(training) == 72
    start = Place(epoch=-1, step=0, w=0.0, learning_rate=0.0)
    if learner.bank is not None:
        keys = encode_keys(learner, training, config, start, batches[0])
        rows = batches[0].to(processes.device)
        learner.bank.enqueue(keys.projection, training.labels[rows], training.index[rows], keys.compared)
    reports = []
    training.rows_of(training.index[:1])  # sorts the sample numbers, once for the run
    waited = 0 if watched is None else len(watched.waits)
    for number in range(count):
        place = Place(epoch=number, step=number, w=0.5, learning_rate=0.05)
        reports.append(train_step(learner, training, config, place, batches[number]))
    waits = [] if watched is None else watched.waits[waited:]
    return assembly, [float(here(report.loss)) for report in reports], waits


@functools.cache
def on_cpu(method, space):
    assembly, found, _ = steps(method, space, distributed.start(device="cpu", devices=1, precision="32-true"))
    return assembly, found


@pytest.mark.parametrize(("method", "space"), CASES)
def test_a_step_of_every_method_stays_on_its_device_and_waits_for_nothing(device, method, space):
    with torch.utils._python_dispatch._disable_current_modes():
        expected, expected_losses = on_cpu(method, space)
    assembly, found, waits = steps(method, space, elsewhere.processes(), watched=device)
    assert waits == []
    assert found == expected_losses
    for name, value in assembly.learner.model.state_dict().items():
        assert torch.equal(here(value), expected.learner.model.state_dict()[name]), name


def test_evaluation_runs_on_the_device(device):
    assembly, _, _ = steps("maskcon", "projection", elsewhere.processes(), watched=device, count=1)
    scored = Evaluator(assembly.learner, assembly.data.test, assembly.facts).evaluate(lambda: False)
    with torch.utils._python_dispatch._disable_current_modes():
        processes = distributed.start(device="cpu", devices=1, precision="32-true")
        expected, _, _ = steps("maskcon", "projection", processes, count=1)
        assert scored == Evaluator(expected.learner, expected.data.test, expected.facts).evaluate(
            lambda: False
        )


def test_recall_runs_on_the_device_with_two_waits_a_block(device):
    points, labels = torch.randn(1200, 8), torch.arange(1200) % 7
    found = recall_at_k(points.to(DEVICE), labels.to(DEVICE), (1, 5))
    with torch.utils._python_dispatch._disable_current_modes():
        assert found == recall_at_k(points, labels, (1, 5))
    assert len(device.waits) < 40  # not one per image


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("sized", [False, True])
def test_views_of_every_policy_stay_on_their_device_and_wait_for_nothing(device, name, sized):
    view = transforms.policy(name)
    images = torch.randint(0, 256, (6, 3, 24, 24), dtype=torch.uint8)
    uniforms = torch.rand(6, view.draws)
    sizes = torch.tensor([[24, 20], [9, 24], [24, 24], [10, 11], [1, 1], [24, 3]]) if sized else None
    device.waits.clear()
    found = view(images.to(DEVICE), uniforms, size=16, sizes=sizes)
    assert device.waits == []
    assert found.device == DEVICE
    with torch.utils._python_dispatch._disable_current_modes():
        assert torch.equal(here(found), view(images, uniforms, size=16, sizes=sizes))


@pytest.mark.parametrize("mistake", ["left on the CPU", "item", "mask"])
def test_a_mistake_in_a_step_is_found(device, monkeypatch, mistake):
    right = relations.self_relation

    def wrong(batch_size, bank_size, *, device):
        found = right(batch_size, bank_size, device=None if mistake == "left on the CPU" else device)
        if mistake == "item":
            assert found.sum().item() == batch_size
        if mistake == "mask":
            assert len(found[found > 1]) == 0
        return found

    monkeypatch.setattr(registry, "self_relation", wrong)
    if mistake == "left on the CPU":
        with pytest.raises(
            RuntimeError, match=r"tensors on two devices, those of shapes \[\[16, 17\]\] are on the CPU"
        ):
            steps("selfcon", "projection", elsewhere.processes(), watched=device)
    else:
        *_, waits = steps("selfcon", "projection", elsewhere.processes(), watched=device)
        assert len(waits) == 3  # one a step


# Shares of the loss of a step in float32, over three steps: bfloat16 keeps 8 bits of a number, float16 keeps 11.
LARGEST_DIFFERENCE = {"bf16-mixed": 0.005, "16-mixed": 0.0002}


@pytest.mark.parametrize("precision", LARGEST_DIFFERENCE)
def test_steps_in_16_bits_are_those_of_float32_within_their_rounding(monkeypatch, precision):
    seen = []

    def loss_and_relation(queries, keys, bank_keys, relation, temperature, *more):
        rows = relation(slice(None))
        seen.append((rows, torch.is_autocast_enabled("cpu")))
        found = losses.relation_loss(queries, keys, bank_keys, relation, temperature, *more)
        assert found.dtype == rows.dtype == torch.float32
        return found

    monkeypatch.setattr(step, "relation_loss", loss_and_relation)
    cpu = torch.device("cpu")
    _, exact, _ = steps("maskcon", "projection", elsewhere.processes(device=cpu))
    in_float32 = [rows for rows, _ in seen]
    seen.clear()
    _, found, _ = steps("maskcon", "projection", elsewhere.processes(precision, cpu))
    assert found == pytest.approx(exact, rel=LARGEST_DIFFERENCE[precision])
    assert found != exact  # it was computed in another precision
    for (rows, _), expected in zip(seen, in_float32, strict=True):
        torch.testing.assert_close(rows, expected, atol=0.1, rtol=0)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_relations_are_float32_whatever_surrounds_them(kind):
    keys, bank = (torch.nn.functional.normalize(torch.randn(n, 8), dim=1) for n in (6, 20))
    coarse, bank_coarse = torch.arange(6) % 2, torch.arange(20) % 2
    expected = relations.masked_relation(keys, bank, coarse, bank_coarse, 0.01)
    with torch.autocast("cpu", kind):
        found = relations.masked_relation(keys, bank, coarse, bank_coarse, 0.01)
        half = relations.masked_relation(keys.to(kind), bank.to(kind), coarse, bank_coarse, 0.01)
    assert torch.equal(found, expected)
    assert half.dtype == torch.float32
    rounded = relations.masked_relation(
        keys.to(kind).float(), bank.to(kind).float(), coarse, bank_coarse, 0.01
    )
    assert torch.equal(half, rounded)
