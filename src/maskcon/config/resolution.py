"""The settings of a run, put together: preset, data set, method, what was chosen for these pictures, what was given."""

from __future__ import annotations

from collections.abc import Mapping
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
    if _outlines_are_outdone(settled, overrides):
        settled["relation_space"] = ("features", "weights that have learnt see more than outlines show")
    if _means_would_mislead(settled, overrides):
        settled["keys"] = ("encoder", "neighbours are looked for by keys")
    if _weak_queries_would_teach_little(settled, overrides):
        settled["weak_queries"] = (0.0, "the strong views have to teach what outlines would have told")
    if (
        freeze is True
        and "weights" not in overrides
        and str(settled["backbone"][0]).startswith(HUGGING_FACE_PREFIX)
    ):
        settled["weights"] = (None, "the backbone brings its own")
    values = {key: value for key, (value, _) in settled.items()}
    reasons = {key: reason for key, (_, reason) in settled.items()}
    return Resolved(RunConfig.build(values), reasons)


def _outlines_are_outdone(settled: Settings, overrides: Mapping[str, Any]) -> bool:
    """Whether a run of the preset starts from weights that find better neighbours than it would without any."""
    by_outlines = settled["relation_space"][0] == "hog" and "relation_space" not in overrides
    return by_outlines and settled["weights"][0] is not None


def _means_would_mislead(settled: Settings, overrides: Mapping[str, Any]) -> bool:
    """Whether relations of a run of the preset would compare keys: means say little of an image, one by one."""
    by_means = settled["keys"][0] == "means" and "keys" not in overrides
    return by_means and settled["relation_space"][0] != "hog"


def _weak_queries_would_teach_little(settled: Settings, overrides: Mapping[str, Any]) -> bool:
    """Whether a run of the preset would have weak queries and no outlines, by which they are related to others."""
    by_preset = settled["weak_queries"][0] > 0 and "weak_queries" not in overrides
    return by_preset and settled["relation_space"][0] != "hog"


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
    found: Settings = {key: (value, f"for {method}: {METHOD_REASONS[preset]}") for key, value in own.items()}
    if preset in ("cpu", "fast"):
        return found
    w, tau = PAPER_W_TAU.get(source, {}).get(method, (None, None))
    reason = f"for {method}: {CHOSEN_IN.get(source, '')}"
    found.update({key: (value, reason) for key, value in (("w", w), ("tau", tau)) if value is not None})
    return found
