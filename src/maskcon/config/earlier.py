"""Settings of earlier versions in config.yaml: how they are read, and when their run can be resumed.

A finished run of an earlier version can be opened. A stopped one can be resumed only if every setting that is gone had
the value that is fixed now.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from maskcon._utils.errors import UsageError

# Details on which the paper's text and its published code differ, by `RunConfig.protocol`.
PROTOCOLS: Mapping[str, Mapping[str, Any]] = {
    "paper": {
        "source_variant": "paper",
        "test_resize": "shorter",
        "drop_last": False,
        "eval_when": "after",
        "exclude_own_keys": True,
    },
    "reference": {
        "source_variant": "reference",
        "test_resize": "both",
        "drop_last": True,
        "eval_when": "before",
        "exclude_own_keys": False,
    },
}

# Another value makes another network, or other data: such a run cannot be opened.
SHAPING: Mapping[str, Any] = {
    "norm": "batch",
    "projector_norm": "none",
    "earlier_weight": 0.5,
    "head_features": 256,
    "freeze_seed": 0,
    "validation_fraction": 0.2,
}
# Another value trains otherwise: such a run can be opened, not resumed.
FIXED: Mapping[str, Any] = {
    "channels_last": True,
    "final_statistics": 0,
    "freeze_views": 3,
    "key_batchnorm": "train",
    "key_buffers": "own",
    "key_update": "before",
    "means_kept": 0.5,
    "momentum": 0.9,
    "nesterov": False,
    "prime_bank": True,
}
# Fixed by the other settings, see `_fixed`; `view_engine` is a fact about the run, see `maskcon.training.setup`.
DERIVED = ("keys", "weak_queries", "warmup_share", "relation_warmup_share", "track_bound", "view_engine")
RISES = {"warmup_epochs": "warmup_share", "relation_warmup_epochs": "relation_warmup_share"}


def translate(values: Mapping[Any, Any], path: Path) -> dict[Any, Any]:
    """Return settings of any version as settings of this one; `path` is named in the refusal."""
    gone = {*SHAPING, *FIXED, *DERIVED, *PROTOCOLS["paper"]}
    now = {key: value for key, value in values.items() if key not in gone}
    for key, fixed in SHAPING.items():
        if values.get(key, fixed) != fixed:
            raise UsageError(
                f"{path} sets {key}, which is always {fixed} now; open it with the version that trained it, "
                "or train again in another --out"
            )
    for epochs, share in RISES.items():
        numbers = values.get(epochs, 0.0), values.get(share), values.get("epochs")
        if all(isinstance(number, int | float) for number in numbers):
            now[epochs] = max(values.get(epochs, 0.0), round(values[share] * values["epochs"], 3))
    if "protocol" not in values and PROTOCOLS["paper"].keys() & values.keys():
        # the grouping of the classes decides where the others disagree: the data must be those of the run
        now["protocol"] = values.get("source_variant", "paper")
    return now


def refuse_to_resume(values: Mapping[Any, Any], path: Path) -> None:
    """Raise where the run of a config.yaml was begun with what this version does not have."""
    fixed = _fixed(values)
    for key, value in values.items():
        if key in fixed and value != fixed[key]:
            raise UsageError(
                f"the run of {path} was begun with {key}={value}, which is always {fixed[key]} now; "
                "finish it with the version that began it, or choose another --out"
            )


def _fixed(values: Mapping[Any, Any]) -> dict[str, Any]:
    """Return what each removed setting has to be."""
    hog = values.get("relation_space") == "hog"
    protocol = values.get("protocol", values.get("source_variant", "paper"))
    return {
        **FIXED,
        **PROTOCOLS.get(protocol, {}),
        "keys": "means" if hog else "encoder",
        "weak_queries": 0.5 if hog else 0.0,
    }
