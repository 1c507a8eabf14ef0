"""Write a run's encoder into a scratch folder, check it on images, then rename the folder into place."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from importlib import resources
from pathlib import Path
from types import ModuleType

import safetensors.torch
import torch
from torch import Tensor

from maskcon import __version__
from maskcon._utils.errors import MaskconError, UsageError
from maskcon._utils.files import (
    CHANGED,
    SUMS,
    checksums,
    file_states,
    one_at_a_time,
    sync_folder,
    write_synced,
)
from maskcon._utils.text import counted
from maskcon.api import Run
from maskcon.config.settings import Machine
from maskcon.data import Dataset
from maskcon.data.folder_layout import some
from maskcon.export.card import card_text
from maskcon.export.embedder import Embedder, Preprocessing
from maskcon.export.onnx_file import FILES as ONNX_FILES
from maskcon.export.onnx_file import check_onnx_installed, run_onnx, write_onnx
from maskcon.export.plain import model_source
from maskcon.export.sample import Sample, random_images, sample_of
from maskcon.models import Backbone
from maskcon.models.encoder_file import EncoderFacts, read_encoder
from maskcon.training.callbacks import Callback
from maskcon.training.run_folder import ENCODER, make_writable
from maskcon.training.setup import load_dataset

CARD, CONFIG, MODEL, WEIGHTS = "README.md", "config.json", "model.py", "model.safetensors"
HUGGING_FACE = "modeling_maskcon.py"  # loaded by `transformers`
CHECKED = (CARD, CONFIG, MODEL, WEIGHTS, HUGGING_FACE)  # must be listed in SHA256SUMS
WRITTEN = frozenset((*CHECKED, SUMS, *ONNX_FILES, "__pycache__"))
MODEL_TYPE = "maskcon"
REPLACED = "replaced"  # the earlier export, moved into the scratch folder while it is replaced
CHECK_IMAGES = 32
OTHER_IMAGES = (
    "the images have changed since the run was trained; the export is checked on them anyway, and its card leaves out "
    "the names of the classes"
)
ABSENT = "the export is checked on random images, and its card leaves out the names of the classes"
TOLERANCE = 1e-4  # relative to the largest value of any embedding; float32 rounding is about 1e-6


@dataclass(frozen=True)
class Difference:
    """Largest difference between an export and the run's encoder, and the largest value."""

    what: str
    largest: float
    scale: float
    images: int
    kind: str  # singular noun for the images

    @property
    def relative(self) -> float:
        return self.largest / max(self.scale, 1e-12)

    def __str__(self) -> str:
        return (
            f"{self.what}: largest difference {self.largest:.2g} on {counted(self.images, self.kind)} "
            f"(embeddings reach {self.scale:.3g})"
        )


@dataclass(frozen=True)
class Exported:
    """The folder, its files, and the difference of each format from the run's encoder."""

    folder: Path
    files: tuple[str, ...]
    differences: tuple[Difference, ...]


def export_run(
    run: Run,
    out: str | Path | None = None,
    *,
    onnx: bool = False,
    machine: Machine | None = None,
    data: Dataset | None = None,
    tolerance: float = TOLERANCE,
    callback: Callback | None = None,
) -> Exported:
    """Write the encoder of a finished run for plain PyTorch, Hugging Face and, on request, ONNX.

    The export is compared with the run's encoder on test images of the run, or on random ones if those are unavailable.

    Args:
        out: the folder; by default `export` in the run's. An earlier export is replaced, anything else is refused.
        onnx: also write model.onnx (extra `onnx`).
        machine: where datasets are.
        data: the `Dataset` of a run that was fitted on one.
        tolerance: largest difference allowed, relative to the largest value of the embeddings.
        callback: receives progress and notes; silent by default.

    Example:
        >>> exported = export_run(Run.open("runs/photos"), onnx=True)  # doctest: +SKIP
        >>> print(exported.differences[0])  # doctest: +SKIP
    """
    target = Path(out) if out is not None else run.folder / "export"
    _check_target(target)
    if onnx:
        check_onnx_installed()
    backbone, facts = read_encoder(run.folder / ENCODER)
    source = model_source(backbone)  # refuses other networks before data are read
    make_writable(target.parent)
    callback = callback or Callback()
    found = _available_data(run, data, machine or Machine(), callback)
    names = None
    if found is None:
        sample = sample_of(random_images(facts, CHECK_IMAGES), "random image", backbone, facts)
    else:
        sample = sample_of(found.limited(None, CHECK_IMAGES).test, "test image", backbone, facts)
        if found.fingerprint() == run.result["data"]:
            names = found.coarse_names
        else:
            callback.on_message(OTHER_IMAGES)
    if onnx:
        callback.on_message("converting the encoder to ONNX; this takes a while")
    try:
        with one_at_a_time(target.parent):
            scratch = target.with_name(f".{target.name}-scratch")
            _clear(scratch, target)  # of a killed export
            try:
                folder = scratch / target.name
                folder.mkdir(parents=True)
                differences = _fill(folder, run, names, backbone, facts, source, sample, onnx, tolerance)
                files = tuple(sorted(path.name for path in folder.iterdir()))
                if target.exists():
                    target.rename(scratch / REPLACED)
                folder.rename(target)
                sync_folder(target.parent)
            finally:
                _clear(scratch, target)
    except OSError as error:
        raise MaskconError(
            f"could not write {target}: {error.strerror or error}; choose another --out"
        ) from error
    return Exported(target, files, differences)


