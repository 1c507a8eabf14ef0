"""Features of many images: the query encoder before the projector, in evaluation mode, in batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

import torch
from torch import Tensor, nn

from maskcon import transforms

# A batch holds at most so many images, and fewer of large ones, whose activations would fill the memory.
BATCH_IMAGES, BATCH_PIXELS = 500, 1 << 21


class Images(Protocol):
    """Rows of images as uint8 batches; `maskcon.training.feed.Feed` is one."""

    def take(self, rows: Tensor) -> tuple[Tensor, Tensor | None]: ...


@torch.no_grad()
def embed(
    backbone: nn.Module,
    images: Images,
    rows: Tensor,
    *,
    size: int,
    resize: Literal["shorter", "both"],
    normalise: Callable[[Tensor], Tensor],
    should_stop: Callable[[], bool] = lambda: False,
    progress: Callable[[int, int], None] = lambda done, total: None,  # noqa: ARG005
) -> Tensor | None:
    """Features ``[len(rows), F]``, float32, on the images' device; None when asked to stop half-way.

    progress: called after each batch, as progress(done, in all).

    The backbone is put into evaluation mode and back into the mode it came in.
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
def raw_pixels(images: Images, rows: Tensor, *, size: int, resize: Literal["shorter", "both"]) -> Tensor:
    """The images themselves as embeddings, ``[len(rows), C*size*size]``: the floor that learning must pass."""
    parts = []
    for part in torch.split(rows, BATCH_IMAGES):
        batch, sizes = images.take(part)
        parts.append(transforms.test_view(batch, size=size, sizes=sizes, resize=resize).flatten(1))
    return torch.cat(parts)
