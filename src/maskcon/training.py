"""Puts the parts together for one run: data, views, learner, loop, observer."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Callable
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from maskcon import sources, views
from maskcon.config import Machine, RunConfig
from maskcon.encoder.backbones import LARGEST_SMALL_IMAGE, has_own_shape
from maskcon.engine.batches import SMALLEST_SHARE
from maskcon.engine.checkpoint import load_latest, write_atomically
from maskcon.engine.distributed import Processes, start
from maskcon.engine.feed import Feed
from maskcon.engine.learner import Learner, build_learner
from maskcon.engine.lock import FolderLock
from maskcon.engine.loop import Progress, Training
from maskcon.engine.step import TrainingData
from maskcon.errors import DataError, MaskconError, UsageError
from maskcon.evaluate.bound import Recipe, SampleLabels, bank_distances
from maskcon.methods import Method, method_named
from maskcon.model_file import EncoderFacts
from maskcon.observer import Announcer, Observer, check_tensorboard
from maskcon.run_folder import (
    CHECKPOINTS,
    CONFIG,
    ENVIRONMENT,
    is_finished,
    json_bytes,
    make_writable,
    read_result,
)
from maskcon.sources import Dataset, ImageSet
from maskcon.sources.canvas import canvas_for
from maskcon.sources.statistics import channel_statistics

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CHECKPOINT_FORMAT = 2


def load_dataset(
    source: str | Path | Dataset, config: RunConfig, machine: Machine, announce: Announcer
) -> Dataset:
    """The data a config asks for: loaded, cut to its limits, with the validation part as test if wanted."""
    if isinstance(source, Dataset):
        data = source
    else:
        # Small images come in the size they have; larger pictures are shrunk to what the views need.
        wanted = config.image_size if sources.takes_image_size(str(source)) else None
        data = sources.load(
            str(source),
            root=None if machine.data_root is None else Path(machine.data_root),
            variant=config.source_variant,
            image_size=None if wanted is None else canvas_for(wanted),
            download=machine.download,
            strict=machine.strict,
            progress=announce.loading,
        )
    if config.evaluate_on == "validation":
        # at once: a large set that is memory-mapped is never copied whole for the sake of a few images
        return data.hold_out(config.validation_fraction, train=config.train_limit, test=config.test_limit)
    return data.limited(config.train_limit, config.test_limit)


def settle(config: RunConfig, data: Dataset) -> RunConfig:
    """Fill in what was left open from the data, and refuse what cannot work on it."""
    method = method_named(config.method)
    if method.labels == "fine" and data.train.fine is None:
        raise DataError(f"{method.title} needs fine labels, and {data.name} has none")
    if config.track_bound and data.train.fine is None:
        raise DataError(
            f"track_bound compares relations with fine labels, and {data.name} has none; leave it off"
        )
    if method.labels != "none" and len(np.unique(data.train.coarse)) < 2:
        raise DataError(
            f"{data.name} has a single coarse class, so its labels say nothing; "
            "add a second class, or train without labels: --method selfcon"
        )
    if len(data.train) < 4 or len(data.test) < 2:
        raise DataError(
            f"{data.name} has {len(data.train)} training and {len(data.test)} test images; at least 4 and 2 are needed"
        )
    canvas = max(data.train.images.shape[2:])
    size = config.image_size or (canvas if canvas <= LARGEST_SMALL_IMAGE else min(224, canvas))
    stem = config.stem
    if has_own_shape(config.backbone) and stem == "fast":
        stem = "auto"  # such a backbone brings its own first layers
    elif (
        stem == "fast"
    ):  # the stem of few operations: a quarter of the small one's pixels in every later layer
        stem = "stride2" if size <= LARGEST_SMALL_IMAGE else "imagenet"
    weak, strong = views.pair(data.family)
    settled = config.changed(
        image_size=size,
        stem=stem,
        query_view=config.query_view or strong.name,
        key_view=config.key_view or weak.name,
    )
    for name in (settled.query_view, settled.key_view):
        views.policy(str(name))  # a misspelt one is refused now
    return settled


def train(config: RunConfig, data: Dataset, folder: Path, machine: Machine, announce: Announcer) -> None:
    """Train to the end of the config, from the newest checkpoint in the folder if there is one."""
    if is_finished(folder, config):
        refuse_other_data(folder, read_result(folder).get("data"), data.fingerprint())
        announce.on_message(f"{folder} holds this run, finished; delete the folder to train it again")
        return
    method = method_named(config.method)
    if machine.tensorboard:
        check_tensorboard()
    processes = start(
        device=machine.device, devices=machine.devices, precision=config.precision, threads=machine.threads
    )
    facts = encoder_facts(config, data.train)
    labels, names = _labels(method, data)
    learner = build_learner(  # refuses what it cannot build before anything is written
        config,
        method,
        processes,
        in_channels=facts.in_channels,
        classes=len(names),
        download=machine.download,
    )
    training_data = _training_data(config, data, labels, facts, processes)
    with ExitStack() as held:

        def begin() -> None:
            _check_shares(min(config.batch_size, len(data.train)), processes)
            make_writable(folder)
            held.enter_context(FolderLock(folder))
            is_finished(folder, config)  # another run may have begun, and ended, while this one was loading
            write_atomically(folder / CONFIG, config.to_yaml().encode())
            write_atomically(folder / ENVIRONMENT, json_bytes(environment(processes)))

        heard = announce if processes.is_first else Announcer()
        try:
            processes.in_first(begin)
            _carry_out(learner, training_data, config, data, facts, folder, machine, heard)
        except MaskconError:
            if processes.is_first:
                raise
            # All stop together, and the first process says why. Its launcher would kill it if another one ended
            # with a code that is not 0, perhaps before it could.
            raise SystemExit(0) from None


def _check_shares(batch: int, processes: Processes) -> None:
    if batch < SMALLEST_SHARE * processes.count > SMALLEST_SHARE:
        raise UsageError(
            f"a batch of {batch} images is too small for {processes.count} processes, {SMALLEST_SHARE} images each; "
            "raise --set batch_size, or use fewer --devices"
        )


def refuse_other_data(folder: Path, trained_on: str | None, given: str) -> None:
    """Stop where a folder's run saw other data: both are `Dataset.fingerprint`s."""
    if trained_on != given:
        raise UsageError(f"{folder} was trained on other data than given now; choose another --out")


