"""Automatic settings for a user's own images, chosen once from the data and the machine.

config.yaml holds the values, choices.json which of them were chosen and why. A resumed run reads its choices from there
instead of choosing again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from maskcon._utils.errors import CorruptFileError, UsageError
from maskcon._utils.text import duration
from maskcon.config.choices import (
    GPU_BANK,
    Choice,
    Facts,
    bank_choice,
    batch_choice,
    encoder_choice,
    epochs_choice,
    size_choice,
)
from maskcon.config.presets import Settings
from maskcon.config.resolution import resolve
from maskcon.config.settings import HUGGING_FACE_PREFIX, Machine, RunConfig
from maskcon.data import Dataset
from maskcon.data.builtin.registry import SOURCES
from maskcon.data.packing import Progress
from maskcon.methods.registry import method_named
from maskcon.training.callbacks import Callback
from maskcon.training.distributed import several_processes
from maskcon.training.facts import look, with_fetched_weights
from maskcon.training.run_folder import CHOICES, CONFIG, json_bytes

Message = Callable[[str], None]

FORMAT = 1


@dataclass(frozen=True)
class Decided:
    """Choices of a run; recalled: read from its folder."""

    choices: tuple[Choice, ...] = ()
    budget: float | None = None
    recalled: bool = False

    @property
    def settings(self) -> Settings:
        """For `resolving.resolve`."""
        return {
            key: (value, f"chosen: {choice.reason}")
            for choice in self.choices
            for key, value in choice.settings.items()
        }

    def needs_measuring(self, given: Mapping[str, Any]) -> bool:
        """Whether the number of epochs still follows from the budget."""
        return self.budget is not None and not self.recalled and "epochs" not in given

    def record(self) -> bytes | None:
        """Content of choices.json; None where nothing is to be written: no choice, or it is there already."""
        if self.recalled or not self.choices:
            return None
        values = {"format": FORMAT, "budget_seconds": self.budget}
        return json_bytes(values | {"choices": [asdict(choice) for choice in self.choices]})


def decide(
    source: str | Path | Dataset,
    *,
    method: str,
    preset: str,
    overrides: Mapping[str, Any],
    folder: Path,
    machine: Machine,
    choose: bool | Facts,
    budget: float | None,
    looking: Progress | None = None,
    message: Message | None = None,
) -> Decided:
    """Choose settings before any image is decoded, or read the choices of a resumed run.

    Args:
        choose: whether to choose for the user's own images, or the facts to choose by; built-in datasets keep their
            settings.
        budget: seconds, or None.
        looking: see `find_out`.
        message: see `find_out`.
    """
    if budget is not None and "epochs" in overrides:
        raise UsageError("--budget chooses the number of epochs: give it or --epochs, not both")
    if budget is not None and several_processes(machine.devices):
        raise UsageError("--budget measures a single process; with several give --epochs")
    if (folder / CONFIG).is_file():
        return _earlier(folder, budget)
    if choose is False or is_known(source):
        return Decided(budget=budget)
    facts = choose
    if not isinstance(facts, Facts):
        facts = find_out(source, method, preset, overrides, machine, looking, message)
    choices = choose_all(facts, source, method, preset, overrides, with_epochs=budget is None)
    return Decided(tuple(choices), budget)


def find_out(
    source: str | Path | Dataset,
    method: str,
    preset: str,
    overrides: Mapping[str, Any],
    machine: Machine,
    looking: Progress | None = None,
    message: Message | None = None,
) -> Facts:
    """Collect the facts, and download the weights that would be chosen, if allowed.

    looking: see `maskcon.training.facts.look`. message: told before something is fetched.
    """
    facts = look(source, base_config(source, method, preset, overrides), machine, looking)
    return with_fetched_weights(facts, overrides, machine, message)


def is_known(source: str | Path | Dataset) -> bool:
    """Whether this is a built-in dataset, which has its own settings."""
    return isinstance(source, str) and source in SOURCES


def base_config(
    source: str | Path | Dataset,
    method: str,
    preset: str,
    overrides: Mapping[str, Any],
    choices: Sequence[Choice] = (),
) -> RunConfig:
    """The settings so far, but for batch and bank as given: those two are only checked when both are known."""
    given = {key: value for key, value in overrides.items() if key not in ("batch_size", "bank_size")}
    chosen = Decided(tuple(choices)).settings
    return resolve(_name(source), method=method, preset=preset, overrides=given, chosen=chosen).config


def choose_all(
    facts: Facts,
    source: str | Path | Dataset,
    method: str,
    preset: str,
    given: Mapping[str, Any],
    *,
    with_epochs: bool,
) -> list[Choice]:
    """Make every open choice, in the order of their dependencies."""
    encoder = encoder_choice(facts, given)
    choices = [] if encoder is None else [_without(encoder, given)]
    base = base_config(source, method, preset, given, choices)
    if "image_size" not in given:
        pretrained = base.weights is not None or base.backbone.startswith(HUGGING_FACE_PREFIX)
        choices.append(size_choice(facts, frozen=base.freeze, pretrained=pretrained))
    batch_size = _whole(given.get("batch_size"))
    if "batch_size" not in given:
        choices.append(batch_choice(facts, given, usual=base.batch_size, learning_rate=base.learning_rate))
        batch_size = int(choices[-1].settings["batch_size"])
    batch_size = batch_size or base.batch_size  # one that is no number is refused later, with the others
    if "bank_size" not in given and method_named(method).contrasts:
        on_gpu = facts.accelerator == "cuda" and not base.freeze
        usual = max(base.bank_size, GPU_BANK) if on_gpu else base.bank_size
        choices.append(bank_choice(facts, batch_size=batch_size, usual=usual))
    if with_epochs and "epochs" not in given:
        choices.append(epochs_choice(facts, given, batch_size=batch_size, base=base))
    return choices


def announce_choices(decided: Decided, announce: Callback) -> None:
    """Report each choice with its reason."""
    if decided.recalled and decided.choices:
        announce.on_message("resuming with the settings chosen when this run started")
    for choice in decided.choices:
        announce.on_choice(choice.line)


def _earlier(folder: Path, budget: float | None) -> Decided:
    """The choices of the run in this folder; none where it was begun without any."""
    path = folder / CHOICES
    if not path.is_file():
        if budget is not None:
            raise UsageError(
                f"{folder} holds a run that was begun without --budget; leave it off, or choose another --out"
            )
        return Decided(recalled=True)
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        choices = tuple(
            Choice(
                str(entry["name"]),
                str(entry["shown"]),
                str(entry["reason"]),
                # of an earlier version some may be gone
                {key: value for key, value in entry["settings"].items() if key in RunConfig.model_fields},
            )
            for entry in values["choices"]
        )
        stored = None if values["budget_seconds"] is None else float(values["budget_seconds"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptFileError(
            f"{path} is damaged ({type(error).__name__}); delete it and give the settings of {folder / CONFIG} with "
            "--set, or delete the folder to start again"
        ) from None
    if budget is not None and budget != stored:
        before = "without --budget" if stored is None else f"with --budget {duration(stored)}"
        raise UsageError(
            f"{folder} holds a run that was begun {before}; give the same again, or choose another --out"
        )
    return Decided(choices, stored, recalled=True)


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _without(choice: Choice, given: Mapping[str, Any]) -> Choice:
    return replace(choice, settings={k: v for k, v in choice.settings.items() if k not in given})


def _name(source: str | Path | Dataset) -> str:
    return source.name if isinstance(source, Dataset) else str(source)
