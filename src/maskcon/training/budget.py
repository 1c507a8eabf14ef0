"""`--budget`: time a few steps on this machine and choose the epochs that fit."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import cycle, islice
from statistics import fmean
from typing import Any

import numpy as np
from torch import Tensor

from maskcon._utils.errors import UsageError
from maskcon._utils.text import duration
from maskcon.config.choices import Choice, budget_choice, epoch_settings
from maskcon.config.settings import RunConfig
from maskcon.data import ImageSet
from maskcon.methods.registry import method_named
from maskcon.models.encoder_file import EncoderFacts
from maskcon.training.callbacks import Callback
from maskcon.training.evaluation import Evaluator
from maskcon.training.frozen.features import FrozenFeatures
from maskcon.training.setup import Assembly
from maskcon.training.state import Learner
from maskcon.training.step import Place, TrainingData, encode_keys, train_step

WARM_STEPS = 2  # not timed
MOST_STEPS = 12
MOST_SECONDS = 4.0  # of steps, and of keys; a slow machine does fewer
KEY_BATCHES = 3
SCORED_IMAGES = 128
END_SECONDS = 1.0  # checkpoints, files, exit
# When to refuse a budget that embedding alone exceeds: at once if it takes several budgets, else after a tenth of it,
# because the first seconds are slow and embedded images are kept.
HOPELESS_AFTER, HOPELESS_BUDGETS = 5.0, 4.0
JUDGED_AFTER_SHARE = 0.1  # of the budget


@dataclass(frozen=True)
class Pace:
    """Seconds of the parts of a run on this machine.

    Attributes:
        key: per image, to fill the bank at the start.
        step: per image of a training step.
        evaluation: per evaluation on the test images; the raw-pixel floor at the end costs as much.
    """

    key: float
    step: float
    evaluation: float


@dataclass(frozen=True)
class Budget:
    """Time for a run, from the start of its command.

    Attributes:
        begun: `time.monotonic` at that start.
        given: settings of the user, which are kept.
    """

    seconds: float
    begun: float
    given: Mapping[str, Any]


def epochs_within(budget: Budget, assembly: Assembly, callback: Callback) -> Choice:
    """Measure the pace of this run and choose as many epochs as fit the budget."""
    config, begun = assembly.config, budget.begun
    ends = begun + budget.seconds
    started = time.monotonic()
    if started >= ends:
        raise UsageError(
            f"--budget {duration(budget.seconds)} is too short: reading the images alone took "
            f"{duration(started - begun)}; allow more time"
        )

    def on_extract(done: int, total: int, views_per_second: float) -> None:
        callback.on_extract(done, total, views_per_second)
        now = time.monotonic()
        watched = now - started
        if watched > HOPELESS_AFTER and views_per_second > 0:
            needed = (total - done) / views_per_second
            allowed = 1.0 if watched > JUDGED_AFTER_SHARE * budget.seconds else HOPELESS_BUDGETS
            if now + needed > begun + allowed * budget.seconds:
                raise UsageError(
                    f"--budget {duration(budget.seconds)} is too short: embedding the images once takes about "
                    f"{duration(now - begun + needed)}; give twice that, or fewer images (--set train_limit=N)"
                )

    assembly.prepare(callback, on_extract)
    callback.on_message("measuring a few steps, to see how many epochs fit into the budget")
    pace = measure_pace(assembly)

    def seconds_of(epochs: int) -> float:
        planned = config.model_copy(update=epoch_settings(epochs, budget.given, config))
        return run_seconds(pace, planned, len(assembly.data.train))

    choice = budget_choice(
        budget.seconds,
        ends - time.monotonic(),
        seconds_of,
        budget.given,
        config,
    )
    callback.on_choice(choice.line)
    return choice


def run_seconds(pace: Pace, config: RunConfig, images: int) -> float:
    """Return the expected seconds of a run over `images` training images.

    >>> from maskcon.config.resolution import resolve
    >>> config = resolve("embedded", method="selfcon", preset="cpu", overrides={"epochs": 2}).config
    >>> run_seconds(Pace(key=0.0, step=0.001, evaluation=2.0), config, 1000)
    7.0
    """
    primed = min(config.bank_size, images) if method_named(config.method).contrasts else 0
    every = config.eval_every_epochs
    between = (config.epochs - 1) // every + (config.eval_when == "before") if every else 0
    evaluations = between + 1 + 1  # the last one, and the raw-pixel floor
    return (
        primed * pace.key + config.epochs * images * pace.step + evaluations * pace.evaluation + END_SECONDS
    )


def measure_pace(assembly: Assembly) -> Pace:
    """Time a little of each part of this run; the learner is restored afterwards."""
    learner, config, data = assembly.learner, assembly.config, assembly.training_data
    assert data is not None  # prepared before
    with learner.restored():
        return Pace(
            key=_key_seconds(learner, data, config),
            step=_step_seconds(learner, data, config),
            evaluation=_evaluation_seconds(learner, assembly.data.test, assembly.facts, assembly.features),
        )


def _key_seconds(learner: Learner, data: TrainingData, config: RunConfig) -> float:
    """Time the encoding of keys, per image. Fills the bank with repeated keys."""
    bank = learner.bank
    if bank is None:
        return 0.0
    place = Place(epoch=0, step=0, w=0.0, learning_rate=0.0)

    def encode(rows: Tensor) -> Tensor:
        keys = encode_keys(learner, data, config, place, rows)
        on_device = rows.to(keys.projection.device)
        while len(bank) < bank.size:
            bank.enqueue(keys.projection, data.labels[on_device], data.index[on_device], keys.compared)
        return keys.projection.sum()

    return _seconds_per_image(encode, data, config, count=KEY_BATCHES, warm=1)


def _step_seconds(learner: Learner, data: TrainingData, config: RunConfig) -> float:
    """Time training steps of the second epoch, per image.

    In the first epoch, keys are encoded that running means replace later.
    """
    place = Place(epoch=1, step=0, w=config.w, learning_rate=0.0)
    return _seconds_per_image(
        lambda rows: train_step(learner, data, config, place, rows).loss,
        data,
        config,
        count=WARM_STEPS + MOST_STEPS,
        warm=WARM_STEPS,
    )


def _seconds_per_image(
    work: Callable[[Tensor], Tensor], data: TrainingData, config: RunConfig, *, count: int, warm: int
) -> float:
    """Time some batches, without the first few, which warm up."""
    batches = data.batches(config, epoch=0)
    seconds: list[float] = []
    start = time.perf_counter()
    for rows in islice(cycle(batches), count):
        before = time.perf_counter()
        work(rows).item()  # waits for a GPU
        seconds.append((time.perf_counter() - before) / len(rows))
        if len(seconds) > 1 and time.perf_counter() - start > MOST_SECONDS:
            break
    return fmean(seconds[warm:] or seconds[-1:])


def _evaluation_seconds(
    learner: Learner, test: ImageSet, facts: EncoderFacts, cached: FrozenFeatures | None
) -> float:
    """Time an evaluation, on a part of the test images if they must be embedded."""
    part = test
    if cached is None and len(test) > SCORED_IMAGES:
        part = test.subset(np.linspace(0, len(test) - 1, SCORED_IMAGES).astype(np.int64))
    evaluator = Evaluator(learner, part, facts, frozen=cached)
    start = time.perf_counter()
    evaluator.evaluate(lambda: False)
    seconds = time.perf_counter() - start
    evaluator.close()
    return seconds * len(test) / max(1, len(part))