def _labels(method: Method, data: Dataset) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """What the method is told about the training images: the coarse labels, or the fine ones for SupFINE."""
    if method.labels == "fine" and data.train.fine is not None and data.fine_names is not None:
        return data.train.fine, data.fine_names
    return data.train.coarse, data.coarse_names


def _training_data(
    config: RunConfig, data: Dataset, labels: NDArray[np.int64], facts: EncoderFacts, processes: Processes
) -> TrainingData:
    return TrainingData(
        feed=Feed(data.train.images, data.train.sizes, processes.device),
        labels=torch.from_numpy(labels).to(processes.device),
        index=torch.from_numpy(data.train.index).to(processes.device),
        query_view=views.policy(str(config.query_view)),
        key_view=views.policy(str(config.key_view)),
        normalise=facts.normalise,
        image_size=facts.image_size,
    )


def _carry_out(
    learner: Learner,
    training_data: TrainingData,
    config: RunConfig,
    data: Dataset,
    facts: EncoderFacts,
    folder: Path,
    machine: Machine,
    announce: Announcer,
) -> None:
    processes = learner.processes
    identity = {"format": CHECKPOINT_FORMAT, "data": data.fingerprint()}
    observer = Observer(
        learner,
        data.test,
        facts,
        announce,
        folder if processes.is_first else None,
        machine,
        _bound(config, learner, data),
    )
    training = Training(learner, training_data, config, machine, observer, folder / CHECKPOINTS, identity)
    try:
        _resume(training, observer)
        for note in (*data.notes, *learner.notes):
            announce.on_message(note)
        if config.track_bound and learner.bank is None:
            announce.on_message(
                f"{learner.method.title} has no relations, so its journal holds no d_z (track_bound)"
            )
        announce.begin(config, data, training.progress.step, training.total_steps)
        progress = training.run()
        processes.in_first(lambda: observer.finish(config, data, progress))
    finally:
        announce.end()
        observer.close()
        training_data.feed.close()


