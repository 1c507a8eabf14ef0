"""Facts behind automatic settings: number and size of images, device, available weights."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

from maskcon._utils.errors import CorruptFileError, MaskconError
from maskcon._utils.paths import has_file
from maskcon.config.choices import ENCODER_SETTINGS, Accelerator, Facts, pretrained_backbone
from maskcon.config.settings import VALIDATION_FRACTION, Machine, RunConfig
from maskcon.data import Dataset, image_plan
from maskcon.data.headers import labels_only, usual_side
from maskcon.data.packing import Progress
from maskcon.models.published import PUBLISHED, weights_folder
from maskcon.models.weights import locate
from maskcon.training.distributed import several_processes, usable_device
from maskcon.training.run_folder import json_bytes

PRETRAINED = "imagenet"


def look(
    source: str | Path | Dataset, config: RunConfig, machine: Machine, looking: Progress | None = None
) -> Facts:
    """Collect the facts from labels and image headers, without decoding images.

    Args:
        looking: called as looking(images done, images in total).
    """
    if isinstance(source, Dataset):
        data, part = source, source.train
        canvas = float(min(part.images.shape[2:]))
        side = canvas if part.sizes is None else float(statistics.median(part.sizes.min(axis=1).tolist()))
    else:
        plan = image_plan(
            str(source),
            root=None if machine.data_root is None else Path(machine.data_root),
            variant=config.source_variant,
            download=machine.download,
            looking=looking,
        )
        assert plan is not None  # only built-in datasets come as arrays
        data = labels_only(plan)
        side = usual_side(plan) or float(plan.job.side)
    train = len(data.train)
    if config.evaluate_on == "validation":
        train = max(1, round(train * (1 - VALIDATION_FRACTION)))
    if config.train_limit is not None:
        train = min(train, config.train_limit)
    accelerator = cast(Accelerator, usable_device(machine.device).partition(":")[0])
    return Facts(train=train, side=side, accelerator=accelerator, weights=weights_at_hand())


def weights_at_hand() -> frozenset[str]:
    """Backbones whose ImageNet weights are on this machine."""
    known = PUBLISHED[PRETRAINED]
    return frozenset(
        name for name, published in known.items() if has_file(weights_folder() / published.file_name)
    )


def with_fetched_weights(
    facts: Facts, given: Mapping[str, Any], machine: Machine, message: Callable[[str], None] | None
) -> Facts:
    """Download the weights that would be chosen, if allowed; a failure is kept as a fact.

    Args:
        given: settings of the user; where they name the encoder, nothing is downloaded.
    """
    backbone = pretrained_backbone(facts.accelerator)
    if not machine.download or ENCODER_SETTINGS & given.keys() or backbone in facts.weights:
        return facts
    if message is not None:
        message(f"fetching the pretrained weights of {backbone}")
    try:
        locate(backbone, PRETRAINED, download=True)
    except MaskconError as error:
        if several_processes(
            machine.devices
        ):  # one may reach what another does not, and all must choose the same
            raise
        reason, _, _ = str(error).partition("; ")
        return replace(facts, unfetched=reason)
    return replace(facts, weights=facts.weights | {backbone})


def facts_bytes(facts: Facts) -> bytes:
    """Return the content of a file for `read_facts`."""
    return json_bytes({**asdict(facts), "weights": sorted(facts.weights)})


def read_facts(path: Path) -> Facts:
    """Read facts that were collected before."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        accelerator = values["accelerator"]
        if accelerator not in ("cpu", "cuda", "mps"):
            raise ValueError(accelerator)
        return Facts(
            train=int(values["train"]),
            side=float(values["side"]),
            accelerator=accelerator,
            weights=frozenset(map(str, values["weights"])),
            unfetched=str(values["unfetched"]),
        )
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptFileError(
            f"{path} is damaged ({type(error).__name__}); delete it to inspect the images again"
        ) from None
