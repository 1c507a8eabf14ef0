"""Read images by row number onto the device, and encode many of them in batches.

Features are those before the projector, in evaluation mode.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from maskcon import transforms

# Batch limits; the second bounds the memory of activations of large images.
BATCH_IMAGES, BATCH_PIXELS = 500, 1 << 21
RESIDENT_BYTES = 4 << 30  # sets up to this size are held on the device as one array


class Feed:
    """Batches of images on the device, by row number.

    A batch is uint8 ``[B, C, H, W]``, with valid sizes ``[B, 2]`` or None, which stay on the CPU. Rows of another kind
    work too: a frozen run feeds cached features, float16 ``[B, V, F]``.

    A set that fits is held on the device, where a batch is one gather. A memory-mapped or larger one is read batch by
    batch; `prefetch` reads the next batch while the present one is in use.
    """

    def __init__(
        self,
        images: NDArray[np.uint8] | NDArray[np.float16],
        sizes: NDArray[np.int32] | None,
        device: torch.device,
    ) -> None:
        self.device = device
        self._sizes = None if sizes is None else torch.from_numpy(np.ascontiguousarray(sizes))
        self._array = images
        self._resident: Tensor | None = None
        if not isinstance(images, np.memmap) and images.nbytes <= RESIDENT_BYTES:
            self._resident = torch.from_numpy(np.ascontiguousarray(images)).to(device)
        self._reader = None if self._resident is not None else ThreadPoolExecutor(1, "maskcon-feed")
        self._ahead: dict[bytes, Future[Tensor]] = {}  # requested batches, by their row numbers
        self._last: tuple[bytes, Tensor] = (b"", torch.empty(0))

    def take(self, rows: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the images of rows (a CPU tensor); cache the batch for a second view."""
        sizes = None if self._sizes is None else self._sizes[rows]
        if self._resident is not None:
            return self._resident[rows.to(self.device)], sizes
        key = rows.numpy().tobytes()
        if key != self._last[0]:
            pending = self._ahead.pop(key, None)
            batch = self._read(rows) if pending is None else pending.result()
            self._last = (key, batch.to(self.device, non_blocking=True))
        return self._last[1], sizes

    @property
    def reads_ahead(self) -> bool:
        """Whether batches have to be read, so that `prefetch` helps."""
        return self._reader is not None

    def prefetch(self, *batches: Tensor) -> None:
        """Start reading these batches in the background; drop other pending ones."""
        if self._reader is not None:
            rows_of = {rows.numpy().tobytes(): rows for rows in batches}
            self._ahead = {
                key: self._ahead.get(key) or self._reader.submit(self._read, rows)
                for key, rows in rows_of.items()
            }

    def close(self) -> None:
        if self._reader is not None:
            self._reader.shutdown(wait=True, cancel_futures=True)

    def _read(self, rows: Tensor) -> Tensor:
        batch = torch.from_numpy(np.ascontiguousarray(self._array[rows.numpy()]))
        return batch.pin_memory() if self.device.type == "cuda" else batch


@torch.no_grad()
def embed(
    backbone: nn.Module,
    images: Feed,
    rows: Tensor,
    *,
    size: int,
    resize: Literal["shorter", "both"],
    normalise: Callable[[Tensor], Tensor],
    should_stop: Callable[[], bool] = lambda: False,
    progress: Callable[[int, int], None] = lambda done, total: None,  # noqa: ARG005
) -> Tensor | None:
    """Compute features ``[len(rows), F]``, float32, on the device of the images.

    None if `should_stop`. The backbone runs in evaluation mode and returns to its previous mode.

    progress: called after each batch, as progress(done, total)
    """
    before = backbone.training
    backbone.eval()
    features: list[Tensor] = []
    done = 0
    try:
        for part in torch.split(rows, max(1, min(BATCH_IMAGES, BATCH_PIXELS // size**2))):
            if should_stop():
                return None
            batch, sizes = images.take(part)
            view = normalise(transforms.test_view(batch, size=size, sizes=sizes, resize=resize))
            features.append(backbone(view.contiguous(memory_format=torch.channels_last)).float())
            done += len(part)
            progress(done, len(rows))
    finally:
        backbone.train(before)
    return torch.cat(features)


@torch.no_grad()
def raw_pixels(images: Feed, rows: Tensor, *, size: int, resize: Literal["shorter", "both"]) -> Tensor:
    """Return pixels as embeddings, ``[len(rows), C*size*size]``, as a baseline."""
    parts = []
    for part in torch.split(rows, BATCH_IMAGES):
        batch, sizes = images.take(part)
        parts.append(transforms.test_view(batch, size=size, sizes=sizes, resize=resize).flatten(1))
    return torch.cat(parts)
