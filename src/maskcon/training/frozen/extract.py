"""Cached features of several views of every image by a frozen backbone.

They are computed in bounded memory, and resumed after a stop.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maskcon._utils.errors import TrainingError
from maskcon._utils.files import make_folder, one_at_a_time
from maskcon._utils.text import counted
from maskcon.data import ImageSet
from maskcon.models import Backbone
from maskcon.models.encoder_file import EncoderFacts
from maskcon.retrieval.encode import Feed
from maskcon.training.frozen.cache import FEATURES, FeatureFile, cannot_keep, features_folder, key_of
from maskcon.training.schedule import uniforms
from maskcon.training.signals import Interrupted, StopRequest
from maskcon.transforms import Policy, test_view

# Views that go through the net together: few enough for their maps to stay in the processor's cache, and never so many
# that large ones fill the memory.
BATCH_PIXELS, BATCH_VIEWS = 32 * 96 * 96, 64
WORTH_TELLING = 1e8  # bytes on disk

Message = Callable[[str], None]
Progress = Callable[[int, int, float], None]  # views done, views in all, views per second (0: unknown)


def batch_views(size: int) -> int:
    """Return the number of views of this side that go through the net together.

    >>> batch_views(32), batch_views(96), batch_views(4000)
    (64, 32, 1)
    """
    return max(1, min(BATCH_VIEWS, BATCH_PIXELS // size**2))


@dataclass(frozen=True)
class Extraction:
    """The views to embed of every image, in order; None is the plain test view."""

    net: Backbone  # see `for_inference`
    feed: Feed
    facts: EncoderFacts
    views: Sequence[Policy | None]
    seed: int
    thaw: int = 0

    def chunk(self, number: int, rows: range) -> NDArray[np.float32]:
        """Compute features [len(rows), V, F] of a chunk; other chunks do not matter."""
        images, sizes = self.feed.take(torch.arange(rows.start, rows.stop))
        step = batch_views(self.facts.image_size)
        parts = [slice(start, start + step) for start in range(0, len(rows), step)]
        columns = []
        for place, policy in enumerate(self.views):
            draws = 0 if policy is None else policy.draws
            table = uniforms(len(rows), draws, self.seed, "cached", place, number)
            views = (
                self._view(policy, images[part], table[part], None if sizes is None else sizes[part])
                for part in parts
            )
            columns.append(
                torch.cat(
                    [self.net.levels(view, self.facts.earlier_weight, self.thaw).float() for view in views]
                )
            )
        features = torch.stack(columns, dim=1)
        if not bool(features.isfinite().all()):
            raise TrainingError(
                f"the frozen {self.facts.backbone} gives NaN or Inf for images {rows.start} to {rows.stop - 1}; "
                "its weights do not fit, choose other --set weights"
            )
        return features.cpu().numpy()

    def _view(self, policy: Policy | None, images: Tensor, table: Tensor, sizes: Tensor | None) -> Tensor:
        size = self.facts.image_size
        if policy is None:
            view = test_view(images, size=size, sizes=sizes, resize=self.facts.test_resize)
        else:
            view = policy(images, table, size=size, sizes=sizes)
        return self.facts.normalise(view).contiguous(memory_format=torch.channels_last)


@torch.inference_mode()
def extract(work: Extraction, file: FeatureFile, progress: Progress) -> tuple[int, float]:
    """Compute the missing chunks of `file`; return the number of views and seconds.

    Raises:
        Interrupted: a stop was requested; all finished chunks are kept.
    """
    missing = file.missing()
    views = len(work.views)
    total = file.shape[0] * views
    done = total - sum(len(file.rows(chunk)) for chunk in missing) * views
    start, computed = time.perf_counter(), 0
    with StopRequest() as stop:
        if missing:
            progress(done, total, 0.0)  # the first chunk may take a while
        for chunk in missing:
            rows = file.rows(chunk)
            file.write(chunk, _to_dtype(work.chunk(chunk, rows), file.dtype))
            computed += len(rows) * views
            progress(done + computed, total, computed / max(time.perf_counter() - start, 1e-9))
            if stop.signal_number is not None:
                raise Interrupted(
                    f"stopped with {done + computed} of {total} views embedded and kept; "
                    "rerun the same command to resume",
                    stop.signal_number,
                )
    return computed, time.perf_counter() - start


def _to_dtype(features: NDArray[np.float32], dtype: np.dtype[Any]) -> NDArray[np.floating[Any]]:
    largest = float(np.finfo(dtype).max)
    return np.clip(features, -largest, largest).astype(dtype)  # no Inf beyond the range of half precision


def cached_features(
    work: Extraction,
    shape: tuple[int, int, int],
    dtype: str,
    description: Mapping[str, Any],
    progress: Progress,
    message: Message,
) -> NDArray[Any]:
    """Complete the features of one part in the cache and return them."""
    folder = features_folder() / key_of(description)
    with ExitStack() as stack:
        try:
            make_folder(folder)
            waiting = "another run is computing the same features; waiting for it"
            stack.enter_context(one_at_a_time(folder, lambda: message(waiting)))
        except OSError as error:
            raise cannot_keep(folder, error) from error
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if "thaw" in description and not (folder / FEATURES).exists() and size > WORTH_TELLING:
            message(f"keeping {size / 1e9:.1f} GB of maps of {shape[0]} images in {folder}")
        file = FeatureFile(folder, shape, dtype, description)
        computed, seconds = extract(work, file, progress)
    if computed:
        images = computed // shape[1]
        which = f"{images} images" if images == shape[0] else f"the missing {images} of {shape[0]} images"
        message(
            f"embedded {which}, {counted(shape[1], 'view')} each, in {seconds:.0f} s "
            f"({computed / seconds:,.0f} views/s); kept in {folder}"
        )
    return file.array()


def describe(
    part: ImageSet,
    facts: EncoderFacts,
    weights: str,
    views: Sequence[Policy | None],
    seed: int,
    engine: str = "torch",
    thaw: int = 0,
) -> dict[str, Any]:
    """Return what the features of a part depend on: no labels, no seed of a run.

    engine: see `engine_of`; features of one differ from those of another by rounding, and are never mixed.
    """
    random = any(policy is not None for policy in views)
    return {
        "backbone": {k: v for k, v in asdict(facts).items() if k not in ("head_features", "test_resize")},
        "weights": weights,
        # a policy of ours by all its numbers: an edited one under the same name is another one
        "views": [
            f"test {facts.test_resize}" if p is None else repr(p) if is_dataclass(p) else p.name
            for p in views
        ],
        "seed": seed if random else None,
        "pictures": part.images_fingerprint(),
        **({} if engine == "torch" else {"engine": engine}),
        **({"thaw": thaw} if thaw else {}),
    }


def weights_hash(backbone: Backbone) -> str:
    """Return the sha256 over names and values of all tensors."""
    digest = hashlib.sha256()
    for name, value in sorted(backbone.state_dict().items()):
        array = value.detach().cpu().contiguous().numpy()
        digest.update(f"{name};{array.dtype.str}{array.shape};".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
