"""Resume a run: restore its newest checkpoint, refuse another run's, report what differs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import yaml

from maskcon._utils.errors import CorruptFileError, MaskconError, UsageError
from maskcon.training.checkpoint import CHECKPOINT_FORMAT, Checkpoint, Progress, load_latest
from maskcon.training.distributed import Processes
from maskcon.training.loop import Training

# What must be the same when a run is resumed or opened again, and what to say if it is not.
SAME = {
    "data": "was trained on other data than given now; choose another --out",
    "names": "was started with other names of finer kinds: the file of --fine has changed since; put it back, or "
    "choose another --out",
    "features": "was started on other features of the same images: the weights of the frozen backbone or its views "
    "have changed since; put them back, or choose another --out",
}


def refuse_others(folder: Path, found: Mapping[str, Any], now: Mapping[str, str | None]) -> None:
    """Raise where the run in a folder differs in one of `SAME`; `found` is its result or checkpoint."""
    for key, value in now.items():
        if found.get(key) != value:
            raise UsageError(f"{folder} {SAME[key]}")


def compare_by_hog(training: Training, seconds: float, cpu_seconds: float) -> None:
    """Count the cost of the HOG features as training's, and let a restored bank compare by these.

    Their axes may differ on another machine, device or number of threads than where the bank was filled.
    """
    training.progress.seconds += seconds
    training.progress.cpu_seconds += cpu_seconds
    bank, data = training.learner.bank, training.data
    if bank is not None and data.hog is not None and len(bank) > 0:
        bank.compare_by(data.hog.vectors[data.rows_of(bank.index)])


def resume(training: Training) -> None:
    """Resume from the newest valid checkpoint, if any; the same one in every process."""
    folder, processes = training.checkpoints.parent, training.learner.processes
    checkpoint: Checkpoint | None = None

    def read() -> None:
        nonlocal checkpoint
        checkpoint, notes = load_latest(training.checkpoints, set_aside=True)
        for note in notes:
            training.callback.on_message(note)

    processes.in_first(read)
    if not processes.is_first:
        checkpoint, _ = load_latest(training.checkpoints)
    step = -1 if checkpoint is None else checkpoint.values["step"]
    # A barrier: no process continues, and writes, before all have read.
    found = processes.gather(torch.tensor([step], device=processes.device), processes.count).tolist()
    if len(set(found)) > 1:
        raise MaskconError(
            f"the processes do not share {folder}: they find checkpoints of steps {found} there"
        )
    if checkpoint is None:
        training.journal.rewind(0)
        settings = training.config.model_dump()
        training.journal.write("start", step=0, total_steps=training.total_steps, settings=settings)
        return
    try:
        _restore(training, checkpoint)
    except (KeyError, TypeError, AttributeError) as error:
        raise CorruptFileError(
            f"checkpoint {checkpoint.folder} is not complete ({error}); delete it and rerun the same command"
        ) from error


def _restore(training: Training, checkpoint: Checkpoint) -> None:
    folder, values = training.checkpoints.parent, checkpoint.values
    if values.get("format") != CHECKPOINT_FORMAT:
        raise UsageError(f"{folder} was created by an incompatible version of maskcon; choose another --out")
    refuse_others(folder, values, training.identity)
    if values["epoch_steps"] != training.epoch_steps:
        raise UsageError(
            f"{folder} was started with {values['epoch_steps']} steps per epoch, and has {training.epoch_steps} "
            "now; use as many --devices as before, or choose another --out"
        )
    training.learner.load(checkpoint)
    training.progress = Progress(**values["progress"])
    training.journal.rewind(values["journal_position"])
    training.callback.on_message(f"resuming from step {training.progress.step} of {training.total_steps}")
    _note_changes(training, values)


def _note_changes(training: Training, before: Mapping[str, Any]) -> None:
    """Report and record what differs from the run that wrote the checkpoint: settings, machine."""
    changes: dict[str, list[Any]] = {}
    machine = before.get("machine", training.machine_facts)
    if machine.get("view_engine") == "compiled":  # an earlier version had other code for views
        changes["view_engine"] = ["compiled", "tensor"]
    for key, now in training.machine_facts.items():
        if machine.get(key) != now:
            changes[key] = [machine.get(key), now]
    if changes:
        batchnorm = ", and in the BatchNorm statistics of each process" if "processes" in changes else ""
        training.callback.on_message(
            f"started with {_listed(changes, 0)}, resumed with {_listed(changes, 1)}: from here on the run differs "
            f"from an undisturbed one by rounding{batchnorm}"
        )
    if "settings" in before:
        then = {**training.config.model_dump(), **yaml.safe_load(before["settings"])}
        steered = {
            key: [then[key], now] for key, now in training.config.model_dump().items() if then[key] != now
        }
        if steered:
            training.callback.on_message(
                f"resumed with {_listed(steered, 1)} in place of {_listed(steered, 0)}"
            )
        changes |= steered
    if changes:
        training.progress.changes.append({"step": training.progress.step, **changes})
        training.journal.write("changed", step=training.progress.step, **changes)


def _listed(changes: Mapping[str, list[Any]], side: int) -> str:
    return ", ".join(f"{key}={values[side]}" for key, values in changes.items())


def machine_facts(processes: Processes) -> dict[str, Any]:
    """Return what the rounding of a run depends on."""
    device = processes.device.type
    threads = torch.get_num_threads() if device == "cpu" else None
    return {"device": device, "processes": processes.count, "threads": threads}
