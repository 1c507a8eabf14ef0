"""Load weights into a backbone: all of them or none, without executing code.

safetensors holds no code, and pickled files go through `torch.load(weights_only=True)`, which refuses anything but
tensors and plain containers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from maskcon._utils.errors import CorruptFileError, UsageError, unknown
from maskcon._utils.paths import check_regular
from maskcon.models.base import Backbone
from maskcon.models.published import PUBLISHED, published_file

_CONTAINERS = ("state_dict", "model_state_dict", "model")
_WRAPPERS = re.compile(r"(module|query|backbone|encoder|base_encoder|encoder_q)\.")
_MOMENTUM_COPIES = ("key.", "encoder_k.", "momentum_encoder.")
_HEADS = ("fc.", "_fc.", "classifier.", "projector.", "projection.", "head.", "axes.", "predictor.", "queue")
_SUFFIXES = (".safetensors", ".pth", ".pt")
_SHOWN = 5


def load_weights(
    backbone: Backbone, path_or_name: str | Path, *, download: bool = False, whole: bool = False
) -> list[str]:
    """Fill `backbone` in place from a file or published weights; return log notes.

    Args:
        backbone: the net to fill; untouched if anything is wrong.
        path_or_name: a `.safetensors`, `.pth` or `.pt` file, or "imagenet".
        download: whether named weights may be fetched when they are not on this machine.
        whole: refuse a file that leaves a layer at its random start, for a net that will not be trained.

    Prefixes of common wrappers (`module.`, `backbone.`, `encoder.`, ...) are stripped, heads are ignored. A 3x3
    stem keeps its random values when the file has a 7x7 one (unless `whole`), and a grey net takes the sum over the
    colour channels of `conv1`; both are noted. Everything else must match.

    >>> load_weights(backbone, "imagenet", download=True)            # doctest: +SKIP
    ['conv1 stays fresh: 3x3 in the backbone, 7x7 in the file', ...]
    """
    path = locate(backbone.name, path_or_name, download=download)
    entries, notes = _backbone_entries(read_state(path), backbone)
    notes += _fit_stem(entries, backbone, path if whole else None)
    _require_match(entries, backbone, path)
    backbone.load_state_dict(entries, strict=False)
    return [*notes, f"weights from {path.name}"]


def read_state(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a weights file by name; nothing in the file is executed."""
    if path.suffix not in _SUFFIXES:
        raise UsageError(f"weights {path} must end in {', '.join(_SUFFIXES)}")
    try:
        check_regular(path)
        path.open("rb").close()
    except OSError as error:
        raise UsageError(f"cannot read weights {path}: {error.strerror}") from error
    try:
        content: object = (
            load_file(path)
            if path.suffix == ".safetensors"
            else torch.load(path, map_location="cpu", weights_only=True)
        )
    except Exception as error:  # the readers raise a dozen types, OSError among them, on damaged bytes
        # without torch's text, which tells people to load the file unsafely
        raise CorruptFileError(
            f"{path} is not a file of plain weights ({type(error).__name__}); nothing in it was executed; "
            "fetch it again or save it as safetensors"
        ) from error
    for container in _CONTAINERS:
        if isinstance(content, Mapping) and isinstance(content.get(container), Mapping):
            content = content[container]
    if not isinstance(content, Mapping):
        raise CorruptFileError(f"{path} holds a {type(content).__name__}, not tensors by name")
    state = {name: value for name, value in content.items() if isinstance(value, Tensor)}
    if not state or not all(isinstance(name, str) for name in state):
        raise CorruptFileError(f"{path} holds no tensors by name")
    return state


def locate(backbone: str, path_or_name: str | Path, *, download: bool = False) -> Path:
    """Return the file that `load_weights` reads; fetch it first if `download`."""
    name = str(path_or_name)
    if name in PUBLISHED:
        return published_file(backbone, name, download=download)
    path = Path(path_or_name).expanduser()
    if not path.exists() and path.suffix == "" and path.parent == Path():
        raise unknown("weights", name, [*PUBLISHED, "a .safetensors, .pth or .pt file"])
    if not path.is_file():
        raise UsageError(f"no weights file at {path}")
    return path


def _backbone_entries(state: dict[str, Tensor], backbone: Backbone) -> tuple[dict[str, Tensor], list[str]]:
    """Return the backbone's entries by its own names, and a note about ignored ones."""
    expected = backbone.state_dict()
    entries: dict[str, Tensor] = {}
    ignored = 0
    for full_name, value in state.items():
        name = full_name
        while name not in expected and (wrapper := _WRAPPERS.match(name)):
            name = name[wrapper.end() :]
        if name not in expected and name.startswith((*_MOMENTUM_COPIES, *_HEADS)):
            ignored += 1
            continue
        if name in entries:
            raise UsageError(f"the weights hold {name} twice, under different prefixes ({full_name})")
        entries[name] = value
    entries = backbone.translate(entries)
    return entries, [f"ignored {ignored} tensors of heads or momentum copies"] if ignored else []


def _fit_stem(entries: dict[str, Tensor], backbone: Backbone, whole: Path | None) -> list[str]:
    """Adapt or drop the weight [out, C, k, k] of the first layer; return notes.

    It is adapted where the channels differ and dropped where the kernel does.

    whole: the file, if dropping is an error.
    """
    first = backbone.first_layer
    name = first.removesuffix(".weight")
    ours = backbone.state_dict().get(first)
    theirs = entries.get(first)
    if ours is None or theirs is None or theirs.ndim != 4 or theirs.shape[0] != ours.shape[0]:
        return []
    if theirs.shape[2:] != ours.shape[2:]:
        sizes = ["x".join(str(side) for side in kernel.shape[2:]) for kernel in (ours, theirs)]
        if whole is not None:
            raise UsageError(
                f"{whole} does not fit: its {name} is {sizes[1]}, the backbone's {sizes[0]}, which would stay random; "
                "choose --set stem=imagenet (7x7) or stem=small (3x3) by the file"
            )
        entries[first] = ours
        return [f"{name} stays fresh: {sizes[0]} in the backbone, {sizes[1]} in the file"]
    if ours.shape[1] == 1 and theirs.shape[1] == 3:
        # The sum gives a grey image the response of the same image in three equal channels.
        entries[first] = theirs.sum(dim=1, keepdim=True)
        return [f"{name} summed over the colour channels of the file"]
    return []


def _require_match(entries: dict[str, Tensor], backbone: nn.Module, path: Path) -> None:
    expected = backbone.state_dict()
    # Older files lack the batch counters, which nothing reads while BatchNorm has a momentum.
    optional = {name for name in expected if name.endswith("num_batches_tracked")}
    problems = {
        "missing": [name for name in expected if name not in entries and name not in optional],
        "unexpected": [name for name in entries if name not in expected],
        "of another shape": [
            f"{name} {tuple(value.shape)} instead of {tuple(expected[name].shape)}"
            for name, value in entries.items()
            if name in expected and value.shape != expected[name].shape
        ],
        "not finite": [  # no training recovers from them
            name
            for name, value in entries.items()
            if value.is_floating_point() and not value.isfinite().all()
        ],
    }
    described = [
        f"{len(names)} {kind} ({', '.join(names[:_SHOWN])}{', ...' if len(names) > _SHOWN else ''})"
        for kind, names in problems.items()
        if names
    ]
    if described:
        raise UsageError(
            f"{path} does not fit this backbone: {'; '.join(described)}; "
            "choose the architecture and width that the weights were made with"
        )
