"""Encode many images in batches: features before the projector, in evaluation mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

import torch
from torch import Tensor, nn

from maskcon import transforms

# Batch limits; the second bounds the memory of activations of large images.
BATCH_IMAGES, BATCH_PIXELS = 500, 1 << 21


class Images(Protocol):
    """Random access to uint8 images, such as `maskcon.training.feed.Feed`."""

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
    """Compute features ``[len(rows), F]``, float32, on the images' device; None if `should_stop`.

    progress: called after each batch, as progress(done, total).

    The backbone is put into evaluation mode, and back into its previous mode.
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
    """Return the pixels as embeddings, ``[len(rows), C*size*size]``: the baseline of learning."""
    parts = []
    for part in torch.split(rows, BATCH_IMAGES):
        batch, sizes = images.take(part)
        parts.append(transforms.test_view(batch, size=size, sizes=sizes, resize=resize).flatten(1))
    return torch.cat(parts)
