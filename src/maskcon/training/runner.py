"""Run one training: restore the newest checkpoint, train, write the results."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from traceback import clear_frames
from typing import Any, Literal

import torch
import yaml

from maskcon._utils.errors import CorruptFileError, MaskconError, TrainingError, UsageError
from maskcon._utils.files import SUMS, FolderLock, checksums, write_atomically
from maskcon.config.choices import Choice
from maskcon.config.settings import Machine, RunConfig
from maskcon.data import Dataset
from maskcon.data.known_names import KnownNames, known_names
from maskcon.training.automatic import choices_bytes
from maskcon.training.budget import Budget, epochs_within
from maskcon.training.callbacks import Callback
from maskcon.training.checkpoint import CHECKPOINT_FORMAT, Checkpoint, Progress, load_latest
from maskcon.training.distributed import Processes, start
from maskcon.training.evaluation import Evaluator
from maskcon.training.journal import FAILED, Journal, check_tensorboard
from maskcon.training.loop import Training
from maskcon.training.run_folder import (
    CHECKPOINTS,
    CHOICES,
    CONFIG,
    ENCODER,
    ENVIRONMENT,
    JOURNAL,
    RESULT,
    SUMS_IN,
    is_finished,
    json_bytes,
    make_writable,
    read_result,
)
from maskcon.training.schedule import SMALLEST_SHARE
from maskcon.training.setup import Assembly, assemble

LOST_PEER = ("gloo", "NCCL", "Connection closed", "Connection reset")  # in errors of torch.distributed
# What must be the same when a run is resumed or opened again, and what to say if it is not.
SAME = {
    "data": "holds a run on other data; choose another --out",
    "names": "was started with other names of finer kinds: the file of --fine has changed since; put it back, or "
    "choose another --out",
    "features": "was started on other features of the same images: the weights of the frozen backbone, its views or "
    "what computes them (torch, or onnxruntime of the extra `onnx`) have changed since; put them back, or choose "
    "another --out",
}


def train(
    config: RunConfig,
    data: Dataset,
    folder: Path,
    machine: Machine,
    callback: Callback,
    choices: tuple[Choice, ...] = (),
    budget: Budget | None = None,
    *,
    test_resize: Literal["shorter", "both"] | None = None,
) -> None:
    """Train to the end of the config, from the newest checkpoint if there is one.

    Args:
        choices: kept beside the settings that they explain.
        budget: chooses the number of epochs, by the pace of some steps.
        test_resize: replaces the protocol's.
    """
    names = None if config.fine is None else known_names(Path(config.fine), data)
    identity = {"data": data.fingerprint(), "names": None if names is None else names.fingerprint()}
    if is_finished(folder, config):
        refuse_others(folder, read_result(folder), identity)
        callback.on_message(f"{folder} holds this run, finished; delete the folder to train it again")
        return
    if machine.tensorboard:
        check_tensorboard()
    processes = start(
        device=machine.device, devices=machine.devices, precision=config.precision, threads=machine.threads
    )
    if not processes.is_first:
        callback = Callback()
    # raises for what cannot be built before anything is written
    assembly = assemble(
        config, data, processes, download=machine.download, test_resize=test_resize, names=names
    )
    failure: MaskconError | None = None
    try:
        _train_together(assembly, folder, machine, callback, choices, budget, identity)
    except MaskconError as error:
        clear_frames(error.__traceback__)  # they hold what hangs on the peers, as this function does
        failure = error
    except RuntimeError as error:
        if processes.count == 1 or not any(name in str(error) for name in LOST_PEER):
            raise
        if not processes.is_first:
            raise SystemExit(1) from None
        raise MaskconError(
            f"another process of this run ended ({str(error).splitlines()[0]}); rerun the same command to resume"
        ) from error
    del assembly
    processes.close()  # not after another error: a peer may still wait for this process, and must be killed
    if failure is not None:
        if processes.is_first:
            raise failure
        # All stop together, and the first process reports why. If another one ended with a code other than 0, the
        # launcher might kill the first before it could.
        raise SystemExit(0)


def _train_together(
    assembly: Assembly,
    folder: Path,
    machine: Machine,
    callback: Callback,
    choices: tuple[Choice, ...],
    budget: Budget | None,
    identity: dict[str, str | None],
) -> None:
    processes, data, names = assembly.processes, assembly.data, assembly.names
    with ExitStack() as stack:
        stack.callback(assembly.close)
        if budget is not None:
            choice = epochs_within(budget, assembly, callback)
            choices = (*choices, choice)
            assembly.config = assembly.config.changed(**choice.settings)
        config = assembly.config

        def begin() -> None:
            _check_shares(min(config.batch_size, len(data.train)), processes)
            make_writable(folder)
            stack.enter_context(FolderLock(folder))
            is_finished(folder, config)  # raises if another run has taken the folder meanwhile
            if choices:
                spent = None if budget is None else budget.seconds
                write_atomically(folder / CHOICES, choices_bytes(choices, spent))
            write_atomically(folder / CONFIG, config.to_yaml().encode())
            make_writable(folder / CHECKPOINTS)
            write_atomically(folder / ENVIRONMENT, json_bytes(environment(processes)))

        processes.in_first(begin)
        training_data = assembly.prepare(callback)
        identity["features"] = None if assembly.features is None else assembly.features.key
        journal = Journal(folder / JOURNAL if processes.is_first else None, tensorboard=machine.tensorboard)
        stack.callback(journal.close)
        evaluator = Evaluator(assembly.learner, data.test, assembly.facts, assembly.features)
        stack.callback(evaluator.close)
        stack.callback(callback.on_end)
        training = Training(
            assembly.learner,
            training_data,
            config,
            machine,
            callback,
            journal,
            evaluator,
            folder / CHECKPOINTS,
            identity,
            machine_facts(processes),
        )
        resume(training)
        if training_data.hog is not None:
            compare_by_hog(training, *assembly.cost)
        for note in (*data.notes, *(() if names is None else names.notes), *assembly.learner.notes):
            callback.on_message(note)
        callback.on_begin(config, data, training.progress.step, training.total_steps)
        try:
            training.run()
        except TrainingError as error:
            journal.write(FAILED, step=training.progress.step, message=str(error))
            raise
        processes.in_first(lambda: _finish(training, data, folder, names))


def _check_shares(batch: int, processes: Processes) -> None:
    if batch < SMALLEST_SHARE * processes.count > SMALLEST_SHARE:
        raise UsageError(
            f"a batch of {batch} images is too small for {processes.count} processes, {SMALLEST_SHARE} images each; "
            "raise --set batch_size, or use fewer --devices"
        )


def _finish(training: Training, data: Dataset, folder: Path, names: KnownNames | None) -> None:
    """Write encoder and checksums, then the result, which marks a run as finished."""
    contents = {ENCODER: training.evaluator.encoder_bytes()}
    write_atomically(folder / ENCODER, contents[ENCODER])
    result = training.evaluator.result(training.config, data, training.progress)
    if training.progress.changes:  # settings and machine of today do not explain the result alone
        result["changes"] = training.progress.changes
    if names is not None:
        result |= {"names": names.fingerprint(), "named_images": names.images, "named_kinds": names.count}
        result["train_images"] = len(training.data)  # without junk
    training.journal.write("end", step=training.progress.step, recall=result["recall"])
    training.journal.position()  # on the disk, before its checksum is
    contents[RESULT] = json_bytes({**result, SUMS_IN: SUMS})
    others = (CONFIG, CHOICES, ENVIRONMENT, JOURNAL)
    contents |= {name: (folder / name).read_bytes() for name in others if (folder / name).exists()}
    write_atomically(folder / SUMS, checksums(contents))
    write_atomically(folder / RESULT, contents[RESULT])


def environment(processes: Processes) -> dict[str, Any]:
    """Return versions and machine facts, kept with a run."""
    packages = ("maskcon", "torch", "lightning-fabric", "numpy", "pillow", "safetensors")
    device = processes.device
    return {
        "packages": {name: version(name) for name in packages},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "processes": processes.count,
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
    }


def refuse_others(folder: Path, found: Mapping[str, Any], now: Mapping[str, str | None]) -> None:
    """Raise if the run in a folder differs in one of `SAME`.

    found: its result or checkpoint.
    """
    for key, value in now.items():
        if found.get(key) != value:
            raise UsageError(f"{folder} {SAME[key]}")


def compare_by_hog(training: Training, seconds: float, cpu_seconds: float) -> None:
    """Count the cost of the HOG features, and refresh them in a restored bank.

    Their axes may differ from those that filled the bank: on another machine or device, or with other threads.
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
    steps = processes.gather(torch.tensor([step], device=processes.device), processes.count).tolist()
    if len(set(steps)) > 1:
        raise MaskconError(
            f"the processes do not share {folder}: they find checkpoints of steps {steps} there"
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
    """Report and record changes of settings and machine since the checkpoint."""
    changes: dict[str, list[Any]] = {}
    machine = before.get("machine", training.machine_facts)
    for key, now in training.machine_facts.items():
        if machine.get(key) != now:
            changes[key] = [machine.get(key), now]
    if changes:
        batchnorm = ", and in the BatchNorm statistics of each process" if "processes" in changes else ""
        training.callback.on_message(
            f"started with {_listed(changes, 0)}, resumed with {_listed(changes, 1)}: from here on, results may "
            f"differ by rounding from those of an uninterrupted run{batchnorm}"
        )
    if "settings" in before:
        settings = training.config.model_dump()
        then = {**settings, **yaml.safe_load(before["settings"])}
        new_settings = {key: [then[key], now] for key, now in settings.items() if then[key] != now}
        if new_settings:
            training.callback.on_message(
                f"resumed with {_listed(new_settings, 1)} in place of {_listed(new_settings, 0)}"
            )
        changes |= new_settings
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