def _clear(scratch: Path, target: Path) -> None:
    """Remove the scratch folder; first move an earlier export in it back to its place."""
    if (scratch / REPLACED).exists() and not target.exists():
        (scratch / REPLACED).rename(target)
    shutil.rmtree(scratch, ignore_errors=True)


def _available_data(run: Run, given: Dataset | None, machine: Machine, callback: Callback) -> Dataset | None:
    """Load the run's data; None, with a message, if they are not on this machine."""
    try:
        return load_dataset(given or run.source, run.config, machine, callback)
    except UsageError as error:
        if given is not None:
            raise
        callback.on_message(f"{error}; until then {ABSENT}")
        return None


def _fill(
    folder: Path,
    run: Run,
    coarse_names: Sequence[str] | None,
    backbone: Backbone,
    facts: EncoderFacts,
    source: str,
    sample: Sample,
    onnx: bool,
    tolerance: float,
) -> tuple[Difference, ...]:
    preprocessing = Preprocessing(
        **{field.name: getattr(facts, field.name) for field in fields(Preprocessing)}
    )
    embedder = Embedder(backbone, preprocessing)
    details = {
        "features": backbone.features,
        "backbone": facts.backbone,
        "encoder_sha256": run.encoder_digest(),
        "maskcon_version": __version__,
    }
    tensors = {name: value.detach().cpu().contiguous() for name, value in embedder.state_dict().items()}
    for name, content in {
        MODEL: source.encode(),
        WEIGHTS: safetensors.torch.save(tensors, metadata={"format": "pt"}),
        CONFIG: _config(preprocessing, details),
        HUGGING_FACE: resources.files("maskcon.export").joinpath("modeling_maskcon.txt").read_bytes(),
    }.items():
        write_synced(folder / name, content)
    plain = _module(folder / MODEL).load(folder)
    with torch.no_grad():
        found = {
            "PyTorch": plain(sample.pixel_values),
            "PyTorch, from images": plain.encode(sample.images),
        }
    if onnx:
        inputs = {"preprocessing": asdict(preprocessing), **details}
        write_onnx(embedder, folder, inputs)
        found["ONNX"] = run_onnx(folder, sample.pixel_values)
    differences = tuple(_difference(what, values, sample) for what, values in found.items())
    for difference in differences:
        if not difference.relative <= tolerance:  # NaN is refused too
            raise MaskconError(
                f"the export does not compute what the run does: {difference}, with a tolerance of {tolerance:g}; "
                "nothing was written"
            )
    checks = [str(difference) for difference in differences]
    card = card_text(run, coarse_names, preprocessing, backbone.features, checks=checks, onnx=onnx).encode()
    write_synced(folder / CARD, card)
    sums = (checksums({path.name: path.read_bytes()}) for path in sorted(folder.iterdir()) if path.is_file())
    write_synced(folder / SUMS, b"".join(sums))
    sync_folder(folder)
    return differences


def _config(preprocessing: Preprocessing, details: Mapping[str, object]) -> bytes:
    """Return config.json, read by `transformers` and by `model.py`."""
    code = HUGGING_FACE.removesuffix(".py")
    values = {
        "model_type": MODEL_TYPE,
        "architectures": ["MaskConModel"],
        "auto_map": {"AutoConfig": f"{code}.MaskConConfig", "AutoModel": f"{code}.MaskConModel"},
        "torch_dtype": "float32",
        "preprocessing": asdict(preprocessing),
        **details,
    }
    return (json.dumps(values, indent=2) + "\n").encode()


def _difference(what: str, found: Tensor, sample: Sample) -> Difference:
    expected = sample.expected
    if found.shape != expected.shape:
        raise MaskconError(
            f"{what} gives embeddings {list(found.shape)}, the run's encoder {list(expected.shape)}"
        )
    largest = float((found.double() - expected.double()).abs().max())
    return Difference(what, largest, float(expected.abs().max()), len(expected), sample.kind)


def _module(path: Path) -> ModuleType:
    """Load the file as a module under a unique name, without leaving a compiled file beside it."""
    module = ModuleType(f"maskcon_exported_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses look up their module when they are created
    try:
        exec(compile(path.read_text(encoding="utf-8"), path, "exec"), module.__dict__)
    finally:
        del sys.modules[module.__name__]
    return module


def _check_target(target: Path) -> None:
    """Refuse to replace anything but an unmodified earlier export."""
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    try:
        config = json.loads((target / CONFIG).read_text(encoding="utf-8"))
        is_ours = config["model_type"] == MODEL_TYPE
    except (OSError, ValueError, KeyError, TypeError):
        is_ours = False
    if not is_ours or not (states := file_states(target, what="the export")):
        raise UsageError(f"{target} exists and is not an earlier export; choose another --out")
    others = sorted(path.name for path in target.iterdir() if path.name not in WRITTEN)
    if others:
        raise UsageError(
            f"{target} holds other files than an earlier export ({some(others)}); choose another --out"
        )
    if CHANGED in states.values():
        edited = target / next(name for name, state in states.items() if state == CHANGED)
        raise UsageError(f"{edited} was edited after it was exported; move it away, or choose another --out")
