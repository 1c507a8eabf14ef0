"""`--compile`: the same training through compiled passes, and only where it was asked for."""

from __future__ import annotations

import subprocess
import sys
from functools import partial

import pytest
import torch
from typer.testing import CliRunner

from maskcon._utils.errors import UsageError
from maskcon.cli import app
from maskcon.config.resolution import resolve
from maskcon.config.settings import Machine
from maskcon.training import compilation, runner
from maskcon.training.journal import read_journal
from maskcon.training.run_folder import read_result
from maskcon.training.setup import settle
from tests.miniature import TINY, miniature
from tests.training.runs import Told, fit, weights

COMPILE = Machine(checkpoint_every_seconds=0, journal_every_steps=1, device="cpu", compile=True)


class Counting:
    """A backend that runs the graphs as they are, and counts how often and with how many images."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.graphs = 0

    def __call__(self, graph, examples):
        self.graphs += 1

        def run(*inputs):
            self.batches += [
                len(value) for value in inputs if isinstance(value, torch.Tensor) and value.ndim == 4
            ][-1:]
            return graph.forward(*inputs)

        return run


@pytest.fixture
def counting(monkeypatch) -> Counting:
    torch.compiler.reset()
    backend = Counting()
    monkeypatch.setattr(runner, "compiled_passes", partial(compilation.compiled_passes, backend=backend))
    return backend


def losses(folder) -> list[float]:
    return [event["loss"] for event in read_journal(folder / "journal.jsonl") if event["kind"] == "step"]


def test_compiled_nets_train_alike_and_only_whole_batches_go_through_them(tmp_path, counting):
    plain = fit(tmp_path / "plain", data=miniature(40, 12), batch_size=16, epochs=3)
    told = Told()
    compiled = fit(
        tmp_path / "compiled",
        data=miniature(40, 12),
        batch_size=16,
        epochs=3,
        machine=COMPILE,
        announce=told,
    )
    assert losses(compiled.folder) == pytest.approx(losses(plain.folder), rel=1e-2)
    assert losses(compiled.folder)[0] == pytest.approx(losses(plain.folder)[0], rel=1e-5)
    assert counting.graphs == 2  # the query's and the key's; nothing was compiled again
    primed, steps, trial = (
        2,
        2 * 2 * 3,
        2,
    )  # 40 images: two whole batches and a short one, each for query and key
    assert len(counting.batches) == primed + steps + trial
    assert any("compiling" in message for message in told.messages)
    assert any(message.startswith("compiled in") for message in told.messages)
    event = next(
        event for event in read_journal(compiled.folder / "journal.jsonl") if event["kind"] == "compiled"
    )
    assert 0 < event["seconds"] < read_result(compiled.folder)["seconds"]


def test_compiling_leaves_the_nets_as_they_were(tmp_path, monkeypatch, counting):
    seen: dict[str, dict[str, torch.Tensor]] = {}
    real = runner.compiled_passes

    class Context:
        def __init__(self, learner, *arguments, **more):
            self.learner, self.context = learner, real(learner, *arguments, **more)

        def __enter__(self):
            seen["before"] = self.state()
            seconds = self.context.__enter__()
            seen["after"] = self.state()
            seen["gradients"] = {
                name: value.grad
                for name, value in self.learner.model.named_parameters()
                if value.grad is not None
            }
            return seconds

        def __exit__(self, *error):
            return self.context.__exit__(*error)

        def state(self):
            return {name: value.clone() for name, value in self.learner.state()[0].items()}

    monkeypatch.setattr(runner, "compiled_passes", Context)
    fit(tmp_path / "run", machine=COMPILE, epochs=1)
    assert seen["gradients"] == {}
    assert seen["before"].keys() == seen["after"].keys()
    assert all(torch.equal(seen["after"][name], value) for name, value in seen["before"].items())


def test_a_run_begun_without_goes_on_compiled_and_ends_as_a_plain_one(tmp_path, counting, monkeypatch):
    whole = fit(tmp_path / "whole", batch_size=24, epochs=2)

    class StoppedError(Exception):
        pass

    def stop(*arguments, **more):
        raise StoppedError

    with monkeypatch.context() as patch:
        patch.setattr(runner.Training, "_watch_for_collapse", stop)  # at the end of the first epoch
        with pytest.raises(StoppedError):
            fit(tmp_path / "run", batch_size=24, epochs=2)
    told = Told()
    gone_on = fit(tmp_path / "run", batch_size=24, epochs=2, machine=COMPILE, announce=told)
    assert any("resuming from step" in message for message in told.messages)
    assert counting.graphs == 2
    assert losses(gone_on.folder) == pytest.approx(losses(whole.folder), rel=1e-2)
    assert len(weights(gone_on.folder)) == len(weights(whole.folder))


def test_a_method_without_keys_has_one_net_to_compile(tmp_path, counting):
    fit(tmp_path / "run", method="supce", machine=COMPILE, epochs=1)
    assert counting.graphs == 1


def test_a_finished_run_is_not_compiled_for_again(tmp_path, counting):
    fit(tmp_path / "run", epochs=1)
    fit(tmp_path / "run", epochs=1, machine=COMPILE)
    assert counting.graphs == 0


def test_a_backend_that_fails_is_told_with_the_way_out(tmp_path, monkeypatch):
    torch.compiler.reset()

    def broken(graph, examples):
        raise RuntimeError("no C++ compiler here")

    monkeypatch.setattr(runner, "compiled_passes", partial(compilation.compiled_passes, backend=broken))
    with pytest.raises(UsageError, match=r"no C\+\+ compiler here.*without --compile"):
        fit(tmp_path / "run", machine=COMPILE, epochs=1)
    run = fit(tmp_path / "run", epochs=1)  # and the nets are as before
    assert run.result["recall"]


def test_a_frozen_run_has_nothing_to_compile(tmp_path):
    resolved = resolve("miniature", method="maskcon", preset="cpu", overrides=TINY)
    frozen = settle(resolved.config, miniature()).model_copy(update={"freeze": True})
    with pytest.raises(UsageError, match="--compile has nothing to compile"):
        runner.train(frozen, miniature(), tmp_path / "run", COMPILE, Told())
    assert not (tmp_path / "run").exists()


def test_a_budget_cannot_count_compiling_in(tmp_path):
    result = CliRunner().invoke(
        app, ["train", "embedded", "--compile", "--budget", "5m", "--out", str(tmp_path / "run")]
    )
    assert isinstance(result.exception, UsageError)
    assert "--epochs" in str(result.exception)


@pytest.mark.slow
@pytest.mark.parametrize("devices", [1, 2])
def test_the_command_line_trains_by_inductor_as_it_does_without(tmp_path, devices):
    recalls = {}
    for name, more in (("plain", []), ("compiled", ["--compile"])):
        settings = {"epochs": 2, "train_limit": 320, "test_limit": 80, "bank_size": 256}
        pairs = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        command = [sys.executable, "-m", "maskcon", "train", "embedded", *pairs, *more]
        command += ["--devices", str(devices), "--threads", "1", "--out", str(tmp_path / name)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        assert ("compiled in" in done.stderr + done.stdout) == bool(more)
        recalls[name] = losses(tmp_path / name)
    assert recalls["compiled"] == pytest.approx(recalls["plain"], rel=0.02)
