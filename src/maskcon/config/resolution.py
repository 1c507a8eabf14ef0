"""The settings of a run, put together: preset, data set, method, what was chosen for these pictures, what was given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from maskcon._utils.errors import UsageError, unknown
from maskcon.config.presets import (
    CHOSEN_IN,
    FREEZE,
    FREEZE_METHODS,
    FROZEN,
    METHOD_REASONS,
    METHOD_SETTINGS,
    PAPER_W_TAU,
    PRESETS,
    RISES,
    SOURCE_SETTINGS,
    Settings,
)
from maskcon.config.settings import HUGGING_FACE_PREFIX, RunConfig


@dataclass(frozen=True)
class Resolved:
    """Settings, and where each value that is not a plain default came from."""

    config: RunConfig
    reasons: Mapping[str, str]


# setting, its value, when it applies (in this order, never to a setting that is given), and why
_RULES: tuple[tuple[str, Any, Callable[[Mapping[str, Any]], bool], str], ...] = (
    (
        "relation_space",
        "features",
        lambda s: s["relation_space"] == "hog" and s["weights"] is not None,
        "pretrained features find better neighbours than HOG",
    ),
    (
        "keys",
        "encoder",
        lambda s: s["keys"] == "means" and s["relation_space"] != "hog",
        "neighbours are found by comparing keys, and a mean says little about a single image",
    ),
    (
        "weak_queries",
        0.0,
        lambda s: s["weak_queries"] > 0 and s["relation_space"] != "hog",
        "without HOG neighbours the strong views have to teach",
    ),
    (
        "weights",
        None,
        lambda s: s["freeze"] is True and str(s["backbone"]).startswith(HUGGING_FACE_PREFIX),
        "the backbone brings its own",
    ),
)


def resolve(
    source: str,
    *,
    method: str,
    preset: str,
    overrides: Mapping[str, Any],
    chosen: Settings | None = None,
) -> Resolved:
    """Preset, then the data set's values, then the method's, then those of freeze=yes; `overrides` wins.

    chosen: automatic choices for this data with their reasons, see `maskcon.training.automatic`.

    >>> resolve("embedded", method="grafit", preset="cpu", overrides={"epochs": 3}).config.epochs
    3
    """
    if preset not in PRESETS:
        raise unknown("preset", preset, PRESETS)
    for key in ("source", "method", "preset"):
        if key in overrides:
            raise UsageError(f"{key} is not a setting to change: it has an argument of its own")
    freeze = overrides["freeze"] if "freeze" in overrides else (chosen or {}).get("freeze", (False,))[0]
    settled: Settings = {
        **PRESETS[preset],
        **SOURCE_SETTINGS[preset].get(source, {}),
        **method_settings(source, method=method, preset=preset),
        **(frozen_settings(method) if freeze is True else {}),
        **(chosen or {}),
        **{key: (value, "given") for key, value in overrides.items()},
        **{"source": (source, "given"), "method": (method, "given"), "preset": (preset, "given")},
    }
    for epochs, share in RISES.items():  # who says how many epochs means those
        if epochs in overrides and share not in overrides:
            settled[share] = (0.0, f"{epochs} was given")
    for key, value, applies, reason in _RULES:
        if key not in overrides and applies({name: pair[0] for name, pair in settled.items()}):
            settled[key] = (value, reason)
    values = {key: value for key, (value, _) in settled.items()}
    reasons = {key: reason for key, (_, reason) in settled.items()}
    return Resolved(RunConfig.build(values), reasons)


def frozen_settings(method: str) -> Settings:
    """What freeze=yes sets for a method.

    >>> frozen_settings("grafit")["w"]
    (0.8, 'for grafit: ours, for a frozen backbone')
    """
    own = FREEZE_METHODS.get(method, {})
    return FREEZE | {key: (value, f"for {method}: {FROZEN}") for key, value in own.items()}


def method_settings(source: str, *, method: str, preset: str) -> Settings:
    """The method's own values: those of the paper's table for this data set, else the preset's.

    >>> method_settings("sop-split2", method="coins", preset="paper")
    {'w': (0.2, 'for coins: paper, appendix A, table of hyperparameters')}
    """
    own = METHOD_SETTINGS[preset].get(method, {})
    where = METHOD_REASONS["cpu" if method == "teachcon" else preset]  # the paper has no TeachCon
    found: Settings = {key: (value, f"for {method}: {where}") for key, value in own.items()}
    if preset in ("cpu", "fast"):
        return found
    w, tau = PAPER_W_TAU.get(source, {}).get(method, (None, None))
    reason = f"for {method}: {CHOSEN_IN.get(source, '')}"
    found.update({key: (value, reason) for key, value in (("w", w), ("tau", tau)) if value is not None})
    return found
