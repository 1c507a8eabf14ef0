"""Evaluation of a run: recall@K on the test images, and the result at the end."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from maskcon._utils.errors import TrainingError
from maskcon.config.settings import RunConfig
from maskcon.data import Dataset, ImageSet, absolute
from maskcon.models.encoder_file import EncoderFacts, encoder_bytes
from maskcon.retrieval.encode import Feed, embed, raw_pixels
from maskcon.retrieval.recall import recall_at_k
from maskcon.training.checkpoint import AFTER_NAN, Progress
from maskcon.training.frozen.features import FrozenFeatures
from maskcon.training.state import Learner

KS = (1, 2, 5, 10)
FLOOR_SIZE = 32  # raw pixels are compared at this size at most


class Evaluator:
    """Score the query encoder on the test images.

    Args:
        frozen: features of the frozen backbone, for runs that train only a head.
    """

    def __init__(
        self,
        learner: Learner,
        test: ImageSet,
        facts: EncoderFacts,
        frozen: FrozenFeatures | None = None,
    ) -> None:
        self.learner, self.facts, self.frozen = learner, facts, frozen
        self.feed = Feed(test.images, test.sizes, learner.processes.device)
        self.labels = torch.from_numpy(test.finest).to(learner.processes.device)
        self.label_kind = "coarse" if test.fine is None else "fine"

    def evaluate(self, should_stop: Callable[[], bool]) -> Mapping[str, Any] | None:
        """Compute recall@K of the query encoder on the test images.

        Each process embeds its share and the first one scores; returns None when stopped half-way.
        """
        processes = self.learner.processes
        rows = torch.arange(len(self.labels))
        features = self._embed(rows[processes.share(len(rows))], should_stop)
        if features is None:
            return None
        features = processes.gather(features, len(rows))
        if not bool(features.isfinite().all()):  # the last update broke the weights; all processes see it
            raise TrainingError(
                "the encoder's features became NaN or Inf. Rerun the same command with a lower --set learning_rate: "
                f"{AFTER_NAN}"
            )
        if not processes.is_first:
            return {}
        return {"recall": by_name(recall_at_k(features, self.labels, KS))}

    def _embed(self, rows: Tensor, should_stop: Callable[[], bool]) -> Tensor | None:
        """Embed test images by row number; return None when stopped half-way."""
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

    def encoder_bytes(self) -> bytes:
        """Return the content of encoder.safetensors."""
        backbone = self.learner.model.backbone
        encoder = backbone if self.frozen is None else self.frozen.encoder(backbone)
        return encoder_bytes(encoder, self.facts)

    def result(self, config: RunConfig, data: Dataset, progress: Progress) -> dict[str, Any]:
        """Return the content of result.json."""
        floor = raw_pixels(
            self.feed,
            torch.arange(len(self.labels)),
            size=min(FLOOR_SIZE, self.facts.image_size),
            resize=self.facts.test_resize,
        )
        result = {
            "recall": progress.evaluations[-1]["recall"],
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
            "labels": self.learner.method.labels,  # used in training
            "scored_by": self.label_kind,
            "evaluated_on": config.evaluate_on,
            "train_images": len(data.train),
            "test_images": len(data.test),
            "processes": self.learner.processes.count,
            "data": data.fingerprint(),
        }
        if self.frozen is not None:  # what the head improves on
            result["frozen_backbone"] = by_name(recall_at_k(self.frozen.whole_test, self.labels, KS))
        return result

    def close(self) -> None:
        self.feed.close()


def by_name(recall: Mapping[int, float]) -> dict[str, float]:
    """Round recall@K and turn K into a JSON key."""
    return {str(k): round(share, 6) for k, share in recall.items()}
