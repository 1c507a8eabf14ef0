"""Describe finished runs: the reason of every setting, the command that repeats a run, a summary."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from maskcon._utils.errors import MaskconError
from maskcon._utils.text import counted, duration, full_title
from maskcon.config.resolution import resolve
from maskcon.config.settings import Machine, RunConfig
from maskcon.data import Dataset
from maskcon.data.builtin.registry import SOURCES
from maskcon.methods.registry import method_named
from maskcon.models.backbones import has_own_shape
from maskcon.report.tables import shown_name
from maskcon.report.write import setting_text
from maskcon.training.run_folder import CHOICES, ENVIRONMENT, short_name

if TYPE_CHECKING:
    from maskcon.api import Run

CLASSES_NAMED = 12
OWN_OPTIONS = ("w", "tau", "epochs", "seed", "thaw")  # settings that `maskcon train` has an option for
ARGUMENTS = ("source", "method", "preset", "freeze")
# Settings chosen automatically for a user's own images: the command names all, so that any machine uses the same.
MAY_BE_CHOSEN = ("backbone", "weights", "image_size", "batch_size", "bank_size", "epochs")


def reasons_of(run: Run) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the reason of each setting of a run, and the settings that a command must name to repeat it."""
    config = run.config
    overrides = {"freeze": True} if config.freeze else {}
    try:
        base = resolve(config.source, method=config.method, preset=config.preset, overrides=overrides)
    except MaskconError:  # a preset of another version
        base = resolve(config.source, method=config.method, preset="cpu", overrides=overrides)
    before, chosen = base.config.model_dump(), _chosen(run.folder)
    reasons: dict[str, str] = {}
    named = set() if config.source in SOURCES else set(MAY_BE_CHOSEN)
    for key, value in config.model_dump().items():
        if key in chosen and chosen[key][0] == value:
            reasons[key] = f"chosen: {chosen[key][1]}"
            named.add(key)
        elif value == before[key] and not (key in ARGUMENTS and value):
            reasons[key] = base.reasons.get(key, "default")
        else:
            reasons[key] = "given" if before[key] is not None else "given, or set by the data"
            named.add(key)
    values = config.model_dump()
    return reasons, {key: values[key] for key in values if key in named and key not in ARGUMENTS}


def train_command(run: Run, given: Mapping[str, Any], machine: Machine) -> str:
    """Return the command that trains the run again, from any directory, into a folder beside its own."""
    config = run.config
    source = str(run.result.get("source_path", config.source))
    words = ["maskcon", "train", source, "--method", config.method, "--preset", config.preset]
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
    folder = run.folder.resolve() if run.folder.name in ("", "..") else run.folder  # `maskcon report .`
    return shlex.join([*words, "--out", str(folder.with_name(f"{folder.name}-again"))])


def about(runs: Sequence[Run], data: Dataset) -> list[tuple[str, str]]:
    """Describe data, method, encoder and training of one run, or of several on the same data."""
    config = runs[0].config
    channels, height, width = data.train.images.shape[1:]
    scored = "held out of training to score on" if config.evaluate_on == "validation" else "to score on"
    labels = np.concatenate([data.train.coarse, data.test.coarse])
    counts = np.bincount(labels, minlength=len(data.coarse_names)).tolist()
    named = [f"{name} ({count:,})" for name, count in zip(data.coarse_names, counts, strict=True)]
    rest = len(named) - CLASSES_NAMED
    fine = (
        f"{len(data.fine_names)} known, used for scoring only unless the method says otherwise"
        if data.test.fine is not None and data.fine_names is not None
        else "none known: training needs none, but without them nothing measures how well finer kinds separate"
    )
    plans = (
        f"{counted(c.epochs, 'epoch')} in batches of {c.batch_size}" for c in (run.config for run in runs)
    )
    seconds = sum(float(run.result.get("seconds") or 0) for run in runs)
    number = f"; {counted(len(runs), 'run')} together" if len(runs) > 1 else ""
    seeds = ", ".join(dict.fromkeys(str(run.config.seed) for run in runs))
    methods = dict.fromkeys(_method(run.config) for run in runs)
    software = dict.fromkeys(filter(None, (_software(run.folder) for run in runs)))
    return [
        (
            "Images",
            f"{short_name(config.source)}: {counted(len(data.train), 'image')} to train on, {len(data.test):,} "
            f"{scored}; {'grey' if channels == 1 else 'colour'}, kept at "
            f"{'up to ' if data.train.sizes is not None else ''}{width} x {height} pixels",
        ),
        (
            "Coarse classes",
            f"{len(named)}: {', '.join(named[:CLASSES_NAMED])}" + (f" and {rest} more" if rest > 0 else ""),
        ),
        ("Fine labels", fine),
        ("Method" if len(methods) == 1 else "Methods", "; ".join(methods)),
        ("Encoder", "; ".join(dict.fromkeys(_encoder(run.config) for run in runs))),
        ("Training", f"{', '.join(dict.fromkeys(plans))}; seed {seeds}{number}; {duration(seconds)}"),
        *([("Software", "; ".join(software))] if software else []),
        *(("Note", note) for note in data.notes),
    ]


def _chosen(folder: Path) -> dict[str, tuple[Any, str]]:
    """Read the automatic choices: setting -> value and reason; empty where the file cannot be read."""
    try:
        entries = json.loads((folder / CHOICES).read_text(encoding="utf-8"))["choices"]
        return {key: (value, str(e["reason"])) for e in entries for key, value in e["settings"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _method(config: RunConfig) -> str:
    try:
        method = method_named(config.method)
    except MaskconError:  # one that another package registers
        return shown_name(config.method, config.coarse_weight)
    labels = {"none": "no labels", "coarse": "the coarse labels", "fine": "the FINE labels"}[method.labels]
    is_mentioned = config.coarse_weight == 0 or "cross-entropy" in method.summary
    beside = "" if is_mentioned else "; plus cross-entropy on the coarse labels"
    if method.uses_tau and config.uses_hog:
        beside += "; similarities are those of HOG features, not of learnt keys"
    if method.contrasts and config.uses_hog:
        beside += "; from the second epoch on, keys are running means of an image's own queries"
    title = full_title(method.title, config.coarse_weight)
    return f"{title}, trained on {labels}: {method.summary.rstrip('.')}{beside}"


def _encoder(config: RunConfig) -> str:
    start = {None: "from random weights", "imagenet": "from ImageNet weights"}.get(
        config.weights, f"from the weights {config.weights}"
    )
    if config.freeze:
        part = config.frozen_part
        text = f"{config.backbone} {start}, {part}, under a trained linear layer that starts as the identity"
    else:
        width = "" if has_own_shape(config.backbone) else f", width {config.width}"
        text = f"{config.backbone}{width}, {start}"
    return f"{text}; views of {config.image_size} px"


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
