"""The trained encoder as one file: weights under the usual names, and all it takes to embed new images.

Only a backbone of Hugging Face is not described in full: its model has to be on the machine as well.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from maskcon import transforms
from maskcon._utils.errors import CorruptFileError, UsageError
from maskcon.data.decoding import canvas_for
from maskcon.models import Backbone, FeatureHead, FrozenEncoder, build_backbone, shape_of

_KEY = "maskcon"  # the one entry of the header: several would be written in no fixed order


@dataclass(frozen=True)
class EncoderFacts:
    """What an image must go through before this encoder, and how to build it."""

    backbone: str
    width: int
    stem: Literal["auto", "small", "imagenet", "stride2"]
    norm: Literal["batch", "group"]
    in_channels: int
    image_size: int
    test_resize: Literal["shorter", "both"]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    head_features: int = (
        0  # of the head on a frozen backbone, see `FrozenEncoder`; 0: the backbone is the encoder
    )
    earlier_weight: float = 0.0  # of the frozen backbone's earlier maps, see `FrozenEncoder`

    @property
    def canvas(self) -> int:
        """Side that larger images are shrunk to before the view is cut from them."""
        return canvas_for(self.image_size)

    def normalise(self, images: Tensor) -> Tensor:
        return transforms.normalise(images, self.mean, self.std)


def encoder_bytes(backbone: Backbone, facts: EncoderFacts) -> bytes:
    """The file's content; the same weights give the same bytes."""
    tensors = {name: value.detach().cpu().contiguous() for name, value in backbone.state_dict().items()}
    return safetensors.torch.save(tensors, metadata={_KEY: json.dumps(asdict(facts), sort_keys=True)})


def read_encoder(path: Path) -> tuple[Backbone, EncoderFacts]:
    """The encoder, ready to embed (evaluation mode), and its facts. Executes nothing from the file."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            header = (file.metadata() or {}).get(_KEY)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise UsageError(f"no encoder at {path}") from None
    except (safetensors.SafetensorError, OSError) as error:
        raise CorruptFileError(f"{path} is not a readable safetensors file ({error})") from None
    if header is None:
        raise CorruptFileError(
            f"{path} was not written by maskcon: its header does not say how to build the encoder"
        )
    facts = _facts(header, path)
    # a new net draws weights, which are then overwritten: reading must not shift the caller's random numbers
    with torch.random.fork_rng(devices=[]):
        backbone = build_backbone(
            facts.backbone,
            image_size=facts.image_size,
            in_channels=facts.in_channels,
            **shape_of(facts.backbone, width=facts.width, norm=facts.norm, stem=facts.stem),
        )
        if facts.head_features:
            backbone = FrozenEncoder(
                backbone, FeatureHead(facts.head_features), earlier_weight=facts.earlier_weight
            )
    try:
        backbone.load_state_dict(tensors)
    except RuntimeError as error:
        raise CorruptFileError(
            f"{path} does not fit its own description ({str(error).splitlines()[0]})"
        ) from None
    backbone.eval()
    return backbone.to(memory_format=torch.channels_last), facts  # type: ignore[call-overload]


def _facts(header: str, path: Path) -> EncoderFacts:
    try:
        values: dict[str, Any] = json.loads(header)
        facts = EncoderFacts(**{**values, "mean": tuple(values["mean"]), "std": tuple(values["std"])})
        sizes = (facts.width, facts.in_channels, facts.image_size, facts.head_features)
        if not all(type(size) is int for size in sizes) or not isinstance(facts.backbone, str):
            raise TypeError
        if not all(
            isinstance(value, int | float) for value in (*facts.mean, *facts.std, facts.earlier_weight)
        ):
            raise TypeError
        return facts
    except json.JSONDecodeError as error:
        raise CorruptFileError(f"the header of {path} is damaged ({error})") from None
    except (TypeError, KeyError):
        raise CorruptFileError(
            f"{path} comes from another version of maskcon; train or export it again"
        ) from None
