"""Features of several views of every image, by a frozen backbone, into a cache: resumable, in bounded memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maskcon._utils.errors import TrainingError
from maskcon.models import Backbone
from maskcon.models.encoder_file import EncoderFacts
from maskcon.training.feed import Feed
from maskcon.training.frozen.cache import FeatureFile
from maskcon.training.schedule import uniforms
from maskcon.training.signals import Interrupted, StopRequest
from maskcon.transforms import Policy, test_view

# Views that go through the net together: few enough for their maps to stay in the processor's cache, and never so many
# that large ones fill the memory.
BATCH_PIXELS, BATCH_VIEWS = 32 * 96 * 96, 64

Progress = Callable[[int, int, float], None]  # views done, views in all, views a second (0: not known yet)


@dataclass(frozen=True)
class Extraction:
    """What is embedded: these views of every image, in this order; None stands for the plain test view."""

    net: Backbone  # see `for_inference`
    feed: Feed
    facts: EncoderFacts
    views: Sequence[Policy | None]
    seed: int

    def chunk(self, number: int, rows: range) -> NDArray[np.float32]:
        """Features [len(rows), V, F]; they depend on the seed and the chunk's number, and on no other chunk."""
        images, sizes = self.feed.take(torch.arange(rows.start, rows.stop))
        columns = [
            self._embed(self._view(place, number, images, sizes), len(rows))
            for place in range(len(self.views))
        ]
        features = torch.stack(columns, dim=1)
        if not bool(features.isfinite().all()):
            raise TrainingError(
                f"the frozen {self.facts.backbone} gives NaN or Inf for images {rows.start} to {rows.stop - 1}; "
                "its weights do not fit, choose other --set weights"
            )
        return features.cpu().numpy()

    def _view(
        self, place: int, number: int, images: Tensor, sizes: Tensor | None
    ) -> Callable[[slice], Tensor]:
        policy, size = self.views[place], self.facts.image_size
        table = uniforms(
            len(images), 0 if policy is None else policy.draws, self.seed, "cached", place, number
        )

        def make(part: slice) -> Tensor:
            valid = None if sizes is None else sizes[part]
            if policy is None:
                view = test_view(images[part], size=size, sizes=valid, resize=self.facts.test_resize)
            else:
                view = policy(images[part], table[part].to(images.device), size=size, sizes=valid)
            return self.facts.normalise(view).contiguous(memory_format=torch.channels_last)

        return make

    def _embed(self, view: Callable[[slice], Tensor], count: int) -> Tensor:
        """[count, F], a few rows at a time."""
        step = max(1, min(BATCH_VIEWS, BATCH_PIXELS // self.facts.image_size**2))
        parts = [slice(start, start + step) for start in range(0, count, step)]
        return torch.cat([self.net.levels(view(part), self.facts.earlier_weight).float() for part in parts])


@torch.inference_mode()
def extract(work: Extraction, file: FeatureFile, progress: Progress) -> tuple[int, float]:
    """Fill in the chunks that `file` lacks; how many views that were, and seconds.

    Raises `Interrupted` when asked to stop, with all finished chunks kept.
    """
    missing = file.missing()
    views = len(work.views)
    total = file.shape[0] * views
    done = total - sum(len(file.rows(chunk)) for chunk in missing) * views
    begun, made = time.perf_counter(), 0
    with StopRequest() as stop:
        if missing:
            progress(done, total, 0.0)  # the first chunk may take a while
        for chunk in missing:
            rows = file.rows(chunk)
            file.write(chunk, _as_kept(work.chunk(chunk, rows), file))
            made += len(rows) * views
            progress(done + made, total, made / max(time.perf_counter() - begun, 1e-9))
            if stop.signal_number is not None:
                raise Interrupted(
                    f"stopped with {done + made} of {total} views embedded and kept; "
                    "rerun the same command to resume",
                    stop.signal_number,
                )
    return made, time.perf_counter() - begun


def _as_kept(features: NDArray[np.float32], file: FeatureFile) -> NDArray[np.floating[Any]]:
    largest = float(np.finfo(file.dtype).max)
    return np.clip(features, -largest, largest).astype(file.dtype)  # no Inf where half precision ends
