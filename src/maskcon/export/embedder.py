"""An encoder with its preprocessing, from images to embeddings. Exports copy this file, so it imports little."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor, nn

from maskcon.data.decoding import UndecodableError, decode, to_array

BATCH_IMAGES = 32


@dataclass(frozen=True)
class Preprocessing:
    """Turns images of any size and mode into the encoder's input.

    Attributes:
        image_size: side S of the input.
        canvas: larger images are first shrunk to fit this square.
        in_channels: C, 1 for grey and 3 for colour.
        test_resize: "shorter" resizes the shorter side to S and crops the central square; "both" stretches.
        mean, std: per channel, for values in 0..1.
    """

    image_size: int
    canvas: int
    in_channels: int
    test_resize: str
    mean: Sequence[float]
    std: Sequence[float]

    def __call__(self, images: Sequence[str | Path | Image.Image]) -> Tensor:
        """Read paths or Pillow images: float32 [B, C, S, S] in 0..1."""
        nothing = torch.empty(0, self.in_channels, self.image_size, self.image_size)
        return torch.cat([nothing, *(self.view(image)[None] for image in images)])

    def view(self, image: str | Path | Image.Image) -> Tensor:
        """Read one image: float32 [C, S, S] in 0..1."""
        try:
            if isinstance(image, Image.Image):
                pixels = to_array(image, self.canvas, self.in_channels)
            else:
                pixels = decode(Path(image), self.canvas, self.in_channels)
        except UndecodableError as error:
            raise UndecodableError(f"cannot read {image}: {error}") from error
        rows, columns = (self._filter(side, min(pixels.shape[1:])) for side in pixels.shape[1:])
        values = torch.tensor(pixels).float()  # [C, H, W], a copy: Pillow's arrays may be read-only
        return (rows @ values @ columns.T / 255).clamp(0.0, 1.0)

    def _filter(self, side: int, shorter: int) -> Tensor:
        """Weights [S, side] of a triangle filter that resizes, and crops the centre of, one axis."""
        size = self.image_size
        resized = side * size // shorter if self.test_resize == "shorter" else size
        scale = side / resized
        centres = (torch.arange(size, dtype=torch.float64) + 0.5 + round((resized - size) / 2)) * scale
        places = torch.arange(side, dtype=torch.float64) + 0.5
        weights = (1 - (places - centres[:, None]).abs() / max(scale, 1.0)).clamp_min(0.0)
        return (weights / weights.sum(dim=1, keepdim=True)).float()

    def normalise(self, pixel_values: Tensor) -> Tensor:
        """Compute (pixel_values - mean) / std per channel."""
        mean, std = (
            torch.tensor(values, dtype=pixel_values.dtype, device=pixel_values.device).view(1, -1, 1, 1)
            for values in (list(self.mean), list(self.std))
        )
        return (pixel_values - mean) / std


class Embedder(nn.Module):
    """An encoder with its preprocessing: `encode` takes images, `forward` the output of `preprocessing`."""

    def __init__(self, encoder: nn.Module, preprocessing: Preprocessing) -> None:
        super().__init__()
        self.encoder = encoder
        self.preprocessing = preprocessing

    def forward(self, pixel_values: Tensor) -> Tensor:
        """Embed float [B, C, S, S] in 0..1: [B, F], not normalised; compare by cosine."""
        features: Tensor = self.encoder(self.preprocessing.normalise(pixel_values))
        return features

    @torch.no_grad()
    def encode(self, images: Sequence[str | Path | Image.Image]) -> Tensor:
        """Embed paths or Pillow images: float32 [B, F] on the CPU."""
        if isinstance(images, str | Path | Image.Image):
            raise TypeError("give images as a list, even a single one")
        weight = next(self.parameters())  # the model may be on another device, or in half precision
        was_training = self.encoder.training  # restored below: another model may share the encoder
        self.encoder.eval()
        try:
            found = [
                self(self.preprocessing(images[start : start + BATCH_IMAGES]).to(weight)).float().cpu()
                for start in range(0, max(1, len(images)), BATCH_IMAGES)  # no images: one empty batch
            ]
        finally:  # also after an unreadable image
            self.encoder.train(was_training)
        return torch.cat(found)
