"""`--budget`: time a few steps of the run on this machine, and choose the epochs that fit."""

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

WARM_STEPS = 2  # left out: caches fill, memory is taken
MOST_STEPS = 12
MOST_SECONDS = 4.0  # of steps, and of keys; a slow machine does fewer
KEY_BATCHES = 3
SCORED_IMAGES = 128
END_SECONDS = 1.0  # checkpoints, files, exit; the raw-pixel floor costs about a scoring
# When it is said that embedding does not fit a budget. The first seconds are slow beside other programs, and what is
# embedded is kept, so a near miss is watched for some time; what would take several budgets is refused at once.
HOPELESS_AFTER, HOPELESS_BUDGETS = 5.0, 4.0
JUDGED_AFTER_SHARE = 0.1  # of the budget


@dataclass(frozen=True)
class Pace:
    """Seconds on this machine, with as many processes side by side as will be running."""

    start: float  # from the start of a process to its first step: imports, data, net
    key: float  # to prime the bank, an image
    contrast: float  # a training step with contrast, an image
    classify: float  # a training step without, an image
    evaluation: float  # one scoring of the test images
    end: float  # after the last scoring: the raw-pixel floor, files, exit


@dataclass(frozen=True)
class Budget:
    """Time for a run, from the start of its command.

    begun: `time.monotonic` at that start; given: settings of the user, which stay
    """

    seconds: float
    begun: float
    given: Mapping[str, Any]


def epochs_within(budget: Budget, assembly: Assembly, callback: Callback) -> Choice:
    """Measure the pace of this run and choose the number of epochs that fits the budget."""
    config, begun = assembly.config, budget.begun
    ends = begun + budget.seconds
    started = time.monotonic()
    if started >= ends:
        raise UsageError(
            f"--budget {duration(budget.seconds)} is too short: reading the images alone took "
            f"{duration(started - begun)}; give more, or read them once beforehand with `maskcon pack`"
        )

    def extracting(done: int, total: int, views_per_second: float) -> None:
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

    assembly.prepare(callback, extracting)
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
    """Expected seconds of one run over `images` training images.

    >>> pace = Pace(start=4, key=0.0, contrast=0.001, classify=0.0005, evaluation=1, end=1)
    >>> from maskcon.config.resolution import resolve
    >>> config = resolve("embedded", method="selfcon", preset="cpu", overrides={"epochs": 2}).config
    >>> run_seconds(pace, config, 1000)
    8.0
    """
    contrasts = method_named(config.method).contrasts
    each = pace.contrast if contrasts else pace.classify
    primed = min(config.bank_size, images) if contrasts else 0
    training = config.epochs * images * each
    every = config.eval_every_epochs
    first = config.eval_when == "before"  # a scoring ahead of the first epoch
    between = (config.epochs - 1) // every + first if every else 0
    return pace.start + primed * pace.key + training + (1 + between) * pace.evaluation + pace.end


def measure_pace(assembly: Assembly) -> Pace:
    """Seconds of the parts of this run, by doing a little of each; the learner is put back to its start."""
    learner, config, data = assembly.learner, assembly.config, assembly.training_data
    assert data is not None  # prepared before
    with learner.put_back():
        key = _key_seconds(learner, data, config)
        step = _step_seconds(learner, data, config)
        scoring = _scoring_seconds(learner, assembly.data.test, assembly.facts, assembly.features)
    end = END_SECONDS + scoring
    return Pace(start=0.0, key=key, contrast=step, classify=step, evaluation=scoring, end=end)


def _key_seconds(learner: Learner, data: TrainingData, config: RunConfig) -> float:
    """To encode the key of an image. Fills the bank, with the same keys again and again."""
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
    """To train on an image, after the first epoch: there, keys may have to be encoded that means then replace."""
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
    """Time some batches; the first few warm up and are left out."""
    batches = data.batches(config, epoch=0)
    spent: list[float] = []
    begun = time.perf_counter()
    for rows in islice(cycle(batches), count):
        before = time.perf_counter()
        work(rows).item()  # waits for a GPU
        spent.append((time.perf_counter() - before) / len(rows))
        if len(spent) > 1 and time.perf_counter() - begun > MOST_SECONDS:
            break
    return _typical(spent, warm)


def _typical(spent: list[float], warm: int) -> float:
    """The mean without the first few, which warm up; the last alone where there are no others.

    >>> _typical([9.0, 5.0, 1.0, 3.0], 2), _typical([9.0, 5.0], 2)
    (2.0, 5.0)
    """
    return fmean(spent[warm:] or spent[-1:])


def _scoring_seconds(
    learner: Learner, test: ImageSet, facts: EncoderFacts, cached: FrozenFeatures | None
) -> float:
    """One scoring of the test images; of many images that are to be embedded, by a part of them."""
    part = test
    if cached is None and len(test) > SCORED_IMAGES:
        part = test.subset(np.linspace(0, len(test) - 1, SCORED_IMAGES).astype(np.int64))
    evaluator = Evaluator(learner, part, facts, frozen=cached)
    begun = time.perf_counter()
    evaluator.evaluate(lambda: False)
    spent = time.perf_counter() - begun
    evaluator.close()
    return spent * len(test) / max(1, len(part))
