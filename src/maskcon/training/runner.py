"""Run one training: build the learner, resume, train, write results."""

from __future__ import annotations

import os
import platform
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from traceback import clear_frames
from typing import Any, Literal

import torch

from maskcon._utils.errors import MaskconError, TrainingError, UsageError
from maskcon._utils.files import SUMS, checksums, write_atomically
from maskcon._utils.locks import FolderLock
from maskcon.config.choices import Choice
from maskcon.config.settings import Machine, RunConfig
from maskcon.data import Dataset
from maskcon.data.known_names import KnownNames, known_names
from maskcon.training.automatic import choices_bytes
from maskcon.training.budget import Budget, epochs_within
from maskcon.training.callbacks import Callback
from maskcon.training.distributed import Processes, start
from maskcon.training.evaluation import Evaluator
from maskcon.training.journal import FAILED, Journal, check_tensorboard
from maskcon.training.loop import Training
from maskcon.training.resume import compare_by_hog, machine_facts, refuse_others, resume
from maskcon.training.run_folder import (
    CHECKPOINTS,
    CHOICES,
    CONFIG,
    ENCODER,
    ENVIRONMENT,
    JOURNAL,
    RESULT,
    is_finished,
    json_bytes,
    make_writable,
    read_result,
)
from maskcon.training.schedule import SMALLEST_SHARE
from maskcon.training.setup import Assembly, assemble

LOST_PEER = ("gloo", "NCCL", "Connection closed", "Connection reset")  # in errors of torch.distributed


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
    """Train to the end of the config, from the newest checkpoint in the folder if there is one.

    Args:
        choices: kept beside the settings that they explain.
        budget: chooses the number of epochs, by the pace of some steps.
        test_resize: in place of the protocol's.
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
    heard = callback if processes.is_first else Callback()
    # refuses what it cannot build before anything is written
    assembly = assemble(
        config, data, processes, download=machine.download, test_resize=test_resize, names=names
    )
    failure: MaskconError | None = None
    try:
        _train_together(assembly, folder, machine, heard, choices, budget, identity)
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
        # All stop together, and the first process says why. Its launcher would kill it if another one ended with a
        # code that is not 0, perhaps before it could.
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
    with ExitStack() as held:
        held.callback(assembly.close)
        if budget is not None:
            choice = epochs_within(budget, assembly, callback)
            choices = (*choices, choice)
            assembly.config = assembly.config.changed(**choice.settings)
        config = assembly.config

        def begin() -> None:
            _check_shares(min(config.batch_size, len(data.train)), processes)
            make_writable(folder)
            held.enter_context(FolderLock(folder))
            is_finished(folder, config)  # another run may have begun, and ended, while this one was loading
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
        held.callback(journal.close)
        evaluator = Evaluator(assembly.learner, data.test, assembly.facts, assembly.features)
        held.callback(evaluator.close)
        held.callback(callback.on_end)
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
    """Write the encoder, checksums, then the result: a folder with a result is a finished run."""
    contents = {ENCODER: training.evaluator.encoder_bytes()}
    write_atomically(folder / ENCODER, contents[ENCODER])
    result = training.evaluator.result(training.config, data, training.progress)
    if training.progress.changes:  # the run is not that of its settings and machine alone
        result["changes"] = training.progress.changes
    if names is not None:
        result |= {"names": names.fingerprint(), "named_images": names.images, "named_kinds": names.count}
        result["train_images"] = len(training.data)  # without junk
    training.journal.write("end", step=training.progress.step, recall=result["recall"])
    contents[RESULT] = json_bytes(result)
    beside = (CONFIG, CHOICES, ENVIRONMENT, JOURNAL)
    contents |= {name: (folder / name).read_bytes() for name in beside if (folder / name).exists()}
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