def _bound(
    config: RunConfig, learner: Learner, data: Dataset
) -> Callable[[], dict[str, float | None] | None] | None:
    """What gives d_z of the bank: of this run's method ("run"), and of others on the same keys to compare with.

    w is the one set, also while the relation warm-up still holds it down. None for a bank that is still empty.
    """
    bank, device = learner.bank, learner.processes.device
    if not config.track_bound or bank is None or data.train.fine is None:
        return None
    labels = SampleLabels(
        *(
            torch.from_numpy(part).to(device)
            for part in (data.train.index, data.train.coarse, data.train.fine)
        )
    )
    others = {name: method_named(name) for name in ("selfcon", "supcon", "grafit", "maskcon")}
    compared = {"run": learner.method, **others}
    recipes = {name: Recipe(method, config.w, config.tau) for name, method in compared.items()}

    def distances() -> dict[str, float | None] | None:
        if len(bank) == 0:
            return None
        found = bank_distances(
            recipes, bank.keys, bank.index, labels, exclude_own_keys=config.exclude_own_keys
        )
        # JSON has no NaN, and keys that are NaN must not keep a checkpoint from being written
        return {name: round(d_z, 6) if math.isfinite(d_z) else None for name, d_z in found.items()}

    return distances


def _resume(training: Training, observer: Observer) -> None:
    """Take up the newest whole checkpoint, if any; the same one in every process."""
    folder, processes = training.checkpoints.parent, training.learner.processes
    checkpoint, notes = load_latest(training.checkpoints)
    for note in notes:
        observer.on_message(note)
    step = -1 if checkpoint is None else checkpoint.values["step"]
    # Here all wait for each other: nobody goes on, and writes, before all have read.
    found = processes.gather(torch.tensor([step], device=processes.device), processes.count).tolist()
    if len(set(found)) > 1:
        raise MaskconError(
            f"the processes do not share {folder}: they find checkpoints of steps {found} there"
        )
    if checkpoint is None:
        observer.rewind(0)
        observer.record(
            "start",
            {"step": 0, "total_steps": training.total_steps, "settings": training.config.model_dump()},
        )
        return
    values = checkpoint.values
    if values.get("format") != training.identity["format"]:
        raise UsageError(f"{folder} was begun by another version of maskcon; choose another --out")
    refuse_other_data(folder, values.get("data"), training.identity["data"])
    if values["epoch_steps"] != training.epoch_steps:
        raise UsageError(
            f"{folder} was begun with {values['epoch_steps']} steps an epoch, and {processes.count} processes make it "
            f"{training.epoch_steps}; use as many --devices as before, or choose another --out"
        )
    training.learner.load(checkpoint)
    training.progress = Progress(**values["progress"])
    observer.rewind(values["journal_position"])
    observer.on_message(f"going on from step {training.progress.step} of {training.total_steps}")


def encoder_facts(config: RunConfig, train: ImageSet) -> EncoderFacts:
    """How images reach the encoder in this run."""
    channels = train.images.shape[1]
    if config.normalise == "imagenet":
        mean, std = IMAGENET_MEAN, IMAGENET_STD
        if channels == 1:  # the mean over channels, as a grey photograph would have it
            mean, std = (sum(mean) / 3,), (sum(std) / 3,)  # type: ignore[assignment]
    else:
        mean, std = channel_statistics(train)  # type: ignore[assignment]
    return EncoderFacts(
        backbone=config.backbone,
        width=config.width,
        stem="auto" if config.stem == "fast" else config.stem,  # fast is settled before this
        norm=config.norm,
        in_channels=channels,
        image_size=int(config.image_size or 0),
        test_resize=config.test_resize,
        mean=tuple(mean),
        std=tuple(std),
    )


def environment(processes: Processes) -> dict[str, Any]:
    """Versions and machine facts, kept with a run."""
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
