"""The engine of a run's views: settled at the start, kept when the run is resumed."""

from __future__ import annotations

import json
import time
from functools import partial

import pytest
import torch

from maskcon._utils.errors import UsageError
from maskcon.config.resolution import resolve
from maskcon.training import setup
from maskcon.training.journal import read_journal
from maskcon.training.setup import encoder_facts, settle
from maskcon.transforms import ViewPolicy
from maskcon.transforms import compiled as engines
from tests.miniature import TINY, miniature
from tests.training import runs as training_runs
from tests.training.runs import Stopping, Told, ends_as_if_never_stopped, weights

pytest.importorskip("numba")

PHOTOS = {"query_view": "photos-strong", "key_view": "photos-weak"}


fit = partial(training_runs.fit, **PHOTOS)


def losses(folder) -> list[float]:
    return [event["loss"] for event in read_journal(folder / "journal.jsonl") if event["kind"] == "step"]


@pytest.fixture
def without_numba(monkeypatch) -> None:
    monkeypatch.setattr(engines, "find_spec", lambda name: None)


@pytest.fixture(params=[1, 2])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def engine(folder) -> str:
    return json.loads((folder / "environment.json").read_text())["view_engine"]


def test_a_run_records_what_makes_its_views(tmp_path):
    assert engine(fit(tmp_path / "run", epochs=1).folder) == "compiled"


def test_without_numba_a_run_takes_the_tensor_code(tmp_path, without_numba):
    assert engine(fit(tmp_path / "run", epochs=1).folder) == "tensor"


def stopped(folder) -> None:
    with pytest.raises(KeyboardInterrupt):
        fit(folder, announce=Stopping())


def test_a_run_begun_compiled_is_refused_without_numba_and_names_the_extra(tmp_path, monkeypatch):
    stopped(tmp_path / "run")
    monkeypatch.setattr(engines, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"maskcon\[compiled\]"):
        fit(tmp_path / "run")


def test_a_run_begun_with_tensor_code_keeps_it_when_numba_has_come(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(engines, "find_spec", lambda name: None)
        stopped(tmp_path / "run")
        fit(tmp_path / "whole")
    fit(tmp_path / "run")
    assert engine(tmp_path / "run") == "tensor"
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")


def test_both_engines_train_alike_but_for_rounding(tmp_path, threads, monkeypatch):
    compiled = fit(tmp_path / "compiled").folder
    monkeypatch.setattr(engines, "find_spec", lambda name: None)
    tensor = fit(tmp_path / "tensor").folder
    assert losses(tensor) == pytest.approx(losses(compiled), rel=1e-2)
    assert losses(tensor)[0] == pytest.approx(losses(compiled)[0], rel=1e-5)
    assert weights(tensor) != weights(compiled)  # so the engine has an effect


def test_a_compiled_run_resumes_to_the_same_bytes(tmp_path, threads):
    assert ends_as_if_never_stopped(tmp_path, **PHOTOS)
    assert engine(tmp_path / "stopped") == "compiled"


@pytest.mark.parametrize(("device", "compiled"), [("cpu", True), ("cuda", False), ("mps", False)])
def test_compiled_loops_are_for_the_cpu_and_other_devices_have_tensor_code(device, compiled):
    config = settle(
        resolve("miniature", method="maskcon", preset="cpu", overrides=TINY | PHOTOS).config, miniature()
    )
    facts = encoder_facts(config, miniature().train)
    *policies, normalise = setup._views(config, "compiled", facts, torch.device(device))
    assert [isinstance(policy, ViewPolicy) for policy in policies] == [not compiled] * 2
    assert (normalise == facts.normalise) is not compiled


def test_a_frozen_run_has_tensor_code():
    resolved = resolve("miniature", method="maskcon", preset="cpu", overrides=PHOTOS | {"freeze": True})
    assert setup.view_engine(settle(resolved.config, miniature())) == "tensor"


def test_loops_that_take_long_to_compile_are_announced_and_ready_ones_are_not(tmp_path, monkeypatch):
    told = Told()
    fit(tmp_path / "ready", epochs=1, announce=told)
    assert not any("compiling" in message for message in told.messages)

    def slowly(name):
        time.sleep(0.2)

    monkeypatch.setattr(setup, "SILENT_SECONDS", 0.05)
    monkeypatch.setattr(setup.transforms, "compiled_policy", slowly)
    config = fit(tmp_path / "ready", epochs=1).config
    messages: list[str] = []
    setup.load_views(config, "compiled", torch.device("cpu"), messages.append)
    assert len(messages) == 1
    assert "compiling" in messages[0]
    setup.load_views(config, "compiled", torch.device("cuda"), messages.append)
    setup.load_views(config, "tensor", torch.device("cpu"), messages.append)
    assert len(messages) == 1
