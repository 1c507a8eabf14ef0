"""Settings of earlier versions: finished runs open, stopped ones are not resumed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from maskcon._utils.errors import UsageError

# Another value made another network, or other data: such a run cannot be opened.
SHAPING: Mapping[str, Any] = {
    "norm": "batch",
    "projector_norm": "none",
    "earlier_weight": 0.5,
    "head_features": 256,
    "freeze_seed": 0,
    "validation_fraction": 0.2,
}
# Details on which the paper's text and its published code differ; now `RunConfig.protocol`.
PROTOCOL = ("source_variant", "test_resize", "drop_last", "eval_when", "exclude_own_keys")
RISES = {"warmup_epochs": "warmup_share", "relation_warmup_epochs": "relation_warmup_share"}
GONE = {
    *(*SHAPING, *PROTOCOL, *RISES.values()),
    *(
        "channels_last",
        "final_statistics",
        "freeze_views",
        "key_batchnorm",
        "key_buffers",
        "key_update",
        "keys",
    ),
    *("means_kept", "momentum", "nesterov", "prime_bank", "projector_hidden", "schedule", "track_bound"),
    *("view_engine", "weak_queries"),
}


def translate(values: Mapping[Any, Any], path: Path) -> dict[Any, Any]:
    """Translate settings of any version to this one; errors name `path`."""
    for key, fixed in SHAPING.items():
        if values.get(key, fixed) != fixed:
            raise UsageError(
                f"{path} sets {key}, which is always {fixed} now; open it with the version that trained it, "
                "or train again in another --out"
            )
    now = {key: value for key, value in values.items() if key not in GONE}
    for epochs, share in RISES.items():
        numbers = values.get(epochs, 0.0), values.get(share), values.get("epochs")
        if all(isinstance(number, int | float) for number in numbers):
            now[epochs] = max(values.get(epochs, 0.0), round(values[share] * values["epochs"], 3))
    if "protocol" not in values and any(key in values for key in PROTOCOL):
        # the grouping of the classes decides where the others disagree: the data must be those of the run
        now["protocol"] = values.get("source_variant", "paper")
    return now


def refuse_to_resume(values: Mapping[Any, Any], path: Path) -> None:
    """Raise if the run of a config.yaml was started by a version with other settings."""
    # these now follow from other settings, as they always did in the presets
    derived: dict[str, Any] = {"schedule": "linear" if values.get("optimizer") == "muon" else "cosine"}
    if isinstance(values.get("projection_dim"), int):
        derived["projector_hidden"] = min(512, 4 * values["projection_dim"])
    gone = sorted(key for key in GONE.intersection(values) if derived.get(key) != values[key])
    if gone:
        raise UsageError(
            f"the run of {path} was started by an earlier version, which had the setting {gone[0]}; "
            "finish it with that version, or choose another --out"
        )
