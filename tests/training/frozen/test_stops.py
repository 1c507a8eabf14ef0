"""Frozen runs stopped or killed while embedding or training go on, to the same bytes."""

from __future__ import annotations

import signal

import pytest
import torch
from safetensors.torch import load_file, save_file

from maskcon._utils.errors import UsageError
from maskcon.models import MobileNetV2
from maskcon.training.callbacks import Callback
from maskcon.training.frozen import extract
from maskcon.training.frozen.features import prepare
from maskcon.training.signals import Interrupted
from tests.cli.commands import maskcon as command
from tests.miniature import miniature
from tests.training.frozen.runs import Told, cached, fit


def test_extraction_stopped_anywhere_goes_on_and_ends_with_the_same_bytes(tmp_path, weights, monkeypatch):
    data = miniature(200, 70)
    fit(tmp_path / "whole", weights, data=data, epochs=1)
    whole = cached()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other-cache"))
    make, calls = extract.Extraction.chunk, []

    def breaking(self, number, rows):
        calls.append(number)
        if len(calls) % 2 == 0:
            raise RuntimeError("power cut")
        return make(self, number, rows)

    monkeypatch.setattr(extract.Extraction, "chunk", breaking)
    for _ in range(5):
        with pytest.raises(RuntimeError, match="power cut"):
            fit(tmp_path / "broken", weights, data=data, epochs=1)
    monkeypatch.setattr(extract.Extraction, "chunk", make)
    fit(tmp_path / "broken", weights, data=data, epochs=1)
    assert calls == [0, 1, 1, 2, 2, 3, 3, 0, 0, 1]  # four chunks of train, then test: no chunk was made twice
    assert cached() == whole
    one, other = ((tmp_path / n / "encoder.safetensors").read_bytes() for n in ("whole", "broken"))
    assert one == other


def test_a_stop_request_during_extraction_keeps_what_is_done(tmp_path, weights):
    class Stopping(Told):
        def on_extract(self, done: int, total: int, views_per_second: float) -> None:
            super().on_extract(done, total, views_per_second)
            if done == 256:
                signal.raise_signal(signal.SIGTERM)

    stopped = Stopping()
    with pytest.raises(Interrupted, match=r"256 of 288 views embedded and kept") as caught:
        fit(tmp_path / "run", weights, epochs=1, callback=stopped)
    assert caught.value.exit_code == 143
    assert stopped.ended  # or a bar would stay on the terminal, and its cursor away
    told = Told()
    fit(tmp_path / "run", weights, epochs=1, callback=told)
    assert [done for done, _, _ in told.extracted] == [256, 288, 0, 24]
    assert any(text.startswith("embedded the missing 8 of 72 images, 4 views each") for text in told.messages)


def test_a_process_that_waits_for_the_first_one_stops_with_it_and_does_not_die_alone():
    class Second:
        is_first = False

        def in_first(self, _work) -> None:
            signal.raise_signal(signal.SIGTERM)  # while it waits

        def any(self, flag: bool) -> bool:
            return flag

    nothing: dict[str, None] = dict.fromkeys(("config", "backbone", "data", "facts", "progress", "message"))
    with pytest.raises(Interrupted, match="stopped before training; embedded views are kept") as caught:
        prepare(processes=Second(), **nothing)
    assert caught.value.exit_code == 143


def test_training_stopped_in_mid_epoch_resumes_to_the_same_bytes(tmp_path, weights):
    class Stopping(Callback):
        def on_step(self, done: int, total: int, images: int, loss: float, seconds: float) -> None:
            if done == 3:
                signal.raise_signal(signal.SIGINT)

    fit(tmp_path / "whole", weights)
    with pytest.raises(Interrupted):
        fit(tmp_path / "stopped", weights, callback=Stopping())
    fit(tmp_path / "stopped", weights)
    one, other = ((tmp_path / n / "encoder.safetensors").read_bytes() for n in ("whole", "stopped"))
    assert one == other


@pytest.mark.slow
def test_a_process_killed_while_embedding_goes_on_by_the_same_command(tmp_path, monkeypatch):
    torch.manual_seed(0)
    net = MobileNetV2(in_channels=1)
    save_file(net.state_dict(), tmp_path / "net.safetensors")
    settings = {"weights": tmp_path / "net.safetensors", "train_limit": 80, "test_limit": 40, "epochs": 1,
                "image_size": 32, "batch_size": 16, "bank_size": 40}  # fmt: skip
    pairs = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    arguments = ["train", "embedded", "--freeze", *pairs, "--device", "cpu", "--threads", "1"]
    killed = command(*arguments, "--out", "run", cwd=tmp_path, MASKCON_FAILPOINT="between-features-and-line")
    assert killed.returncode == 99
    assert len(cached()) == 1
    ended = command(*arguments, "--out", "run", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "mobilenet_v2 frozen" in ended.stderr
    assert "backbone alone" in ended.stdout
    after = cached()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    whole = command(*arguments, "--out", "whole", cwd=tmp_path)
    assert whole.returncode == 0, whole.stderr
    assert cached() == after
    one, other = ((tmp_path / n / "encoder.safetensors").read_bytes() for n in ("run", "whole"))
    assert one == other


def test_a_run_goes_on_with_no_other_weights_than_it_was_begun_with(tmp_path, weights):
    class Stopping(Callback):
        def on_step(self, done: int, total: int, images: int, loss: float, seconds: float) -> None:
            if done == 2:
                signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupted):
        fit(tmp_path / "run", weights, callback=Stopping())
    before = load_file(weights)
    save_file({name: value * 2 for name, value in before.items()}, weights)  # the same path, another file
    with pytest.raises(UsageError, match="started on other features of the same images: the weights"):
        fit(tmp_path / "run", weights)
    save_file(before, weights)
    assert fit(tmp_path / "run", weights).recall
