"""The trained encoder as one safetensors file: weights and preprocessing.

For a Hugging Face backbone the model itself must also be on the machine.
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
from maskcon._utils.paths import check_regular
from maskcon.data.decoding import canvas_for
from maskcon.models import Backbone, FeatureHead, FrozenEncoder, build_backbone

_KEY = "maskcon"  # a single header entry: several would be written in varying order


@dataclass(frozen=True)
class EncoderFacts:
    """Architecture and preprocessing of an encoder."""

    backbone: str
    width: int
    stem: Literal["auto", "small", "imagenet", "stride2"]
    in_channels: int
    image_size: int
    test_resize: Literal["shorter", "both"]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    head_features: int = 0  # of a frozen backbone's head, see `FrozenEncoder`; 0: the backbone is the encoder
    norm: Literal["batch"] = "batch"
    earlier_weight: float = 0.0  # of the frozen backbone's earlier maps, see `FrozenEncoder`

    @property
    def canvas(self) -> int:
        """Side to which larger images are shrunk before cropping."""
        return canvas_for(self.image_size)

    def normalise(self, images: Tensor) -> Tensor:
        return transforms.normalise(images, self.mean, self.std)


def encoder_bytes(backbone: Backbone, facts: EncoderFacts) -> bytes:
    """Return the content of the file; equal weights give equal bytes."""
    tensors = {name: value.detach().cpu().contiguous() for name, value in backbone.state_dict().items()}
    return safetensors.torch.save(tensors, metadata={_KEY: json.dumps(asdict(facts), sort_keys=True)})


def read_encoder(path: Path) -> tuple[Backbone, EncoderFacts]:
    """Read an encoder, in evaluation mode, and its facts; nothing in it is executed."""
    try:
        check_regular(path)
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
    # building draws initial weights: reading must not change the caller's random state
    with torch.random.fork_rng(devices=[]):
        backbone = build_backbone(
            facts.backbone,
            image_size=facts.image_size,
            in_channels=facts.in_channels,
            width=facts.width,
            stem=facts.stem,
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
        numbers = (*facts.mean, *facts.std, facts.earlier_weight)
        if (
            any(type(size) is not int for size in sizes)
            or not all(isinstance(number, int | float) for number in numbers)
            or not isinstance(facts.backbone, str)
        ):
            raise TypeError
    except json.JSONDecodeError as error:
        raise CorruptFileError(f"the header of {path} is damaged ({error})") from None
    except (TypeError, KeyError):
        raise CorruptFileError(
            f"{path} comes from another version of maskcon; train or export it again"
        ) from None
    if facts.norm != "batch":
        raise UsageError(
            f"{path} has norm={facts.norm}, which this version does not have; open it with the version that "
            "trained it, or train again"
        )
    return facts
