"""Images that an export is checked on, and what the run's own encoder makes of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from maskcon.data import ImageSet
from maskcon.data.collection import with_channels
from maskcon.models import Backbone
from maskcon.models.encoder_file import EncoderFacts
from maskcon.transforms import test_view

RANDOM_SEED = 0


@dataclass(frozen=True)
class Sample:
    """What the encoder sees of some images [B, C, S, S], the images as pictures, and its answer [B, F].

    kind: what they are, in words, of one of them
    """

    kind: str
    pixel_values: Tensor
    pictures: list[Image.Image]
    expected: Tensor


def sample_of(images: ImageSet, kind: str, backbone: Backbone, facts: EncoderFacts) -> Sample:
    """These images as the encoder sees them; grey ones serve an encoder of colour ones, and the reverse."""
    sizes = None if images.sizes is None else torch.from_numpy(images.sizes)
    array = with_channels(np.asarray(images.images), facts.in_channels)
    pixels = torch.from_numpy(np.ascontiguousarray(array))
    view = test_view(pixels, size=facts.image_size, sizes=sizes, resize=facts.test_resize)
    with torch.no_grad():
        expected = backbone(facts.normalise(view)).float()
    return Sample(kind, view, [_picture(images.picture(row)) for row in range(len(images))], expected)


def random_images(facts: EncoderFacts, count: int) -> ImageSet:
    """Images of random pixels and many shapes, the same every time."""
    generator = np.random.Generator(np.random.PCG64(RANDOM_SEED))
    side, numbers = facts.canvas, np.arange(count, dtype=np.int64)
    return ImageSet(
        images=generator.integers(0, 256, (count, facts.in_channels, side, side), dtype=np.uint8),
        coarse=np.zeros_like(numbers),
        fine=None,
        index=numbers,
        sizes=generator.integers((side + 1) // 2, side + 1, (count, 2), dtype=np.int32),
    )


def _picture(pixels: NDArray[np.uint8]) -> Image.Image:
    return Image.fromarray(np.ascontiguousarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0)))
