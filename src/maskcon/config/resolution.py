"""The settings of a run, put together: preset, data set, method, what was chosen for these pictures, what was given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from maskcon._utils.errors import UsageError, unknown
from maskcon.config.presets import FREEZE, METHOD_SETTINGS, PRESETS, SOURCE_SETTINGS, Settings
from maskcon.config.settings import HUGGING_FACE_PREFIX, RunConfig

WARMUP_SHARE = 0.3  # of a run by Muon under the preset `fast`


def warms_up_long(preset: str, optimizer: Any) -> bool:
    """Whether the learning rate rises over a share of the run: under `fast`, by Muon."""
    return preset == "fast" and optimizer == "muon"


def long_warmup(epochs: int) -> float:
    """Return `warmup_epochs` of a run that warms up long.

    >>> long_warmup(30), long_warmup(2)
    (9.0, 1.0)
    """
    return max(1.0, round(WARMUP_SHARE * epochs, 3))


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
    pretrained = settled["weights"][0] is not None
    if "relation_space" not in overrides and settled["relation_space"][0] == "hog" and pretrained:
        settled["relation_space"] = ("features", "pretrained features find better neighbours than HOG")
    own_weights = str(settled["backbone"][0]).startswith(HUGGING_FACE_PREFIX)
    if "weights" not in overrides and freeze is True and own_weights:
        settled["weights"] = (None, "the backbone brings its own")
    if "warmup_epochs" not in overrides and warms_up_long(preset, settled["optimizer"][0]):
        epochs = settled["epochs"][0]
        if isinstance(epochs, int):  # anything else is refused below
            settled["warmup_epochs"] = (
                long_warmup(epochs),
                f"ours: {WARMUP_SHARE:g} of the epochs suit Muon",
            )
    values = {key: value for key, (value, _) in settled.items()}
    reasons = {key: reason for key, (_, reason) in settled.items()}
    return Resolved(RunConfig.build(values), reasons)


def frozen_settings(method: str) -> Settings:
    """What freeze=yes sets for a method.

    >>> frozen_settings("grafit")["w"]
    (0.8, 'for grafit: ours, for a frozen backbone')
    """
    return FREEZE | METHOD_SETTINGS.get(("frozen", "", method), {})


def method_settings(source: str, *, method: str, preset: str) -> Settings:
    """The method's own values: those of the paper's table for this data set, else the preset's.

    >>> method_settings("sop-split2", method="coins", preset="paper")
    {'w': (0.2, 'for coins: paper, appendix A, table of hyperparameters')}
    """
    under = "paper" if preset == "reference" else preset
    return METHOD_SETTINGS.get((under, "", method), {}) | METHOD_SETTINGS.get((under, source, method), {})
