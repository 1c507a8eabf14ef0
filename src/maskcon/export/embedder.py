"""Pictures in, embeddings out: the few lines around an encoder. An export copies them, with all they use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor, nn

from maskcon.data.decoding import UndecodableError, decode, to_array
from maskcon.transforms.boxes import centre_placement, whole_placement
from maskcon.transforms.resample import resize

BATCH_PICTURES = 32


@dataclass(frozen=True)
class Preprocessing:
    """From a picture of any size and mode to what the encoder takes.

    image_size: side S of the encoder's input; in_channels: C, 1 for grey and 3 for colour
    canvas: larger pictures are first shrunk to fit this square
    test_resize: "shorter" brings the shorter side to S and cuts out the central square; "both" stretches
    mean, std: of each channel, for values in 0..1
    """

    image_size: int
    canvas: int
    in_channels: int
    test_resize: str
    mean: Sequence[float]
    std: Sequence[float]

    def __call__(self, pictures: Sequence[str | Path | Image.Image]) -> Tensor:
        """Paths or Pillow images -> float32 [B, C, S, S] in 0..1."""
        nothing = torch.empty(0, self.in_channels, self.image_size, self.image_size)
        return torch.cat([nothing, *(self.view(picture) for picture in pictures)])

    def view(self, picture: str | Path | Image.Image) -> Tensor:
        """One picture -> float32 [1, C, S, S] in 0..1."""
        try:
            if isinstance(picture, Image.Image):
                pixels = to_array(picture, self.canvas, self.in_channels)
            else:
                pixels = decode(Path(picture), self.canvas, self.in_channels)
        except UndecodableError as error:
            raise UndecodableError(f"cannot read {picture}: {error}") from error
        images = torch.tensor(pixels)[None]  # [1, C, H, W], a copy: Pillow's arrays may be read-only
        heights, widths = (torch.tensor([side]) for side in pixels.shape[1:])
        if self.test_resize == "shorter":
            placement = centre_placement(heights, widths, self.image_size)
        else:
            placement = whole_placement(heights, widths)
        return (resize(images, placement, None, size=self.image_size) / 255).clamp(0.0, 1.0)

    def normalise(self, pixel_values: Tensor) -> Tensor:
        """(pixel_values - mean) / std per channel."""
        mean, std = (
            torch.tensor(values, dtype=pixel_values.dtype, device=pixel_values.device).view(1, -1, 1, 1)
            for values in (list(self.mean), list(self.std))
        )
        return (pixel_values - mean) / std


class Embedder(nn.Module):
    """An encoder with its preprocessing: `encode` takes pictures, `forward` takes what `preprocessing` gives."""

    def __init__(self, encoder: nn.Module, preprocessing: Preprocessing) -> None:
        super().__init__()
        self.encoder = encoder
        self.preprocessing = preprocessing

    def forward(self, pixel_values: Tensor) -> Tensor:
        """float [B, C, S, S] in 0..1 -> embeddings [B, F], not normalised: compare them by cosine."""
        features: Tensor = self.encoder(self.preprocessing.normalise(pixel_values))
        return features

    @torch.no_grad()
    def encode(self, pictures: Sequence[str | Path | Image.Image]) -> Tensor:
        """Paths or Pillow images -> embeddings float32 [B, F] on the CPU."""
        if isinstance(pictures, str | Path | Image.Image):
            raise TypeError("pictures are given as a list, even if there is only one")
        weight = next(self.parameters())  # the model may have been moved, or brought to half precision
        was_training = self.encoder.training  # its own mode: a model around the same encoder may be asking
        self.encoder.eval()
        try:
            found = [
                self(self.preprocessing(pictures[start : start + BATCH_PICTURES]).to(weight)).float().cpu()
                for start in range(0, max(1, len(pictures)), BATCH_PICTURES)  # no pictures: one empty batch
            ]
        finally:  # a picture that cannot be read ends it early
            self.encoder.train(was_training)
        return torch.cat(found)
