"""Automatic settings for a user's own images, chosen by the data and the machine.

config.yaml holds the values, choices.json which of them were chosen, and why. A resumed run reads its choices from
there instead of choosing again.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from pydantic import TypeAdapter

from maskcon._utils.errors import CorruptFileError, MaskconError, UsageError
from maskcon._utils.paths import has_file
from maskcon._utils.text import duration
from maskcon.config.choices import Accelerator, Choice, Facts, names_encoder, pretrained_backbones
from maskcon.config.resolution import Choosing, Resolved, resolve
from maskcon.config.settings import Machine, RunConfig
from maskcon.data import Dataset
from maskcon.data.builtin.registry import SOURCES
from maskcon.data.packing import ImagePlan, Progress
from maskcon.data.photos import labels_only, usual_side
from maskcon.methods.registry import method_named
from maskcon.models.published import PUBLISHED, UNREACHABLE, weights_folder
from maskcon.models.weights import locate
from maskcon.training.callbacks import Callback
from maskcon.training.distributed import several_processes, usable_device
from maskcon.training.run_folder import CHOICES, CONFIG, json_bytes
from maskcon.training.setup import plan_images

FORMAT = 1
PRETRAINED = "imagenet"
UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)


@dataclass(frozen=True)
class Completed:
    """The settings of a run before its images are decoded.

    Attributes:
        plan: the images, if already found.
        budget: seconds that the number of epochs has to be fitted to.
        is_recalled: whether the choices were read from the folder of the run.
    """

    resolved: Resolved
    plan: ImagePlan | None = None
    budget: float | None = None
    is_recalled: bool = False

    def announce(self, callback: Callback) -> None:
        """Report each choice with its reason."""
        if self.is_recalled and self.resolved.choices:
            callback.on_message("resuming with the settings chosen when this run started")
        for choice in self.resolved.choices:
            callback.on_choice(choice.line)


def complete_settings(
    source: str | Path | Dataset,
    *,
    method: str,
    preset: str,
    overrides: Mapping[str, Any],
    folder: Path,
    machine: Machine,
    choose: bool | Facts = False,
    budget: float | None = None,
    callback: Callback,
) -> Completed:
    """Choose open settings before images are decoded, or read those of a resumed run.

    Args:
        choose: whether to choose, or the facts to choose by; built-in datasets keep their settings.
        budget: seconds, or None.
    """
    if budget is not None and "epochs" in overrides:
        raise UsageError("--budget chooses the number of epochs: give it or --epochs, not both")
    if budget is not None and several_processes(machine.devices):
        raise UsageError("--budget measures a single process; with several give --epochs")
    name = source.name if isinstance(source, Dataset) else str(source)
    complete = partial(resolve, name, method=method, preset=preset, overrides=overrides)
    if (choose is not False or budget is not None) and (folder / CONFIG).is_file():
        return Completed(complete(choices=read_choices(folder, budget)), is_recalled=True)
    if choose is False or is_known(source):
        return Completed(complete(), budget=budget)
    plan: ImagePlan | None = None

    def facts() -> Facts:
        nonlocal plan
        if isinstance(choose, Facts):
            return choose
        plan = plan_images(source, machine, callback.on_load)
        return find_out(plan or source, overrides, machine, message=callback.on_message)

    choosing = Choosing(facts, method_named(method).contrasts, with_epochs=budget is None)
    return Completed(complete(choosing=choosing), plan, budget)


def is_known(source: str | Path | Dataset) -> bool:
    """Return whether this is a built-in dataset, which has its own settings."""
    return isinstance(source, str) and source in SOURCES


def find_out(
    source: str | Path | Dataset | ImagePlan,
    given: Mapping[str, Any],
    machine: Machine,
    progress: Progress | None = None,
    message: Callable[[str], None] | None = None,
) -> Facts:
    """Collect the facts, and download the weights that would be chosen, if allowed.

    Backbones are tried in order of preference; `unfetched` keeps the reason of the first failure.

    Args:
        given: settings of the user; where they name the encoder, nothing is downloaded.
        progress: called with the number of images inspected and in all.
        message: called before something is downloaded.
    """
    facts = look(source, machine, progress)
    if not machine.download or names_encoder(given):
        return facts
    for backbone in pretrained_backbones(facts.accelerator, given):
        if backbone in facts.weights:
            break
        if message is not None:
            message(f"fetching the pretrained weights of {backbone}")
        try:
            locate(backbone, PRETRAINED, download=True)
        except MaskconError as error:
            if several_processes(machine.devices):  # another may have succeeded, and all must choose the same
                raise
            reason, _, _ = str(error).partition("; ")
            facts = replace(facts, unfetched=facts.unfetched or reason)
            if UNREACHABLE in reason:  # the next one would wait as long in vain
                break
        else:
            return replace(facts, weights=facts.weights | {backbone})
    return facts


def look(
    source: str | Path | Dataset | ImagePlan, machine: Machine, progress: Progress | None = None
) -> Facts:
    """Collect the facts from labels and image headers, without decoding images."""
    plan = source if isinstance(source, ImagePlan) else plan_images(source, machine, progress)
    if plan is not None:
        train, side = len(labels_only(plan).train), usual_side(plan) or float(plan.side)
    else:
        assert isinstance(source, Dataset)  # only built-in datasets come as arrays
        part = source.train
        sides = [min(part.images.shape[2:])] if part.sizes is None else part.sizes.min(axis=1).tolist()
        train, side = len(part), float(statistics.median(sides))
    accelerator = cast(Accelerator, usable_device(machine.device).partition(":")[0])
    return Facts(train=train, side=side, accelerator=accelerator, weights=local_weights())


def local_weights() -> frozenset[str]:
    """Return the backbones whose ImageNet weights are on this machine."""
    known = PUBLISHED[PRETRAINED]
    return frozenset(
        name for name, published in known.items() if has_file(weights_folder() / published.file_name)
    )


def choices_bytes(choices: tuple[Choice, ...], budget: float | None) -> bytes:
    """Return the content of choices.json."""
    values = {"format": FORMAT, "budget_seconds": budget}
    return json_bytes(values | {"choices": [asdict(choice) for choice in choices]})


def read_choices(folder: Path, budget: float | None) -> tuple[Choice, ...]:
    """Read the choices of the run in a folder; empty if it was started without any.

    Raises:
        UsageError: it was started with another budget.
    """
    path = folder / CHOICES
    if not path.is_file():
        if budget is not None:
            raise UsageError(
                f"{folder} holds a run that was started without --budget; leave it off, or choose another --out"
            )
        return ()
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        choices = tuple(
            Choice(
                str(entry["name"]),
                str(entry["shown"]),
                str(entry["reason"]),
                # an earlier version may have had others
                {key: value for key, value in entry["settings"].items() if key in RunConfig.model_fields},
            )
            for entry in values["choices"]
        )
        stored = None if values["budget_seconds"] is None else float(values["budget_seconds"])
    except UNREADABLE as error:
        raise CorruptFileError(
            f"{path} is damaged ({type(error).__name__}); delete it and give the settings of {folder / CONFIG} with "
            "--set, or delete the folder to start again"
        ) from None
    if budget is not None and budget != stored:
        before = "without --budget" if stored is None else f"with --budget {duration(stored)}"
        raise UsageError(
            f"{folder} holds a run that was started {before}; give the same again, or choose another --out"
        )
    return choices


def facts_bytes(facts: Facts) -> bytes:
    """Return the content of a file for `read_facts`."""
    return TypeAdapter(Facts).dump_json(facts, indent=2)


def read_facts(path: Path) -> Facts:
    """Read facts that were collected before."""
    try:
        return TypeAdapter(Facts).validate_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise CorruptFileError(
            f"{path} is damaged ({type(error).__name__}); delete it to inspect the images again"
        ) from None
