"""The images on which an export is checked, and their embeddings by the run's encoder."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from maskcon.data import ImageSet
from maskcon.data.image_readers import with_channels
from maskcon.models import Backbone
from maskcon.models.encoder_file import EncoderFacts
from maskcon.transforms import test_view

RANDOM_SEED = 0


@dataclass(frozen=True)
class Sample:
    """Images as the encoder's input [B, C, S, S] and as Pillow images, and their embeddings [B, F].

    kind: singular noun for the images.
    """

    kind: str
    pixel_values: Tensor
    images: list[Image.Image]
    expected: Tensor


def sample_of(images: ImageSet, kind: str, backbone: Backbone, facts: EncoderFacts) -> Sample:
    """Embed images with the run's encoder; convert between grey and colour as it needs."""
    sizes = None if images.sizes is None else torch.from_numpy(images.sizes)
    array = with_channels(np.asarray(images.images), facts.in_channels)
    pixels = torch.from_numpy(np.ascontiguousarray(array))
    view = test_view(pixels, size=facts.image_size, sizes=sizes, resize=facts.test_resize)
    with torch.no_grad():
        expected = backbone(facts.normalise(view)).float()
    return Sample(kind, view, [_to_pillow(images.image(row)) for row in range(len(images))], expected)


def random_images(facts: EncoderFacts, count: int) -> ImageSet:
    """Make reproducible images of random pixels, in many shapes."""
    generator = np.random.Generator(np.random.PCG64(RANDOM_SEED))
    side, numbers = facts.canvas, np.arange(count, dtype=np.int64)
    return ImageSet(
        images=generator.integers(0, 256, (count, facts.in_channels, side, side), dtype=np.uint8),
        coarse=np.zeros_like(numbers),
        fine=None,
        index=numbers,
        sizes=generator.integers((side + 1) // 2, side + 1, (count, 2), dtype=np.int32),
    )


def _to_pillow(pixels: NDArray[np.uint8]) -> Image.Image:
    return Image.fromarray(np.ascontiguousarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0)))
