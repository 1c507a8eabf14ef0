"""Training loop: prime the bank, step, evaluate, checkpoint, stop on a signal."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from maskcon._utils.errors import TrainingError
from maskcon.config.settings import Machine, RunConfig
from maskcon.methods.memory_bank import MemoryBank
from maskcon.training.callbacks import Callback
from maskcon.training.checkpoint import CHECKPOINT_FORMAT, Progress, save_checkpoint
from maskcon.training.evaluation import Evaluator
from maskcon.training.journal import Journal
from maskcon.training.schedule import learning_rate, ramped, steps_in_epoch
from maskcon.training.signals import Interrupted, StopRequest
from maskcon.training.state import Learner
from maskcon.training.step import (
    READ_AT_ONCE,
    Place,
    StepReport,
    TrainingData,
    encode_keys,
    key_order,
    not_finite,
    remedy,
    train_step,
)

COLLAPSED_COSINE = 0.9  # mean cosine between the bank's keys above which they are nearly one vector
STUCK_SHARE = 0.98  # of log(1+K); a loss above it shows that nothing was learnt
PATIENCE_EPOCHS, PATIENCE_STEPS = 2, 40  # both must have passed before a run is called collapsed
JOURNAL_EVERY_STEPS = 10  # and the last of every epoch
MOST_UNREAD_STEPS = 100


@dataclass
class Training:
    """A run from its progress to its end."""

    learner: Learner
    data: TrainingData
    config: RunConfig
    machine: Machine
    callback: Callback
    journal: Journal
    evaluator: Evaluator
    checkpoints: Path
    identity: Mapping[str, Any]  # saved in checkpoints: data, names and features of the run
    machine_facts: Mapping[str, Any]  # saved in checkpoints: what rounding depends on
    progress: Progress = field(default_factory=Progress)

    def __post_init__(self) -> None:
        config, processes = self.config, self.learner.processes
        self.epoch_steps = steps_in_epoch(
            len(self.data), config.batch_size, drop_last=config.drop_last, processes=processes.count
        )
        self.total_steps = self.epoch_steps * config.epochs
        self._saved_at = time.monotonic()
        # on the device, and read only when needed: no waiting
        self._contrast = torch.zeros((), device=processes.device)
        self._watch = FiniteWatch(config, processes.device)

    def run(self) -> None:
        """Train from `progress` to the end.

        Raises:
            Interrupted: a stop was requested; everything is saved.
        """
        self._contrast.fill_(self.progress.contrast_sum)
        with StopRequest() as stop:
            bank = self.learner.bank
            if bank is not None and len(bank) == 0:
                self._timed(self._prime, bank)
            batches: list[Tensor] = []
            while True:
                epoch, offset = divmod(self.progress.step, self.epoch_steps)
                if self._evaluation_due(epoch, offset):
                    self._evaluate(stop)
                if self.progress.step >= self.total_steps:
                    break
                if offset == 0:
                    self._timed(self.learner.begin_epoch, self.config, epoch)
                if offset == 0 or not batches:
                    batches = self._batches(epoch)
                self._prefetch(epoch, batches[offset : offset + 2])
                self._timed(self._step, epoch, batches[offset])
                if offset + 1 == len(batches) and self.learner.processes.is_first:
                    self._watch_for_collapse(epoch)
                self._checkpoint_if_due()
                self._stop_if_asked(stop)
            self.save()

    def save(self) -> None:
        """Write a checkpoint in the first process; the others hold the same state."""
        self._watch.check()
        self.learner.processes.in_first(self._write_checkpoint)
        self._saved_at = time.monotonic()

    def _write_checkpoint(self) -> None:
        self.progress.contrast_sum = self._contrast.item()
        tensors, plain = self.learner.state()
        bad = [name for name, value in tensors.items() if not bool(value.isfinite().all())]
        if bad:
            raise TrainingError(
                f"{bad[0]} became NaN or Inf by step {self.progress.step}, and was not saved. {remedy(self.config)}"
            )
        values = {
            "progress": asdict(self.progress),
            "settings": self.config.to_yaml(),
            "machine": dict(self.machine_facts),
            "learner": plain,
            "journal_position": self.journal.position(),
            "epoch_steps": self.epoch_steps,
            "format": CHECKPOINT_FORMAT,
            **self.identity,
        }
        save_checkpoint(self.checkpoints, self.progress.step, tensors, values)

    def _batches(self, epoch: int) -> list[Tensor]:
        return self.data.batches(self.config, epoch, self.learner.processes.count)

    def _prefetch(self, epoch: int, batches: list[Tensor]) -> None:
        """Start reading what this process needs for the next steps."""
        if not self.data.feed.reads_ahead:
            return
        processes = self.learner.processes
        wanted = []
        for ahead, rows in enumerate(batches):
            share = processes.share(len(rows))
            wanted.append(rows[share])
            if self.learner.encodes_keys(epoch):
                order = key_order(processes, self.config, epoch, self.progress.step + ahead, len(rows))
                wanted.append(rows[order[share]])
        self.data.feed.prefetch(*wanted)

    def _prime(self, bank: MemoryBank) -> None:
        """Fill the bank with keys of the initial encoder, for the first step."""
        for number, rows in enumerate(self._batches(epoch=-1)):
            if len(bank) >= min(bank.size, len(self.data)):
                break
            place = Place(epoch=-1, step=number, w=0.0, learning_rate=0.0)
            keys = encode_keys(self.learner, self.data, self.config, place, rows)
            on_device = rows.to(keys.projection.device)
            labels, index = self.data.labels[on_device], self.data.index[on_device]
            bank.enqueue(keys.projection, labels, index, keys.compared)

    def _step(self, epoch: int, rows: Tensor) -> None:
        config, step = self.config, self.progress.step
        w = config.w
        if self.learner.method.ramps_w:
            w = ramped(step, value=w, warmup_steps=round(config.relation_warmup_epochs * self.epoch_steps))
        rate = learning_rate(
            step,
            peak=config.learning_rate,
            total_steps=self.total_steps,
            warmup_steps=round(config.warmup_epochs * self.epoch_steps),
            schedule=config.schedule,
        )
        place = Place(epoch=epoch, step=step, w=w, learning_rate=rate)
        report = train_step(self.learner, self.data, config, place, rows)
        self.progress.step += 1
        self.progress.images += len(rows)
        if report.contrast is not None:
            self._contrast += report.contrast
            self.progress.contrast_steps += 1
        self._watch.add(place, report)
        self._report(report, place, len(rows))

    def _report(self, report: StepReport, place: Place, images: int) -> None:
        done = self.progress.step
        journaled = done % JOURNAL_EVERY_STEPS == 0 or done % self.epoch_steps == 0
        if journaled:
            self._watch.check()
        if not self.learner.processes.is_first:
            return
        if not journaled:
            self.callback.on_step(done, self.total_steps, images, math.nan, self.progress.seconds)
            return
        loss = report.loss.item()
        values = {
            "step": done,
            "epoch": place.epoch + 1,
            "loss": loss,
            "contrast": None if report.contrast is None else report.contrast.item(),
            "cross_entropy": None if report.cross_entropy is None else report.cross_entropy.item(),
            "gradient_norm": report.gradient_norm.item(),
            "learning_rate": place.learning_rate,
            "w": place.w,
            "seconds": round(self.progress.seconds, 3),
        }
        self.journal.write("step", **values)
        self.callback.on_step(done, self.total_steps, images, loss, self.progress.seconds)

    def _evaluation_due(self, epoch: int, offset: int) -> bool:
        if self.progress.evaluated_step == self.progress.step or offset != 0:
            return False
        if self.progress.step >= self.total_steps:
            return True  # DEVIATES: the published code never evaluates its last model
        every = self.config.eval_every_epochs
        if every == 0 or epoch % every:
            return False
        return epoch > 0 or self.config.eval_when == "before"

    def _evaluate(self, stop: StopRequest) -> None:
        self._watch.check()
        alone = self.learner.processes.count == 1  # several processes must all finish what they started
        self.learner.share_statistics()  # one encoder is scored and saved, not one per process
        values = self.evaluator.evaluate(lambda: alone and stop.made)
        if values is None:
            self._stop_if_asked(stop)
            return
        self.progress.evaluated_step = self.progress.step
        entry = {
            "step": self.progress.step,
            "epoch": self.progress.step // self.epoch_steps,
            "seconds": round(self.progress.seconds, 3),
            "cpu_seconds": round(self.progress.cpu_seconds, 3),
            **values,
        }
        self.progress.evaluations.append(entry)
        if self.learner.processes.is_first:
            self.journal.write("evaluation", **entry)
            self.callback.on_evaluation(entry)

    def _watch_for_collapse(self, epoch: int) -> None:
        """Warn once if the keys are nearly one vector and the loss is still log(1+K)."""
        steps, self.progress.contrast_steps = self.progress.contrast_steps, 0
        bank = self.learner.bank
        if bank is None:
            return
        mean = self._contrast.item() / max(1, steps)
        self._contrast.zero_()
        early = epoch + 1 < PATIENCE_EPOCHS or self.progress.step < PATIENCE_STEPS
        if self.progress.warned or early:
            return
        ceiling = math.log(1 + len(bank))
        if mean < STUCK_SHARE * ceiling:
            return
        cosine = bank.keys.mean(dim=0).square().sum().item()  # mean over all pairs of keys
        if cosine < COLLAPSED_COSINE:
            return
        self.progress.warned = True
        text = (
            f"collapse: after {epoch + 1} epochs the loss is {mean:.3f}, log(1+K) is {ceiling:.3f}, and the keys "
            f"are nearly one vector (mean cosine {cosine:.2f}). Raise --set relation_warmup_epochs "
            f"(now {self.config.relation_warmup_epochs:g}), start from pretrained --set weights, or lower --w"
        )
        self.journal.write("warning", step=self.progress.step, message=text)
        self.callback.on_message(text)

    def _checkpoint_if_due(self) -> None:
        due = time.monotonic() - self._saved_at >= self.machine.checkpoint_every_seconds
        if self.learner.processes.count > 1:
            due = self.learner.processes.any(due)
        if due:
            self.save()

    def _stop_if_asked(self, stop: StopRequest) -> None:
        if self.learner.processes.any(stop.made):
            self.save()
            number = stop.signal_number or 15
            raise Interrupted(
                f"stopped at step {self.progress.step} of {self.total_steps}, everything saved; "
                "rerun the same command to resume",
                number,
            )

    def _timed(self, work: Callable[..., None], *arguments: Any) -> None:
        wall, cpu = time.perf_counter(), time.process_time()
        work(*arguments)
        self.progress.seconds += time.perf_counter() - wall
        self.progress.cpu_seconds += time.process_time() - cpu


class FiniteWatch:
    """Find NaN and Inf on GPUs without waiting for the device at every step.

    On a CPU `train_step` raises before the update. On other devices bad weights persist until `check`, so it must
    run before anything is saved or scored.
    """

    def __init__(self, config: RunConfig, device: torch.device) -> None:
        self._config = config
        self._needed = device.type not in READ_AT_ONCE
        self._unread: list[tuple[Place, StepReport]] = []

    def add(self, place: Place, report: StepReport) -> None:
        """Queue a step; waits for the device only when many are unread."""
        if self._needed:
            self._unread.append((place, report))
            if len(self._unread) >= MOST_UNREAD_STEPS:
                self.check()

    def check(self) -> None:
        """Raise the error of the first bad step since the last check, if there was one."""
        if not self._unread:
            return
        finite = torch.stack([report.finite for _, report in self._unread]).tolist()
        for (place, report), good in zip(self._unread, finite, strict=True):
            if not good:
                raise not_finite(self._config, place, report.loss.item())
        self._unread.clear()
