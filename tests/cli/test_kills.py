"""Real processes, really killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from maskcon._utils.errors import UsageError
from maskcon._utils.files import FolderLock
from maskcon.training.journal import read_journal
from tests.cli.commands import LIMITED, SMALL, environment, maskcon, start

LONGER = [*SMALL, "--set", "eval_every_epochs=5", "--checkpoint-every-seconds", "0"]


def train(folder: str, epochs: int = 30) -> list[str]:
    return ["train", "embedded", *LONGER, "--set", f"epochs={epochs}", "--out", folder]


def steps_done(folder: Path) -> int:
    try:
        return sum(event["kind"] == "step" for event in read_journal(folder / "journal.jsonl"))
    except Exception:
        return 0


def wait_for_step(process, folder: Path, more_than: int, timeout: float = 180) -> None:
    end = time.monotonic() + timeout
    while time.monotonic() < end and process.poll() is None:
        if steps_done(folder) > more_than:
            return
        time.sleep(0.02)
    if process.poll() is None:
        process.kill()
        raise AssertionError("no step within the time")


def test_a_run_killed_in_mid_epoch_and_started_again_ends_with_identical_bytes(tmp_path):
    whole = maskcon(*train("whole"), cwd=tmp_path)
    assert whole.returncode == 0, whole.stderr
    for kill in range(2):
        process = start(*train("killed"), cwd=tmp_path)
        wait_for_step(process, tmp_path / "killed", more_than=2 + 3 * kill)
        process.kill()
        assert process.wait() == -signal.SIGKILL
        process.communicate()
    assert not (tmp_path / "killed" / "result.json").exists()
    ended = maskcon(*train("killed"), cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "resuming from step" in ended.stderr
    one, other = ((tmp_path / name / "encoder.safetensors").read_bytes() for name in ("whole", "killed"))
    assert one == other


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_stop_request_saves_and_exits_as_shells_expect(tmp_path, number, code):
    process = start(*train("run"), cwd=tmp_path)
    wait_for_step(process, tmp_path / "run", more_than=1)
    process.send_signal(number)
    _, error = process.communicate(timeout=60)
    assert process.returncode == code
    assert "everything saved" in error
    assert "Traceback" not in error
    ended = maskcon(*train("run"), cwd=tmp_path)
    assert ended.returncode == 0
    assert "resuming from step" in ended.stderr


@pytest.mark.parametrize("lost", [pytest.param("a closed pipe", marks=pytest.mark.slow), "a full device"])
def test_a_run_whose_terminal_is_lost_trains_to_its_end(tmp_path, lost):
    """As with `| head`, and where standard error cannot take another byte."""
    assert maskcon(*train("whole"), cwd=tmp_path).returncode == 0
    reading, writing = os.pipe()
    if lost == "a full device":
        os.close(writing)
        writing = os.open("/dev/full", os.O_WRONLY)
    os.close(reading)
    command = [sys.executable, "-m", "maskcon", *train("lost")]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(), stdout=subprocess.DEVNULL, stderr=writing, check=False
    )
    os.close(writing)
    assert done.returncode == 0
    one, other = ((tmp_path / name / "encoder.safetensors").read_bytes() for name in ("whole", "lost"))
    assert one == other


@pytest.mark.slow
def test_a_hangup_of_the_terminal_saves_unless_it_is_ignored(tmp_path):
    process = start_with_hangup(signal.SIG_DFL, tmp_path)
    wait_for_step(process, tmp_path / "run", more_than=1)
    process.send_signal(signal.SIGHUP)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGHUP
    assert "everything saved" in error
    process = start_with_hangup(signal.SIG_IGN, tmp_path)  # as `nohup` does
    wait_for_step(process, tmp_path / "run", more_than=steps_done(tmp_path / "run"))
    process.send_signal(signal.SIGHUP)
    _, error = process.communicate(timeout=120)
    assert process.returncode == 0, error


def start_with_hangup(handler, tmp_path):
    before = signal.signal(signal.SIGHUP, handler)  # a started program keeps it
    try:
        return start(*train("run"), cwd=tmp_path)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_stopped_comparison_leaves_no_process_behind_and_saves_its_runs(tmp_path):
    arguments = ["compare", "embedded", "--methods", "maskcon,selfcon", "--jobs", "2", "--out", "all"]
    process = start(*arguments, *LIMITED, "--set", "epochs=200", cwd=tmp_path)
    wait_for_step(process, tmp_path / "all" / "maskcon-seed0", more_than=0)
    wait_for_step(process, tmp_path / "all" / "selfcon-seed0", more_than=0)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(children) == 2
    process.terminate()
    _, error = process.communicate(timeout=60)
    assert process.returncode == 143
    assert "every run saved" in error
    assert not any(Path(f"/proc/{child}").exists() for child in children)
    assert any((tmp_path / "all" / "maskcon-seed0" / "checkpoints").iterdir())


def test_the_runs_of_a_killed_comparison_save_and_stop_too(tmp_path):
    arguments = ["compare", "embedded", "--methods", "selfcon", "--out", "all", *LIMITED]
    process = start(*arguments, "--set", "epochs=1000", cwd=tmp_path)
    folder = tmp_path / "all" / "selfcon-seed0"
    wait_for_step(process, folder, more_than=0)
    process.kill()
    process.communicate()
    end = time.monotonic() + 30
    while not (free := lock_is_free(folder)) and time.monotonic() < end:
        time.sleep(0.1)
    assert free  # so that the same command can go on
    assert any((folder / "checkpoints").glob("step-*[1-9]*"))
    assert not (folder / "result.json").exists()


def lock_is_free(folder: Path) -> bool:
    try:
        with FolderLock(folder):
            return True
    except UsageError:
        return False


@pytest.mark.slow
def test_fifty_kills_at_random_moments_lose_nothing(tmp_path):
    chance = random.Random(0)
    assert maskcon(*train("whole"), cwd=tmp_path).returncode == 0
    expected = (tmp_path / "whole" / "encoder.safetensors").read_bytes()
    kills = 0
    round_number = 0
    while kills < 50:
        round_number += 1
        folder = f"killed-{round_number}"
        while not (tmp_path / folder / "result.json").exists():
            process = start(*train(folder), cwd=tmp_path)
            if kills < 50:
                wait_for_step(process, tmp_path / folder, more_than=steps_done(tmp_path / folder))
                time.sleep(chance.random() * 0.3)
                process.kill()
                kills += process.wait() == -signal.SIGKILL
            process.communicate()
        assert (tmp_path / folder / "encoder.safetensors").read_bytes() == expected
    assert kills >= 50


@pytest.mark.slow
def test_twenty_stop_requests_at_random_moments_lose_nothing(tmp_path):
    """In training, evaluation and saving: a run evaluates every 5 epochs and saves after every step."""
    chance = random.Random(1)
    assert maskcon(*train("whole", epochs=200), cwd=tmp_path).returncode == 0
    expected = (tmp_path / "whole" / "encoder.safetensors").read_bytes()
    stops = runs = 0
    while stops < 20:
        folder, runs = f"stopped-{runs}", runs + 1
        while not (tmp_path / folder / "result.json").exists():
            process = start(*train(folder, epochs=200), cwd=tmp_path)
            if stops < 20:
                wait_for_step(process, tmp_path / folder, more_than=steps_done(tmp_path / folder))
                time.sleep(chance.random() * 0.3)
                number, code = ((signal.SIGTERM, 143), (signal.SIGINT, 130))[stops % 2]
                process.send_signal(number)
            _, error = process.communicate(timeout=60)
            assert process.returncode == 0 or (process.returncode == code and "everything saved" in error)
            stops += process.returncode != 0
        assert (tmp_path / folder / "encoder.safetensors").read_bytes() == expected


@pytest.mark.slow
def test_one_of_two_processes_killed_ten_times_stops_both_and_the_run_resumes(tmp_path):
    def arguments(folder: str) -> list[str]:
        return [*train(folder, epochs=100), "--devices", "2"]

    for _ in range(10):
        process = start(*arguments("run"), cwd=tmp_path)
        wait_for_step(process, tmp_path / "run", more_than=steps_done(tmp_path / "run"))
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(children[0]), signal.SIGKILL)
        _, error = process.communicate(timeout=60)
        assert process.returncode == 1
        assert "another process of this run ended" in error
        assert "defect" not in error
    ended = maskcon(*arguments("run"), cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    whole = maskcon(*arguments("whole"), cwd=tmp_path)
    assert whole.returncode == 0
    one, other = ((tmp_path / name / "encoder.safetensors").read_bytes() for name in ("run", "whole"))
    assert one == other
    assert json.loads((tmp_path / "run" / "result.json").read_text())["processes"] == 2
