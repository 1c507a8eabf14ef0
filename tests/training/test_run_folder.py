"""What may happen to a run and its folder: stops, other settings, other data, a second run, a full disk, NaN."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import pytest

from maskcon._utils.errors import CorruptFileError, MaskconError, TrainingError, UsageError
from maskcon._utils.files import FolderLock
from maskcon.config.settings import Machine
from maskcon.training import journal, loop, run_folder, runner, step
from maskcon.training.checkpoint import load_latest, save_checkpoint
from maskcon.training.journal import read_journal
from maskcon.training.signals import Interrupted
from tests.miniature import miniature
from tests.training.runs import OFTEN, Stopping, Told, fit, weights

SELDOM = Machine(checkpoint_every_seconds=1e9, device="cpu")


@pytest.mark.parametrize("method", ["maskcon", "coins", "supce"])
def test_a_run_broken_off_at_every_step_ends_with_the_same_bytes(tmp_path, monkeypatch, method):
    monkeypatch.setattr(loop, "PATIENCE_STEPS", 0)  # so that a warning, too, must come out the same
    fit(tmp_path / "whole", method=method)

    class BrokenError(Exception):
        pass

    real = loop.train_step
    for stop_after in range(1, 10):  # one more step each time, then the power goes
        done = []

        def step_or_die(*arguments, stop_after=stop_after, done=done):
            if len(done) == 1:
                raise BrokenError
            done.append(1)
            return real(*arguments)

        monkeypatch.setattr(loop, "train_step", step_or_die)
        try:
            fit(tmp_path / "broken", method=method)
            break
        except BrokenError:
            continue
    monkeypatch.setattr(loop, "train_step", real)
    fit(tmp_path / "broken", method=method)
    assert weights(tmp_path / "broken") == weights(tmp_path / "whole")
    whole, broken = (
        [
            {k: v for k, v in event.items() if not k.endswith("seconds")}
            for event in read_journal(tmp_path / name / "journal.jsonl")
        ]
        for name in ("whole", "broken")
    )
    assert whole == broken


def test_a_finished_run_is_not_trained_again(tmp_path):
    fit(tmp_path / "run")
    told = Told()
    before = (tmp_path / "run" / "result.json").stat().st_mtime_ns
    fit(tmp_path / "run", callback=told)
    assert "finished" in told.messages[0]
    assert (tmp_path / "run" / "result.json").stat().st_mtime_ns == before


def test_other_settings_in_the_same_folder_are_refused_with_the_difference(tmp_path):
    fit(tmp_path / "run")
    numbers = {
        "tau": 0.3,
        "w": 0.4,
        "epochs": 3,
        "width": 4,
        "seed": 9,
        "learning_rate": 0.01,
        "bank_size": 32,
    }
    for key, value in {
        **numbers,
        "backbone": "resnet10",
        "method": "coins",
        "query_view": "embedded-weak",
    }.items():
        change = {key: value}
        with pytest.raises(UsageError, match=f"other settings.*{key}"):
            fit(tmp_path / "run", **change)


def test_other_data_in_the_same_folder_is_refused(tmp_path, monkeypatch):
    def stop(*_):
        raise RuntimeError("stopped")

    monkeypatch.setattr(runner.Training, "_evaluate", stop)
    with pytest.raises(RuntimeError, match="stopped"):
        fit(tmp_path / "run")
    monkeypatch.undo()
    with pytest.raises(UsageError, match="other data"):
        fit(tmp_path / "run", data=miniature(seed=5))
    fit(tmp_path / "run")
    with pytest.raises(UsageError, match="other data"):  # nor is a finished run taken for one on these data
        fit(tmp_path / "run", data=miniature(seed=5))


def break_off(folder, monkeypatch, **changes) -> None:
    """Leave a run after its first step."""
    real = loop.train_step
    done = []

    def once(*arguments):
        if done:
            raise RuntimeError("broken off")
        done.append(1)
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "train_step", once)
        with pytest.raises(RuntimeError, match="broken off"):
            fit(folder, **changes)


def test_a_checkpoint_of_another_version_or_another_number_of_steps_is_refused(tmp_path, monkeypatch):
    break_off(tmp_path / "run", monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(runner, "CHECKPOINT_FORMAT", 0)
        with pytest.raises(UsageError, match="incompatible version"):
            fit(tmp_path / "run")
    with monkeypatch.context() as patch:  # as another number of processes can make it
        patch.setattr(loop, "steps_in_epoch", lambda *_, **__: 4)
        with pytest.raises(UsageError, match=r"5 steps per epoch.* 4 now; .*--devices"):
            fit(tmp_path / "run")
    fit(tmp_path / "run")


def test_a_run_that_began_elsewhere_while_this_one_was_loading_is_not_taken_over(tmp_path, monkeypatch):
    fit(tmp_path / "other", tau=0.3)
    config = (tmp_path / "other" / "config.yaml").read_text()

    def make_and_fill(folder):
        folder.mkdir()
        (folder / "config.yaml").write_text(config)

    monkeypatch.setattr(runner, "make_writable", make_and_fill)
    with pytest.raises(UsageError, match=r"other settings.*tau"):
        fit(tmp_path / "run")
    assert (tmp_path / "run" / "config.yaml").read_text() == config


def test_a_run_stopped_before_its_first_step_keeps_its_primed_bank(tmp_path, monkeypatch):
    # 70 images in batches of 16, the last 6 left out: the primed bank holds less than the set
    changes = {"data": miniature(70), "protocol": "reference", "bank_size": 200}
    with monkeypatch.context() as patch:
        patch.setattr(loop.StopRequest, "made", True)
        with pytest.raises(Interrupted, match="step 0 of"):
            fit(tmp_path / "stopped", **changes)
    fit(tmp_path / "stopped", **changes)
    fit(tmp_path / "whole", **changes)
    assert weights(tmp_path / "stopped") == weights(tmp_path / "whole")


def test_a_lost_encoder_of_a_finished_run_is_written_again(tmp_path):
    fit(tmp_path / "run")
    before = weights(tmp_path / "run")
    (tmp_path / "run" / "encoder.safetensors").unlink()
    fit(tmp_path / "run")
    assert weights(tmp_path / "run") == before


def test_a_full_disk_at_the_journal_says_what_to_do_and_loses_nothing(tmp_path, monkeypatch):
    real = journal.write_all

    def full(file, data):
        if b'"step": 3,' in data:
            raise OSError(28, "No space left on device")
        real(file, data)

    with monkeypatch.context() as patch:
        patch.setattr(journal, "write_all", full)
        with pytest.raises(MaskconError, match=r"journal.*No space left.*checkpoint is intact"):
            fit(tmp_path / "run")
    fit(tmp_path / "run")
    fit(tmp_path / "whole")
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")


def test_a_folder_of_other_things_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(UsageError, match="not empty"):
        fit(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_second_run_in_the_same_folder_is_refused_while_the_first_one_lives(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    with FolderLock(folder), pytest.raises(UsageError, match="another run"):
        fit(folder)
    fit(folder)  # the lock went with its holder


def test_a_folder_that_cannot_be_locked_is_not_called_busy(tmp_path, monkeypatch):
    def unsupported(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("maskcon._utils.files.fcntl.flock", unsupported)
    with pytest.raises(UsageError, match=r"cannot be locked \(Operation not supported\)"):
        fit(tmp_path / "run")


def test_an_output_folder_that_cannot_be_made_fails_before_training(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="choose another --out"):
        fit(tmp_path / "file" / "run")


def poison(monkeypatch, at: int) -> list[int]:
    """Make the loss of the so-maniest step NaN; the list grows by one at every step."""
    real = step.relation_loss
    calls: list[int] = []

    def poisoned(*arguments):
        calls.append(1)
        loss = real(*arguments)
        return loss * math.nan if len(calls) == at else loss

    monkeypatch.setattr(step, "relation_loss", poisoned)
    return calls


def test_nan_stops_before_the_update_and_names_the_step(tmp_path, monkeypatch):
    calls = poison(monkeypatch, at=4)
    with pytest.raises(TrainingError, match=r"NaN or Inf at step 4, .*\(loss nan.*learning_rate"):
        fit(tmp_path / "run")
    assert len(calls) == 4
    monkeypatch.undo()
    fit(tmp_path / "run")  # goes on from the last good state
    fit(tmp_path / "whole")
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")


@pytest.mark.parametrize(
    ("machine", "journaled", "noticed"), [(OFTEN, 1, 3), (OFTEN, 1000, 3), (SELDOM, 4, 4), (SELDOM, 1000, 5)]
)
def test_where_looking_would_wait_nan_stops_before_anything_is_read_saved_or_scored(
    tmp_path, monkeypatch, machine, journaled, noticed
):
    monkeypatch.setattr(loop, "JOURNAL_EVERY_STEPS", journaled)
    for module in (step, loop):  # as if the CPU were a device that works ahead
        monkeypatch.setattr(module, "READ_AT_ONCE", ())
    calls = poison(monkeypatch, at=3)
    with pytest.raises(TrainingError, match=r"NaN or Inf at step 3, .*\(loss nan.*learning_rate"):
        fit(tmp_path / "run", machine=machine)  # an evaluation comes after 5 steps
    assert len(calls) == noticed
    monkeypatch.undo()
    for event in read_journal(tmp_path / "run" / "journal.jsonl"):
        assert event["kind"] == "failed" or event.get("step", 0) < 3
    fit(tmp_path / "run")
    fit(tmp_path / "whole")
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")


def test_a_device_that_works_ahead_is_asked_after_a_hundred_steps_at_the_latest(tmp_path, monkeypatch):
    for module in (step, loop):
        monkeypatch.setattr(module, "READ_AT_ONCE", ())
    monkeypatch.setattr(loop, "MOST_UNREAD_STEPS", 3)
    monkeypatch.setattr(loop, "JOURNAL_EVERY_STEPS", 1000)
    calls = poison(monkeypatch, at=2)
    with pytest.raises(TrainingError, match="at step 2,"):
        fit(tmp_path / "run", machine=SELDOM)
    assert len(calls) == 3


def test_a_stopped_run_of_an_earlier_version_is_not_resumed(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path / "run", callback=Stopping())
    config = tmp_path / "run" / "config.yaml"
    now = config.read_text()
    config.write_text(f"{now}keys: means\n")
    with pytest.raises(UsageError, match=r"earlier version, which had the setting keys; .*another --out"):
        fit(tmp_path / "run")
    config.write_text(f"{now}schedule: cosine\n")  # as it follows from the optimizer
    fit(tmp_path / "run")
    fit(tmp_path / "whole")
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")


def test_the_advice_after_a_nan_stop_works_in_the_same_folder(tmp_path, monkeypatch):
    poison(monkeypatch, at=4)
    with pytest.raises(
        TrainingError, match=r"lower --set learning_rate.* continues from the last checkpoint"
    ):
        fit(tmp_path / "run", learning_rate=0.1)
    monkeypatch.undo()
    with pytest.raises(UsageError, match=r"other settings.*tau"):
        fit(tmp_path / "run", learning_rate=0.05, tau=0.7)
    told = Told()
    run = fit(tmp_path / "run", learning_rate=0.05, callback=told)
    assert "resuming from step 3 of 10" in told.messages
    assert "resumed with learning_rate=0.05 in place of learning_rate=0.1" in told.messages
    assert run.result["changes"] == [{"step": 3, "learning_rate": [0.1, 0.05]}]
    assert run.config.learning_rate == 0.05
    assert [e["kind"] for e in read_journal(run.folder / "journal.jsonl")].count("changed") == 1


def test_the_advice_where_the_last_checkpoint_has_diverged_works_in_the_same_folder(tmp_path):
    changes = {"method": "supce", "epochs": 6, "warmup_epochs": 0.0}
    for rate in (1000.0, 0.01):
        with pytest.raises(
            TrainingError, match=r"If it stops again, .*delete the folder checkpoints of the run"
        ):
            fit(tmp_path / "run", learning_rate=rate, **changes)
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    fit(tmp_path / "run", learning_rate=0.01, **changes)
    fit(tmp_path / "whole", learning_rate=0.01, **changes)
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")


def test_a_run_that_is_fine_keeps_its_rate(tmp_path, monkeypatch):
    break_off(tmp_path / "run", monkeypatch, learning_rate=0.1)
    with pytest.raises(UsageError, match=r"other settings.*learning_rate"):
        fit(tmp_path / "run", learning_rate=0.05)


@pytest.mark.parametrize("name", ["query.backbone.layer1.0.bn1.running_var", "key.backbone.conv1.weight"])
def test_weights_and_buffers_that_became_nan_are_never_saved(tmp_path, monkeypatch, name):
    real = loop.train_step

    def poisoned(learner, *arguments):
        report = real(learner, *arguments)
        if arguments[2].step == 3:
            learner.state()[0][name].view(-1)[0] = math.inf
        return report

    with monkeypatch.context() as patch:
        patch.setattr(loop, "train_step", poisoned)
        with pytest.raises(TrainingError, match=rf"{name} became NaN or Inf by step 4, and was not saved"):
            fit(tmp_path / "run")
    checkpoint, notes = load_latest(tmp_path / "run" / "checkpoints")
    assert (checkpoint.values["step"], notes) == (3, [])
    assert all(bool(value.isfinite().all()) for value in checkpoint.tensors.values())
    fit(tmp_path / "run")
    fit(tmp_path / "whole")
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")


def test_a_run_whose_checkpoints_are_all_damaged_starts_over_and_says_so(tmp_path, monkeypatch):
    break_off(tmp_path / "run", monkeypatch)
    for state in (tmp_path / "run" / "checkpoints").glob("*/state.safetensors"):
        state.write_bytes(state.read_bytes() + b" ")
    told = Told()
    fit(tmp_path / "run", callback=told)
    assert any("the run starts over" in text for text in told.messages)
    assert not any("resuming" in text for text in told.messages)
    fit(tmp_path / "whole")
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")


def test_a_checkpoint_of_another_learner_is_one_clear_line(tmp_path, monkeypatch):
    break_off(tmp_path / "run", monkeypatch)
    checkpoint, _ = load_latest(tmp_path / "run" / "checkpoints")
    fewer = {name: value for name, value in checkpoint.tensors.items() if name != "bank._keys"}
    save_checkpoint(tmp_path / "run" / "checkpoints", 1, fewer, checkpoint.values)  # sealed anew
    with pytest.raises(CorruptFileError, match=r"does not fit this run \(.*_keys.*\); delete it and rerun"):
        fit(tmp_path / "run")


@pytest.mark.parametrize("lost", ["progress", "epoch_steps", "journal_position", "learner"])
def test_a_sealed_checkpoint_without_some_values_is_one_clear_line(tmp_path, monkeypatch, lost):
    break_off(tmp_path / "run", monkeypatch)
    checkpoint, _ = load_latest(tmp_path / "run" / "checkpoints")
    values = {key: value for key, value in checkpoint.values.items() if key != lost}
    save_checkpoint(tmp_path / "run" / "checkpoints", 1, checkpoint.tensors, values)
    with pytest.raises(CorruptFileError, match="delete it and rerun the same command"):
        fit(tmp_path / "run")


def test_checkpoints_that_cannot_be_written_are_noticed_before_the_first_step(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "train_step", None)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text("")
    with pytest.raises(CorruptFileError, match="not a settings file"):
        fit(tmp_path / "run")
    (tmp_path / "run" / "config.yaml").unlink()
    real = run_folder.tempfile.TemporaryFile

    def refused(*, dir):
        if dir.name == "checkpoints":
            raise OSError(13, "Permission denied")
        return real(dir=dir)

    monkeypatch.setattr(run_folder.tempfile, "TemporaryFile", refused)
    with pytest.raises(UsageError, match=r"cannot write to .*checkpoints: Permission denied"):
        fit(tmp_path / "run")


def test_a_lock_file_that_is_no_file_is_refused_by_its_name(tmp_path):
    (tmp_path / ".lock").mkdir()
    with pytest.raises(UsageError, match=r"cannot open .*\.lock: Is a directory; remove it"):
        fit(tmp_path)


@pytest.mark.parametrize("name", ["environment.json", "result.json", "config.yaml"])
@pytest.mark.parametrize("content", [b"{", b"[]", b"7", b"\xff", b'{"recall": {}}', b"[" * 100_000])
def test_damaged_files_of_a_run_are_one_clear_line(tmp_path, name, content, monkeypatch):
    if name == "environment.json":
        break_off(tmp_path, monkeypatch)
    else:
        fit(tmp_path, epochs=1)
    (tmp_path / name).write_bytes(content)
    if name == "environment.json" and content.startswith(b"{") and len(content) > 1:
        return  # an object without what is looked for is as good as none
    with pytest.raises((CorruptFileError, UsageError), match=rf"{name}"):
        fit(tmp_path, epochs=1)


def test_a_run_file_that_cannot_be_read_is_not_taken_for_damaged(tmp_path, monkeypatch):
    fit(tmp_path, epochs=1)
    real = Path.read_text

    def fail(self, *arguments, **given):
        if self.name == "result.json":
            raise OSError(5, "Input/output error")
        return real(self, *arguments, **given)

    monkeypatch.setattr(Path, "read_text", fail)
    with pytest.raises(UsageError, match=r"cannot read .*result\.json: Input/output error"):
        fit(tmp_path, epochs=1)
