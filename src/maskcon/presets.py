"""Presets: complete settings with the reason for each value.

`paper` follows the paper's text, `reference` its authors' published code wherever the two differ, and `cpu`
is ours, sized for two cores; what it sets for each method was chosen on validation data (docs/results.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from maskcon.config import RunConfig
from maskcon.errors import UsageError, unknown

Settings = dict[str, tuple[Any, str]]  # key -> value, where it comes from

_TEXT = "paper, appendix A"
_CODE = "published code"
_SILENT = "published code; the paper does not say"

PAPER: Settings = {
    "backbone": ("resnet18", "paper, section 4"),
    "width": (64, "paper, section 4"),
    "stem": ("auto", "paper, section 4: 3x3 without pooling for small images"),
    "epochs": (200, _TEXT),
    "batch_size": (128, _TEXT),
    "learning_rate": (0.02, _TEXT),
    "momentum": (0.9, _TEXT),
    "weight_decay": (5e-4, _TEXT),
    "schedule": ("cosine", _TEXT),
    "warmup_epochs": (0.0, _TEXT),
    "bank_size": (8192, _TEXT),
    "projector_hidden": (512, _TEXT),
    "projection_dim": (128, _TEXT),
    "projector_norm": ("none", _SILENT),
    "contrast_temperature": (0.1, _TEXT),
    "exclude_own_keys": (True, "paper, eq. 11: i != j"),
    "key_momentum": (0.99, _SILENT),
    "key_update": ("before", _SILENT),
    "key_buffers": ("own", _SILENT),
    "key_batchnorm": ("train", _SILENT),
    "prime_bank": (True, _SILENT),
    "relation_warmup_epochs": (0.0, "paper: w is constant"),
    "weights": (None, "the paper does not say"),
    "source_variant": ("paper", _TEXT),
    "test_resize": ("shorter", _TEXT),
    "normalise": ("dataset", "published code for CIFAR; it takes ImageNet's values for larger pictures"),
    "drop_last": (False, "ours: every image counts; the paper does not say"),
    "eval_every_epochs": (10, _SILENT),
    "eval_when": ("after", "ours: the last model is evaluated"),
}

REFERENCE: Settings = {
    **PAPER,
    "projection_dim": (256, _CODE),
    "weights": ("imagenet", _CODE),
    "warmup_epochs": (5.0, _CODE),
    "exclude_own_keys": (False, _CODE),
    "source_variant": ("reference", _CODE),
    "test_resize": ("both", _CODE),
    "drop_last": (True, _CODE),
    "eval_when": ("before", _CODE),
}

_OURS = "ours, sized for two CPU cores"

CPU: Settings = {
    **PAPER,
    "backbone": ("resnet10", _OURS),
    "width": (16, _OURS),
    "stem": ("fast", _OURS),
    "epochs": (30, _OURS),
    "batch_size": (128, _OURS),
    "learning_rate": (0.06, _OURS),
    "warmup_epochs": (1.0, _OURS),
    "bank_size": (2048, _OURS),
    "projector_hidden": (256, _OURS),
    "projection_dim": (64, _OURS),
    "relation_warmup_epochs": (4.0, "ours: from random weights, w = 1 at step 0 can collapse"),
    "eval_every_epochs": (3, _OURS),
}

PRESETS: dict[str, Settings] = {"paper": PAPER, "reference": REFERENCE, "cpu": CPU}

# w and tau of each method where the user gives none. `paper`: section 4.1's advice to start from w = 1,
# tau = tau0 for MaskCon, and for the others a weight that won on several data sets of appendix B.
METHOD_SETTINGS: dict[str, dict[str, dict[str, float]]] = {
    "paper": {
        "maskcon": {"w": 1.0, "tau": 0.1},
        "grafit": {"w": 0.8},
        "coins": {"w": 0.8},
        "ascl": {"tau": 0.1},
    },
    # The best of six settings a method by recall@1 on validation (benchmarks/embedded_table.py).
    "cpu": {
        "selfcon": {"learning_rate": 0.06, "weight_decay": 1e-4},
        "nnclr": {"learning_rate": 0.12},
        "ascl": {"tau": 0.02, "learning_rate": 0.06},
        "supce": {"learning_rate": 0.15},
        "supcon": {"learning_rate": 0.06},
        "grafit": {"w": 0.5, "learning_rate": 0.2},
        "coins": {"w": 0.8, "learning_rate": 0.2},
        "maskcon": {"w": 1.0, "tau": 0.05, "learning_rate": 0.2},
        "supfine": {"learning_rate": 0.15, "weight_decay": 2e-3},
    },
}
METHOD_SETTINGS["reference"] = METHOD_SETTINGS["paper"]
METHOD_REASONS = {
    "paper": "paper, section 4.1 and appendix B",
    "reference": "paper, section 4.1 and appendix B",
    "cpu": "ours, chosen on validation data",
}


@dataclass(frozen=True)
class Resolved:
    """Settings, and where each value that is not a plain default came from."""

    config: RunConfig
    reasons: Mapping[str, str]


def resolve(source: str, *, method: str, preset: str, overrides: Mapping[str, Any]) -> Resolved:
    """Preset, then the method's own values, then what the user says; `overrides` wins.

    >>> resolve("embedded", method="grafit", preset="cpu", overrides={"epochs": 3}).config.epochs
    3
    """
    if preset not in PRESETS:
        raise unknown("preset", preset, PRESETS)
    for key in ("source", "method", "preset"):
        if key in overrides:
            raise UsageError(f"{key} is not a setting to change: it has an argument of its own")
    values: dict[str, Any] = {key: value for key, (value, _) in PRESETS[preset].items()}
    reasons = {key: reason for key, (_, reason) in PRESETS[preset].items()}
    own = METHOD_SETTINGS[preset].get(method, {})
    values.update(own)
    reasons.update(dict.fromkeys(own, f"for {method}: {METHOD_REASONS[preset]}"))
    values.update(overrides)
    reasons.update(dict.fromkeys(overrides, "given"))
    values.update(source=source, method=method, preset=preset)
    reasons.update(dict.fromkeys(("source", "method", "preset"), "given"))
    return Resolved(RunConfig.build(values), reasons)
