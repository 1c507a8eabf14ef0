"""Resolve the settings of a run: preset, dataset, method, choices, given values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from maskcon._utils.errors import UsageError, unknown
from maskcon.config.backbones import IMAGENET_MEAN, mean_and_std, on_hugging_face
from maskcon.config.choices import (
    GPU_BANK,
    WARMUP_SHARE,
    Choice,
    Facts,
    bank_choice,
    batch_choice,
    encoder_choice,
    epochs_choice,
    long_warmup,
    size_choice,
    warms_up_long,
)
from maskcon.config.presets import (
    FREEZE,
    METHOD_SETTINGS,
    PRESETS,
    RELATION_WARMUP_SHARES,
    SOURCE_SETTINGS,
    Settings,
)
from maskcon.config.settings import VALIDATION_FRACTION, RunConfig


@dataclass(frozen=True)
class Resolved:
    """Settings, the reason of each value, and the automatic choices."""

    config: RunConfig
    reasons: Mapping[str, str]
    choices: tuple[Choice, ...] = ()


@dataclass(frozen=True)
class Choosing:
    """How to choose open settings for a user's own images.

    facts: inspects the images and the machine; called once the given settings have been checked
    contrasts: whether the method has a memory bank
    with_epochs: False where a budget chooses them
    """

    facts: Callable[[], Facts]
    contrasts: bool
    with_epochs: bool = True


def resolve(
    source: str,
    *,
    method: str,
    preset: str,
    overrides: Mapping[str, Any],
    choices: tuple[Choice, ...] = (),
    choosing: Choosing | None = None,
) -> Resolved:
    """Layer settings: preset, dataset, method, freeze=yes, choices, overrides.

    Later ones win.

    Args:
        choices: automatic choices of an earlier start.
        choosing: how to make them now; None chooses nothing.

    >>> resolve("embedded", method="grafit", preset="cpu", overrides={"epochs": 3}).config.epochs
    3
    """

    def put_together(given: Mapping[str, Any], *chosen: Choice) -> Settings:
        return _layers(source, method, preset, given, chosen_settings(chosen))

    if choosing is not None:
        # batch and bank are only checked when both are known
        given = {key: value for key, value in overrides.items() if key not in ("batch_size", "bank_size")}
        _build(put_together(given))  # invalid settings are refused before any image is inspected
        facts = choosing.facts()
        encoder = encoder_choice(facts, overrides)
        if encoder is not None:
            own = {key: value for key, value in encoder.settings.items() if key not in overrides}
            choices = (replace(encoder, settings=own),)
        base = _build(put_together(given, *choices))
        choices = (*choices, *_sizes(_limited(facts, base), base, overrides, choosing))
    settings = put_together(overrides, *choices)
    return Resolved(_build(settings), {key: reason for key, (_, reason) in settings.items()}, choices)


def chosen_settings(choices: tuple[Choice, ...]) -> Settings:
    """Return all settings of some choices, with their reasons."""
    return {
        key: (value, f"chosen: {choice.reason}")
        for choice in choices
        for key, value in choice.settings.items()
    }


def _build(settings: Settings) -> RunConfig:
    return RunConfig.build({key: value for key, (value, _) in settings.items()})


def _limited(facts: Facts, base: RunConfig) -> Facts:
    """Return the facts of those images that this run trains on."""
    train = facts.train
    if base.evaluate_on == "validation":
        train = max(1, round(train * (1 - VALIDATION_FRACTION)))
    return replace(facts, train=train if base.train_limit is None else min(train, base.train_limit))


def _sizes(facts: Facts, base: RunConfig, given: Mapping[str, Any], choosing: Choosing) -> list[Choice]:
    """Choose image size, batch, bank and epochs, in the order of their dependencies."""
    choices = []
    if "image_size" not in given:
        pretrained = base.weights is not None or on_hugging_face(base.backbone)
        choices.append(size_choice(facts, frozen=base.freeze, pretrained=pretrained, backbone=base.backbone))
    batch_size = given.get("batch_size")
    if "batch_size" not in given:
        choices.append(batch_choice(facts, given, usual=base.batch_size, learning_rate=base.learning_rate))
        batch_size = choices[-1].settings["batch_size"]
    if not isinstance(batch_size, int) or batch_size < 1:
        batch_size = base.batch_size  # an invalid one is refused later
    if "bank_size" not in given and choosing.contrasts:
        on_gpu = facts.accelerator == "cuda" and not base.freeze
        usual = max(base.bank_size, GPU_BANK) if on_gpu else base.bank_size
        choices.append(bank_choice(facts, batch_size=batch_size, usual=usual))
    if choosing.with_epochs and "epochs" not in given:
        choices.append(epochs_choice(facts, given, batch_size=batch_size, base=base))
    return choices


def _layers(
    source: str, method: str, preset: str, overrides: Mapping[str, Any], chosen: Settings
) -> Settings:
    if preset not in PRESETS:
        raise unknown("preset", preset, PRESETS)
    for key in ("source", "method", "preset"):
        if key in overrides:
            raise UsageError(f"{key} cannot be set with --set: it has its own argument")
    freeze = overrides["freeze"] if "freeze" in overrides else chosen.get("freeze", (False,))[0]
    settings: Settings = {
        **PRESETS[preset],
        **SOURCE_SETTINGS[preset].get(source, {}),
        **method_settings(source, method=method, preset=preset),
        **(frozen_settings(method) if freeze is True else {}),
        **chosen,
        **{key: (value, "given") for key, value in overrides.items()},
        **{"source": (source, "given"), "method": (method, "given"), "preset": (preset, "given")},
    }
    backbone = str(settings["backbone"][0])
    if "weights" not in overrides and on_hugging_face(backbone):
        settings["weights"] = (None, "the backbone brings its own")
    pretrained = settings["weights"][0] is not None or on_hugging_face(backbone)
    if "relation_space" not in overrides and settings["relation_space"][0] == "hog" and pretrained:
        settings["relation_space"] = ("features", "pretrained features find better neighbours than HOG")
    if "normalise" not in overrides and pretrained and mean_and_std(backbone)[0] != IMAGENET_MEAN:
        settings["normalise"] = ("backbone", f"{backbone} was trained with another normalisation")
    epochs = settings["epochs"][0]
    if not isinstance(epochs, int):  # refused later
        return settings
    if "warmup_epochs" not in overrides and warms_up_long(preset, settings["optimizer"][0]):
        settings["warmup_epochs"] = (long_warmup(epochs), f"ours: {WARMUP_SHARE:g} of the epochs suit Muon")
    if "relation_warmup_epochs" not in overrides and method in RELATION_WARMUP_SHARES:
        share, reason = RELATION_WARMUP_SHARES[method]
        settings["relation_warmup_epochs"] = (round(share * epochs, 3), f"for {method}: {reason}")
    return settings


def frozen_settings(method: str) -> Settings:
    """Return what freeze=yes sets for a method.

    >>> frozen_settings("grafit")["w"]
    (0.8, 'for grafit: ours, for a frozen backbone')
    """
    return FREEZE | METHOD_SETTINGS.get(("frozen", "", method), {})


def method_settings(source: str, *, method: str, preset: str) -> Settings:
    """Return a method's own values, those for this dataset first, else the preset's.

    >>> method_settings("sop-split2", method="coins", preset="paper")
    {'w': (0.2, 'for coins: paper, appendix A, table of hyperparameters')}
    """
    table = "paper" if preset == "reference" else preset
    return METHOD_SETTINGS.get((table, "", method), {}) | METHOD_SETTINGS.get((table, source, method), {})
