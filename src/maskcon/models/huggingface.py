"""A Hugging Face vision model as a backbone (extra `hf`)."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from maskcon._utils.errors import UsageError, first_line
from maskcon.config.backbones import HUGGING_FACE_PREFIX, Pretrained, published
from maskcon.models.base import Backbone


class HuggingFaceBackbone(Backbone):
    """Pooled output of a vision model: images [B, C, H, W] -> features [B, F].

    Grey images are repeated over three channels; images are resized if the model takes a single size.

    patch: if > 0, images are resized to the next multiples of it instead, for a model of any number of patches.
    """

    def __init__(
        self, name: str, model: nn.Module, *, image_size: int, in_channels: int = 3, patch: int = 0
    ) -> None:
        super().__init__()
        config: Any = model.config
        self.name = name
        self.in_channels = in_channels
        self.model_channels = int(getattr(config, "num_channels", 3))
        if in_channels not in (1, self.model_channels):
            raise UsageError(f"{name} takes {self.model_channels} channels, the images have {in_channels}")
        self.patch = patch
        self.input_size = None if patch else _fixed_size(config)
        self.model = model
        self.features = self._measure(image_size)

    def _measure(self, image_size: int) -> int:
        """Measure F by a forward pass: models name it differently.

        Freezes parameters without influence on the features (a mask token, a second pooling): wrappers of distributed
        training would wait for their gradients.
        """
        was_training = self.training
        self.eval()
        with torch.enable_grad():
            features = self.forward(torch.zeros(1, self.in_channels, image_size, image_size))
        if features.requires_grad:
            features.sum().backward()  # type: ignore[no-untyped-call]
        for parameter in self.parameters():
            parameter.requires_grad_(parameter.grad is not None)
            parameter.grad = None
        self.train(was_training)
        return features.shape[1]

    def forward(self, images: Tensor) -> Tensor:
        if images.shape[1] != self.model_channels:
            images = images.expand(-1, self.model_channels, -1, -1)
        size = self._input_size(images.shape[2], images.shape[3])
        if tuple(images.shape[2:]) != size:
            images = F.interpolate(images, size, mode="bilinear", align_corners=False, antialias=True)
        return _pooled(self.model(pixel_values=images))

    def _input_size(self, height: int, width: int) -> tuple[int, int]:
        """Return the (H, W) that the model is given for images of this size."""
        if self.input_size is not None:
            return self.input_size
        if self.patch:
            return -(-height // self.patch) * self.patch, -(-width // self.patch) * self.patch
        return height, width


def load_hugging_face(
    name: str, *, image_size: int, in_channels: int = 3, download: bool = False
) -> HuggingFaceBackbone:
    """Load the backbone `hf:NAME`, or one of `PRETRAINED`, from the local cache.

    NAME may also be a folder. With `download`, a model that is not in the cache comes from the hub.
    """
    try:
        import transformers
    except ImportError as error:
        raise UsageError(
            f"backbone {name!r} needs the package transformers: pip install 'maskcon[hf]'"
        ) from error
    known = published(name) or Pretrained(0, name.removeprefix(HUGGING_FACE_PREFIX))
    if not known.repository:
        raise UsageError(f"backbone {name!r} lacks a model name, as in hf:facebook/dinov2-base")
    try:
        # use_safetensors: no pickle from a hub; trust_remote_code: no code from a hub.
        model: Any = transformers.AutoModel.from_pretrained(
            known.repository,
            revision=known.revision,
            local_files_only=not download,
            use_safetensors=True,
            trust_remote_code=False,
        )
    except Exception as error:  # missing, damaged or unknown: the libraries raise many types
        way_out = (
            f"check the name, and that https://huggingface.co/{known.repository} has safetensors; accept its licence "
            "there and log in (hf auth login) if it asks for that"
            if download
            else "pass --download to fetch it from the hub, or again if it is damaged"
        )
        raise UsageError(f"cannot load {name!r}: {first_line(error).rstrip('.')}; {way_out}") from error
    vision = getattr(model, "vision_model", model)  # the image half of a text-and-image model
    try:
        return HuggingFaceBackbone(
            name, vision.float(), image_size=image_size, in_channels=in_channels, patch=known.patch
        )
    except UsageError:
        raise
    except Exception as error:  # models of text or sound raise anything on an image
        raise UsageError(
            f"{name!r} does not take images as a vision model does: {first_line(error)}; name another model"
        ) from error


def _fixed_size(config: Any) -> tuple[int, int] | None:
    """Return the (H, W) that a model requires; None for convolutional models."""
    size = getattr(config, "image_size", None)
    if size is None or not hasattr(config, "patch_size"):
        return None
    return (int(size), int(size)) if isinstance(size, int) else (int(size[0]), int(size[1]))


def _pooled(output: Any) -> Tensor:
    pooled: Tensor | None = getattr(output, "pooler_output", None)
    if pooled is not None:
        return pooled.flatten(1)  # convolutional models give [B, F, 1, 1]
    last: Tensor = output.last_hidden_state
    if last.ndim == 4:
        return last.mean(dim=(2, 3))  # [B, F, H, W]
    return last.mean(dim=1)  # [B, tokens, F]
