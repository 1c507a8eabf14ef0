"""Origin of a finished run: the reason of every setting, the command that repeats it, and a description."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from maskcon._utils.errors import MaskconError
from maskcon._utils.text import counted, duration, full_title
from maskcon.config.resolution import Resolved, resolve
from maskcon.config.settings import Machine, RunConfig
from maskcon.data import Dataset
from maskcon.data.builtin.registry import SOURCES
from maskcon.methods.registry import method_named
from maskcon.models.backbones import has_own_shape
from maskcon.report.run_settings import setting_text
from maskcon.report.tables import shown_name
from maskcon.training.run_folder import CHOICES, ENVIRONMENT, short_name
from maskcon.training.setup import settle

if TYPE_CHECKING:
    from maskcon.api import Run

CLASSES_NAMED = 12
OWN_OPTIONS = ("w", "tau", "epochs", "seed")  # settings that `maskcon train` has an option for
ARGUMENTS = ("source", "method", "preset")
# Settings chosen automatically for a user's own images: named in full, so that another machine uses the same.
MAY_BE_CHOSEN = ("backbone", "weights", "image_size", "batch_size", "bank_size", "epochs")


@dataclass(frozen=True)
class Provenance:
    """reasons: setting -> where its value comes from; given: what the command must name to get these values."""

    reasons: Mapping[str, str]
    given: Mapping[str, Any]


def provenance(run: Run, data: Dataset | None) -> Provenance:
    """Compare a run's settings with those that preset, dataset and method give on the same data.

    data: of the run; without it (None), settings that depend on the data count as given.
    """
    config = run.config
    base = _base(config)
    values = config.model_dump()
    before = base.config.model_dump()
    settled = before if data is None else _settled(base.config, data)
    chosen = _chosen(run.folder)
    reasons: dict[str, str] = {}
    given: dict[str, Any] = {}
    for key, value in values.items():
        was_chosen = key in chosen and chosen[key][0] == value
        if key in ARGUMENTS or (key == "freeze" and value):  # these have words of their own in a command
            reasons[key] = f"chosen: {chosen[key][1]}" if was_chosen else "given"
        elif was_chosen:
            reasons[key], given[key] = f"chosen: {chosen[key][1]}", value
        elif value == before[key]:
            reasons[key] = base.reasons.get(key, "default")
        elif value == settled[key]:
            reasons[key] = "set by the data"
        else:
            reasons[key], given[key] = "given", value
    if config.source not in SOURCES:
        given |= {key: values[key] for key in MAY_BE_CHOSEN}
    return Provenance(reasons, {key: values[key] for key in values if key in given})


def train_command(run: Run, given: Mapping[str, Any], machine: Machine, *, elsewhere: bool = False) -> str:
    """Return the command that trains the run again, into a folder beside its own.

    elsewhere: the run was started in another directory, so the path of the new folder is absolute.
    """
    config = run.config
    words = ["maskcon", "train", config.source, "--method", config.method, "--preset", config.preset]
    words += ["--freeze"] if config.freeze else []
    for key in OWN_OPTIONS:
        if key in given or key == "seed":
            words += [f"--{key}", setting_text(getattr(config, key))]
    for key, value in given.items():
        if key not in OWN_OPTIONS:
            words += ["--set", f"{key}={setting_text(value)}"]
    processes = int(run.result.get("processes") or 1)
    words += ["--devices", str(processes)] if processes > 1 else []
    words += [] if machine.data_root is None else ["--data-root", machine.data_root]
    return shlex.join([*words, "--out", str(_beside(run.folder.resolve() if elsewhere else run.folder))])


def _beside(folder: Path) -> Path:
    """Return the folder to train a run again in."""
    named = folder.resolve() if folder.name in ("", "..") else folder  # `maskcon report .`
    return named.with_name(f"{named.name}-again")


def about(runs: Sequence[Run], data: Dataset) -> list[tuple[str, str]]:
    """Describe data, method, encoder and training of one run, or of several on the same data."""
    facts = [
        ("Images", _images(runs[0], data)),
        ("Coarse classes", _classes(data)),
        ("Fine labels", _fine(data)),
    ]
    methods = dict.fromkeys(_method(run.config) for run in runs)
    facts.append(("Method" if len(methods) == 1 else "Methods", "; ".join(methods)))
    facts.append(("Encoder", "; ".join(dict.fromkeys(_encoder(run.config) for run in runs))))
    facts.append(("Training", _training(runs)))
    software = dict.fromkeys(filter(None, (_software(run.folder) for run in runs)))
    facts += [("Software", "; ".join(software))] if software else []
    facts += [("Note", note) for note in data.notes]
    return facts


def _base(config: RunConfig) -> Resolved:
    """Resolve the settings from source, method, preset and freeze alone."""
    overrides = {"freeze": True} if config.freeze else {}
    try:
        return resolve(config.source, method=config.method, preset=config.preset, overrides=overrides)
    except MaskconError:  # a preset of another version
        return resolve(config.source, method=config.method, preset="cpu", overrides=overrides)


def _settled(base: RunConfig, data: Dataset) -> dict[str, Any]:
    try:
        return settle(base, data).model_dump()
    except MaskconError:  # the base settings do not suit these data; then all was given
        return base.model_dump()


def _chosen(folder: Path) -> dict[str, tuple[Any, str]]:
    """Read the automatic choices: setting -> value and reason; empty where the file cannot be read."""
    try:
        entries = json.loads((folder / CHOICES).read_text(encoding="utf-8"))["choices"]
        return {key: (value, str(e["reason"])) for e in entries for key, value in e["settings"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _images(run: Run, data: Dataset) -> str:
    channels, height, width = data.train.images.shape[1:]
    scored = "held out of training to score on" if run.config.evaluate_on == "validation" else "to score on"
    kind = "grey" if channels == 1 else "colour"
    name = short_name(run.config.source)
    return (
        f"{name}: {counted(len(data.train), 'image')} to train on, {len(data.test):,} {scored}; "
        f"{kind}, kept at {'up to ' if data.train.sizes is not None else ''}{width} x {height} pixels"
    )


def _classes(data: Dataset) -> str:
    labels = np.concatenate([data.train.coarse, data.test.coarse])
    counts = np.bincount(labels, minlength=len(data.coarse_names)).tolist()
    named = [f"{name} ({count:,})" for name, count in zip(data.coarse_names, counts, strict=True)]
    rest = len(named) - CLASSES_NAMED
    shown = ", ".join(named[:CLASSES_NAMED]) + (f" and {rest} more" if rest > 0 else "")
    return f"{len(named)}: {shown}"


def _fine(data: Dataset) -> str:
    if data.test.fine is None or data.fine_names is None:
        return "none known: training needs none, but without them the separation of finer kinds cannot be measured"
    return f"{len(data.fine_names)} known, used for scoring only unless the method says otherwise"


def _method(config: RunConfig) -> str:
    try:
        method = method_named(config.method)
    except MaskconError:  # one that another package registers
        return shown_name(config.method, config.coarse_weight)
    seen = {"none": "no labels", "coarse": "the coarse labels", "fine": "the FINE labels"}[method.labels]
    beside = "; plus cross-entropy on the coarse labels" if config.coarse_weight > 0 else ""
    if method.uses_tau and config.relation_space == "hog":
        beside += "; similarities are those of HOG features, not of learnt keys"
    if method.contrasts and config.uses_hog:
        beside += "; from the second epoch on, keys are running means of an image's own queries"
    title = full_title(method.title, config.coarse_weight)
    return f"{title}, trained on {seen}: {method.summary.rstrip('.')}{beside}"


def _encoder(config: RunConfig) -> str:
    start = {None: "from random weights", "imagenet": "from ImageNet weights"}.get(
        config.weights, f"from the weights {config.weights}"
    )
    if config.freeze:
        text = f"{config.backbone} {start}, frozen, under a trained linear layer that starts as the identity"
    else:
        width = "" if has_own_shape(config.backbone) else f", width {config.width}"
        text = f"{config.backbone}{width}, {start}"
    return f"{text}; views of {config.image_size} px"


def _training(runs: Sequence[Run]) -> str:
    plans = dict.fromkeys(
        f"{counted(run.config.epochs, 'epoch')} in batches of {run.config.batch_size}" for run in runs
    )
    seconds = sum(float(run.result.get("seconds") or 0) for run in runs)
    number = f"; {counted(len(runs), 'run')} together" if len(runs) > 1 else ""
    seeds = ", ".join(dict.fromkeys(str(run.config.seed) for run in runs))
    return f"{', '.join(plans)}; seed {seeds}{number}; {duration(seconds)}"


def _software(folder: Path) -> str:
    try:
        values = json.loads((folder / ENVIRONMENT).read_text(encoding="utf-8"))
        packages = values["packages"]
        return (
            f"maskcon {packages['maskcon']}, torch {packages['torch']}, Python {values['python']}, "
            f"on {values['device']} with {counted(int(values['threads']), 'thread')}"
        )
    except (OSError, ValueError, KeyError, TypeError):
        return ""
