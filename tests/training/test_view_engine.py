"""The engine of a run's views: settled at the start, kept when the run is resumed."""

from __future__ import annotations

import time
from functools import partial

import pytest
import torch

from maskcon._utils.errors import UsageError
from maskcon.config.resolution import resolve
from maskcon.config.settings import RunConfig
from maskcon.training import setup
from maskcon.training.journal import read_journal
from maskcon.training.setup import encoder_facts, settle
from maskcon.transforms import ViewPolicy
from maskcon.transforms import compiled as engines
from tests.miniature import TINY, miniature
from tests.training import runs as training_runs
from tests.training.runs import Told, ends_as_if_never_stopped, weights

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


def test_a_run_saves_what_auto_was_settled_to(tmp_path):
    assert fit(tmp_path / "run", epochs=1).config.view_engine == "compiled"
    assert RunConfig.from_yaml(tmp_path / "run" / "config.yaml").view_engine == "compiled"


def test_without_numba_a_run_takes_the_tensor_code(tmp_path, without_numba):
    assert fit(tmp_path / "run", epochs=1).config.view_engine == "tensor"


def test_compiled_without_numba_is_refused_with_the_extra_before_anything_is_written(tmp_path, without_numba):
    with pytest.raises(UsageError, match=r"maskcon\[compiled\]"):
        fit(tmp_path / "run", view_engine="compiled")
    assert not any(tmp_path.iterdir())


def test_a_run_begun_with_tensor_code_goes_on_with_it_when_numba_has_come(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(engines, "find_spec", lambda name: None)
        fit(tmp_path / "run")
    told = Told()
    again = fit(tmp_path / "run", announce=told)
    assert again.config.view_engine == "tensor"
    assert "finished" in told.messages[-1]
    with pytest.raises(UsageError, match="view_engine: tensor -> compiled"):
        fit(tmp_path / "run", view_engine="compiled")


def test_settings_of_an_older_version_are_those_of_tensor_code(tmp_path):
    config = settle(
        resolve("miniature", method="maskcon", preset="cpu", overrides=TINY | PHOTOS).config, miniature()
    )
    lines = [line for line in config.to_yaml().splitlines() if not line.startswith("view_engine")]
    (tmp_path / "config.yaml").write_text("\n".join(lines))
    assert RunConfig.from_yaml(tmp_path / "config.yaml").view_engine == "tensor"


def test_both_engines_train_alike_but_for_rounding(tmp_path, threads):
    runs = {engine: fit(tmp_path / engine, view_engine=engine).folder for engine in ("tensor", "compiled")}
    tensor, compiled = (losses(folder) for folder in runs.values())
    assert tensor == pytest.approx(compiled, rel=1e-2)
    assert tensor[0] == pytest.approx(compiled[0], rel=1e-5)
    assert weights(runs["tensor"]) != weights(runs["compiled"])  # so the setting has an effect


def test_a_compiled_run_resumes_to_the_same_bytes(tmp_path, threads):
    assert ends_as_if_never_stopped(tmp_path, view_engine="compiled", **PHOTOS)


@pytest.mark.parametrize(("device", "compiled"), [("cpu", True), ("cuda", False), ("mps", False)])
def test_compiled_loops_are_for_the_cpu_and_other_devices_have_tensor_code(device, compiled):
    config = settle(
        resolve("miniature", method="maskcon", preset="cpu", overrides=TINY | PHOTOS).config, miniature()
    )
    facts = encoder_facts(config, miniature().train)
    *policies, normalise = setup._views(config, facts, torch.device(device))
    assert [isinstance(policy, ViewPolicy) for policy in policies] == [not compiled] * 2
    assert (normalise == facts.normalise) is not compiled


def test_a_frozen_run_is_settled_to_tensor_code():
    resolved = resolve("miniature", method="maskcon", preset="cpu", overrides={"freeze": True})
    assert settle(resolved.config, miniature()).view_engine == "tensor"


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
    setup.load_views(config, torch.device("cpu"), messages.append)
    assert len(messages) == 1
    assert "compiling" in messages[0]
    setup.load_views(config, torch.device("cuda"), messages.append)
    setup.load_views(config.changed(view_engine="tensor"), torch.device("cpu"), messages.append)
    assert len(messages) == 1
