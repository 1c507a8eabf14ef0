"""What the training loop tells the outside: journal, terminal, TensorBoard; and what it asks: how good is it now?"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from maskcon._utils.errors import MaskconError, TrainingError, UsageError
from maskcon.config.settings import Machine, RunConfig
from maskcon.data import Dataset, ImageSet, absolute
from maskcon.models.encoder_file import EncoderFacts, encoder_bytes
from maskcon.retrieval.encode import embed, raw_pixels
from maskcon.retrieval.recall import effective_rank, recall_at_k
from maskcon.training.checkpoint import write_atomically
from maskcon.training.feed import Feed
from maskcon.training.frozen import FrozenFeatures
from maskcon.training.journal import Journal
from maskcon.training.learner import Learner
from maskcon.training.loop import Progress
from maskcon.training.run_folder import ENCODER, JOURNAL, RESULT, json_bytes

KS = (1, 2, 5, 10)
FLOOR_SIZE = 32  # raw pixels are compared at this size at most


class Announcer:
    """Told what happens, in the first process. This one says nothing; override what you want to hear of."""

    def begin(self, config: RunConfig, data: Dataset, done: int, total: int) -> None: ...

    def on_choice(self, line: str) -> None: ...

    def loading(self, done: int, total: int) -> None: ...

    def outlining(self, done: int, total: int) -> None: ...

    def extracting(self, done: int, total: int, views_per_second: float) -> None: ...

    def on_step(self, done: int, total: int, images: int, loss: float, seconds: float) -> None: ...

    def measuring(self, done: int, total: int) -> None: ...

    def on_evaluation(self, values: Mapping[str, Any]) -> None: ...

    def on_message(self, text: str) -> None: ...

    def end(self) -> None: ...


class Observer:
    """The loop's hooks: evaluation, journal, messages, and the files at the end."""

    def __init__(
        self,
        learner: Learner,
        test: ImageSet,
        facts: EncoderFacts,
        announce: Announcer,
        folder: Path | None,
        machine: Machine,
        bound: Callable[[], Mapping[str, float | None] | None] | None = None,
        frozen: FrozenFeatures | None = None,
    ) -> None:
        self.learner, self.facts, self.announce, self.folder = learner, facts, announce, folder
        self.bound = bound  # d_z of the bank as it is now, where the run keeps track of it
        self.frozen = frozen  # what a frozen backbone saw, where only a head is trained
        self.feed = Feed(test.images, test.sizes, learner.processes.device)
        self.labels = torch.from_numpy(test.finest).to(learner.processes.device)
        self.label_kind = "coarse" if test.fine is None else "fine"
        self.journal = None if folder is None else Journal(folder / JOURNAL)
        self.board = _tensorboard(folder) if machine.tensorboard and folder is not None else None

    def record(self, kind: str, values: Mapping[str, Any]) -> None:
        if self.journal is not None:
            with _clear_when_full(self.journal):
                self.journal.write(kind, **values)
        if self.board is not None:
            _to_board(self.board, kind, values)
        if kind == "evaluation":
            self.announce.on_evaluation(values)

    def position(self) -> int:
        if self.journal is None:
            return 0
        with _clear_when_full(self.journal):
            return self.journal.position()

    def rewind(self, position: int) -> None:
        """Forget what the journal says after the moment of a checkpoint."""
        if self.journal is not None:
            self.journal.rewind(position)

    def on_step(self, done: int, total: int, images: int, loss: float, seconds: float) -> None:
        self.announce.on_step(done, total, images, loss, seconds)

    def measuring(self, done: int, total: int) -> None:
        self.announce.measuring(done, total)

    def on_message(self, text: str) -> None:
        self.announce.on_message(text)

    def evaluate(self, should_stop: Callable[[], bool]) -> Mapping[str, Any] | None:
        """Recall of the query encoder's features; each process embeds its share, the first one scores."""
        processes = self.learner.processes
        rows = torch.arange(len(self.labels))
        features = self._embed(rows[processes.share(len(rows))], should_stop)
        if features is None:
            return None
        features = processes.gather(features, len(rows))
        if not bool(features.isfinite().all()):  # the last update broke the weights; all processes see it
            raise TrainingError(
                "the encoder's features became NaN or Inf; lower --set learning_rate or raise --set warmup_epochs"
            )
        if not processes.is_first:
            return {}
        recall = recall_at_k(features, self.labels, KS)
        values: dict[str, Any] = {
            "recall": by_name(recall),
            "effective_rank": round(effective_rank(features), 3),
        }
        if self.bound is not None:  # every process holds the same bank: the first one's is enough
            values["d_z"] = self.bound()
        return values

    def _embed(self, rows: Tensor, should_stop: Callable[[], bool]) -> Tensor | None:
        """The query encoder's features of these test images; None when asked to stop half-way."""
        backbone = self.learner.model.backbone
        if self.frozen is not None:
            return self.frozen.embed_test(backbone, rows)
        return embed(
            backbone,
            self.feed,
            rows,
            size=self.facts.image_size,
            resize=self.facts.test_resize,
            normalise=self.facts.normalise,
            should_stop=should_stop,
        )

    def finish(self, config: RunConfig, data: Dataset, progress: Progress) -> None:
        """Write the encoder, then the result: a folder with a result is a finished run."""
        if self.folder is None:
            return
        backbone = self.learner.model.backbone
        encoder = backbone if self.frozen is None else self.frozen.encoder(backbone)
        write_atomically(self.folder / ENCODER, encoder_bytes(encoder, self.facts))
        floor = raw_pixels(
            self.feed,
            torch.arange(len(self.labels)),
            size=min(FLOOR_SIZE, self.facts.image_size),
            resize=self.facts.test_resize,
        )
        last = progress.evaluations[-1]
        result = {
            "recall": last["recall"],
            "raw_pixels": by_name(recall_at_k(floor, self.labels, KS)),
            "seconds": round(progress.seconds, 3),
            "cpu_seconds": round(progress.cpu_seconds, 3),
            "images_per_second": round(progress.images / max(progress.seconds, 1e-9), 1),
            "method": config.method,
            "w": config.w,
            "tau": config.tau if math.isfinite(config.tau) else "inf",
            "coarse_weight": config.coarse_weight,
            "seed": config.seed,
            "source": config.source,
            "source_path": absolute(config.source),  # to be found again from another directory
            "preset": config.preset,
            "epochs": config.epochs,
            "labels": self.learner.method.labels,  # seen in training
            "scored_by": self.label_kind,
            "evaluated_on": config.evaluate_on,
            "train_images": len(data.train),
            "test_images": len(data.test),
            "effective_rank": last["effective_rank"],
            "processes": self.learner.processes.count,
            "data": data.fingerprint(),
        }
        if self.frozen is not None:  # what the head is there to improve on
            result["frozen_backbone"] = by_name(recall_at_k(self.frozen.whole_test, self.labels, KS))
        self.record("end", {"step": progress.step, "recall": result["recall"]})
        write_atomically(self.folder / RESULT, json_bytes(result))

    def close(self) -> None:
        if self.journal is not None:
            self.journal.close()
        if self.board is not None:
            self.board.close()
        self.feed.close()


@contextmanager
def _clear_when_full(journal: Journal) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise MaskconError(
            f"could not write {journal.path}: {error.strerror or error}; the last checkpoint is intact. "
            "Make room and run the same command again"
        ) from error


def by_name(recall: Mapping[int, float]) -> dict[str, float]:
    return {str(k): round(share, 6) for k, share in recall.items()}


def check_tensorboard() -> None:
    """Refuse a run that wants TensorBoard files where nothing can write them."""
    if find_spec("tensorboard") is None:
        raise UsageError("--tensorboard needs an extra: pip install 'maskcon[tensorboard]'")


def _tensorboard(folder: Path) -> Any:
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder / "tensorboard"))


def _to_board(board: Any, kind: str, values: Mapping[str, Any]) -> None:
    step = values.get("step")
    if kind == "step":
        for name in ("loss", "learning_rate", "w", "gradient_norm"):
            board.add_scalar(f"train/{name}", values[name], step)
    elif kind == "evaluation":
        for k, share in values["recall"].items():
            board.add_scalar(f"recall/{k}", share, step)
        for name, distance in (values.get("d_z") or {}).items():
            board.add_scalar(f"d_z/{name}", math.nan if distance is None else distance, step)
