"""Choices for a user's own images: each value with its reason, by pure functions.

`maskcon.training.automatic` collects the facts about images and machine, `maskcon.config.resolution` calls these
functions. Settings that the user gives are never changed. Nothing here reads a file or a clock.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from maskcon._utils.errors import UsageError
from maskcon._utils.text import counted, duration
from maskcon.config.backbones import FROZEN_BACKBONE, FROZEN_BACKBONES, PRETRAINED, view_size
from maskcon.config.settings import RunConfig

Accelerator = Literal["cpu", "cuda", "mps"]

# A user who sets any of these chooses the encoder: the others then come from the preset.
ENCODER_SETTINGS = frozenset(
    ("backbone", "width", "stem", "batchnorm", "weights", "normalise", "freeze", "thaw")
)
TUNED_BACKBONE = "resnet18"

# pixels; a view that a small net on a CPU can learn from, and the side up to which images count as small
SMALL_VIEW = 64
SMALLEST_VIEW = 16
GPU_VIEWS = (96, 128, 160, 224)
WARMUP_SHARE = 0.3  # of a run by Muon under the preset `fast`
FEWEST_TRAIN, FEWEST_TEST = 4, 2  # images; fewer are refused
SMALLEST_BATCH, EPOCH_STEPS = 16, 8
GPU_BANK = 8192  # the paper's
ENOUGH_STEPS = 1200  # as the preset's 30 epochs on 5,000 images
USUAL_LIMIT, LONGEST_RUN = 200, 1000  # epochs: without a budget, and with one
FROZEN_LIMIT = 100  # epochs of a head on a frozen backbone, in both cases
EVALUATIONS = 10
BUDGET_SHARE = 0.85  # planned: the pace changes during a run
LONGEST_BUDGET = 30 * 86_400.0


@dataclass(frozen=True)
class Facts:
    """What the choices depend on.

    side: median of the images' shorter sides
    weights: backbones whose ImageNet weights are on this machine
    unfetched: why the weights that would be used could not be fetched, if that was tried
    """

    train: int
    side: float
    accelerator: Accelerator = "cpu"
    weights: frozenset[str] = frozenset()
    unfetched: str = ""


@dataclass(frozen=True)
class Choice:
    """One decision: what it is about, the settings it makes, and why.

    >>> Choice("bank", "256 keys", "half of the 600 training images", {"bank_size": 256}).line
    'bank: 256 keys (half of the 600 training images)'
    """

    name: str
    shown: str
    reason: str
    settings: Mapping[str, Any]

    @property
    def line(self) -> str:
        return f"{self.name}: {self.shown} ({self.reason})"


def names_encoder(given: Mapping[str, Any]) -> bool:
    """Return whether given settings name the encoder.

    freeze=yes, also with thaw, leaves the backbone open.
    """
    left_open = {"freeze", "thaw"} if given.get("freeze") is True else set()
    return bool((ENCODER_SETTINGS - left_open) & given.keys())


def pretrained_backbones(accelerator: Accelerator, given: Mapping[str, Any]) -> tuple[str, ...]:
    """Return pretrained backbones, best first; `--download` fetches the first it can."""
    return (TUNED_BACKBONE,) if accelerator == "cuda" and "freeze" not in given else FROZEN_BACKBONES


def encoder_choice(facts: Facts, given: Mapping[str, Any]) -> Choice | None:
    """Choose a pretrained encoder if its weights are here, else a fresh one.

    Without a CUDA GPU it is frozen. Returns None if the user has named it, or wants to freeze one and no weights are
    here: that is refused later.
    """
    if names_encoder(given):
        return None
    frozen = "freeze" in given
    if frozen or facts.accelerator != "cuda":
        missing = _no_weights(facts, FROZEN_BACKBONE)
        backbone = next((name for name in FROZEN_BACKBONES if name in facts.weights), None)
        if backbone is None:
            if frozen:
                return None
            return Choice("encoder", "a small net from scratch", f"no CUDA GPU, and {missing}", {})
        best = backbone == FROZEN_BACKBONE
        return Choice(
            "encoder",
            f"{backbone} with ImageNet weights, frozen, and a head that learns",
            f"its weights are on this machine{'' if frozen else ' and there is no CUDA GPU'}: "
            "images are embedded once, training takes minutes"
            + ("" if best else f"; {FROZEN_BACKBONE} is the first choice, but {missing}"),
            {"freeze": True} if best else {"freeze": True, "backbone": backbone},
        )
    whole: dict[str, Any] = {"backbone": TUNED_BACKBONE, "width": 64, "stem": "auto"}
    whole |= {"projection_dim": 128, "learning_rate": 0.02}
    whole["optimizer"] = "sgd"  # Muon was tried only on small nets
    if TUNED_BACKBONE in facts.weights:
        return Choice(
            "encoder",
            f"{TUNED_BACKBONE} with ImageNet weights, all of it learns",
            "its weights are on this machine, which has a GPU",
            {**whole, "weights": "imagenet", "normalise": "imagenet", "warmup_epochs": 5.0},
        )
    return Choice(
        "encoder",
        f"{TUNED_BACKBONE} from scratch",
        f"there is a GPU, but {_no_weights(facts, TUNED_BACKBONE)}",
        whole,
    )


def _no_weights(facts: Facts, backbone: str) -> str:
    if facts.unfetched:
        return f"the pretrained weights could not be fetched: {facts.unfetched}"
    return f"no weights of {backbone} on this machine; --download fetches {PRETRAINED[backbone].megabytes} MB of them"


def size_choice(facts: Facts, *, frozen: bool, pretrained: bool, backbone: str = FROZEN_BACKBONE) -> Choice:
    """Choose the side of a view: at most the images', affordable on this machine.

    backbone: a frozen one has its own view sizes.

    >>> size_choice(Facts(1000, side=480), frozen=False, pretrained=False).settings
    {'image_size': 64}
    """
    side = f"half of the images are at least {facts.side:.0f} px wide and high"
    if frozen:
        size = view_size(backbone, facts.side)
        return _size(size, f"{side}; a frozen backbone sees each only a few times")
    if facts.side <= SMALL_VIEW:
        return _size(max(SMALLEST_VIEW, int(facts.side)), side)
    if facts.accelerator != "cuda" and not pretrained:
        return _size(
            SMALL_VIEW, f"{side}; the cost grows with the number of pixels, and there is no CUDA GPU"
        )
    largest = GPU_VIEWS[-1] if pretrained else GPU_VIEWS[1]
    fitting = [size for size in GPU_VIEWS if size <= min(facts.side, largest)]
    return _size(max(fitting, default=SMALL_VIEW), side)


def _size(size: int, reason: str) -> Choice:
    return Choice("image size", f"{size} px", reason, {"image_size": size})


def batch_choice(facts: Facts, given: Mapping[str, Any], *, usual: int, learning_rate: float) -> Choice:
    """Choose the batch size: small for few images, so that an epoch has some steps.

    learning_rate: for the usual batch; unless given, it shrinks with the batch.

    >>> batch_choice(Facts(train=300, side=200), {}, usual=128, learning_rate=0.2).settings
    {'batch_size': 32, 'learning_rate': 0.05}
    """
    batch = min(usual, max(SMALLEST_BATCH, _power_of_two(facts.train // EPOCH_STEPS)))
    bank = given.get("bank_size")
    if isinstance(bank, int):
        batch = max(2, min(batch, bank))  # a bank holds at least one batch
    settings: dict[str, Any] = {"batch_size": batch}
    if batch == usual:
        return Choice("batch", f"{batch} images", "the default", settings)
    images, steps = counted(facts.train, "training image"), counted(-(-facts.train // batch), "step")
    reason = f"{images} make {steps} per epoch"
    if "learning_rate" not in given:
        settings["learning_rate"] = round(learning_rate * batch / usual, 6)
        reason += "; the learning rate shrinks with the batch"
    return Choice("batch", f"{batch} images", reason, settings)


def bank_choice(facts: Facts, *, batch_size: int, usual: int) -> Choice:
    """Choose the bank size: at most half of the images, for fresh and distinct keys.

    >>> bank_choice(Facts(train=600, side=200), batch_size=64, usual=2048).settings
    {'bank_size': 256}
    """
    half = _power_of_two(facts.train // 2)
    size = max(batch_size, min(half, usual))
    images = counted(facts.train, "training image")
    if half < batch_size:
        reason = f"one batch, the minimum: there are only {images}"
    elif half < usual:
        reason = f"at most half of the {images}, so that its keys stay fresh"
    else:
        reason = f"the default: {images} could fill a larger one"
    return Choice("bank", f"{size} keys", reason, {"bank_size": size})


def epochs_choice(facts: Facts, given: Mapping[str, Any], *, batch_size: int, base: RunConfig) -> Choice:
    """Choose the epochs without a budget: the default, or more if they are short.

    base: the settings so far; where only a head learns, `FROZEN_LIMIT` is the most.
    """
    steps = -(-facts.train // batch_size)
    most = FROZEN_LIMIT if base.freeze else USUAL_LIMIT
    epochs = max(base.epochs, min(most, -(-ENOUGH_STEPS // steps)))
    reason = f"{steps * epochs:,} steps in all, {steps:,} per epoch; --budget 30m would fit it to your time"
    return Choice("epochs", str(epochs), reason, epoch_settings(epochs, given, base))


def budget_choice(
    budget: float,
    left: float,
    seconds_of: Callable[[int], float],
    given: Mapping[str, Any],
    base: RunConfig,
) -> Choice:
    """Choose as many epochs as fit into the remaining time, by the measured pace.

    The plan takes `BUDGET_SHARE` of the remaining time: the budget is kept as long as the machine does not become more
    than 1 / BUDGET_SHARE (1.18) times slower than it was when measured.

    Args:
        budget: seconds in all.
        left: seconds of it that remain.
        seconds_of: seconds of a run of N epochs; not monotonic, because longer runs evaluate less often.
        given: settings of the user.
        base: the settings so far. Where only a head learns, `FROZEN_LIMIT` is the most: epochs are so short that any
            budget would otherwise end in a thousand of them.

    Raises:
        UsageError: not even one epoch fits.
    """
    planned = BUDGET_SHARE * left
    most = FROZEN_LIMIT if base.freeze else LONGEST_RUN
    epochs = next((count for count in range(most, 0, -1) if seconds_of(count) <= planned), 0)
    if epochs == 0:
        needed = (budget - left) + seconds_of(1) / BUDGET_SHARE
        raise UsageError(
            f"--budget {duration(budget)} is too short: one epoch would end after about {duration(needed)}; "
            f"give --budget {duration(math.ceil(needed * 3 / 60) * 60)} or more, fewer images "
            "(--set train_limit=N), or a smaller --set image_size"
        )
    reason = f"measured here: about {duration(seconds_of(epochs))} of the {duration(left)} that are left"
    if epochs == most:
        reason += "; the maximum"
    if base.freeze:
        reason += f"; the settings of a frozen backbone were tuned with {base.epochs}"
    return Choice("epochs", str(epochs), reason, epoch_settings(epochs, given, base))


def warms_up_long(preset: str, optimizer: Any) -> bool:
    """Return whether the rate rises over a share of the run: by Muon under `fast`."""
    return preset == "fast" and optimizer == "muon"


def long_warmup(epochs: int) -> float:
    """Return `warmup_epochs` of a run that warms up long.

    >>> long_warmup(30), long_warmup(2)
    (9.0, 1.0)
    """
    return max(1.0, round(WARMUP_SHARE * epochs, 3))


def epoch_settings(epochs: int, given: Mapping[str, Any], base: RunConfig) -> dict[str, Any]:
    """Return the epochs and what follows from them: about ten evaluations, warm-ups.

    base: the settings so far.

    >>> from maskcon.config.resolution import resolve
    >>> base = resolve("photos", method="maskcon", preset="cpu", overrides={}).config
    >>> epoch_settings(8, {}, base)
    {'epochs': 8, 'eval_every_epochs': 1, 'warmup_epochs': 0.8, 'relation_warmup_epochs': 2.0}
    """
    rise = min(base.warmup_epochs, round(epochs * 0.1, 3))
    settings: dict[str, Any] = {
        "epochs": epochs,
        "eval_every_epochs": max(1, round(epochs / EVALUATIONS)),
        "warmup_epochs": long_warmup(epochs) if warms_up_long(base.preset, base.optimizer) else rise,
        "relation_warmup_epochs": min(base.relation_warmup_epochs, round(epochs * 0.25, 3)),
    }
    return {key: value for key, value in settings.items() if key not in given}


def parse_budget(text: str) -> float:
    """Return the seconds of a duration with units: 90s, 30m, 2h, 1h30m, 1.5h.

    >>> parse_budget("1h30m"), parse_budget("1.5 h"), parse_budget("45s")
    (5400.0, 5400.0, 45.0)
    """
    plain = text.strip().lower().replace(" ", "")
    whole = re.fullmatch(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?", plain)
    if not plain or whole is None:
        hint = "; say the unit" if re.fullmatch(r"\d+(\.\d+)?", plain) else ""
        raise UsageError(f"--budget {text!r} is not a duration{hint}: write 90s, 30m, 2h or 1h30m")
    hours, minutes, seconds = (float(part or 0) for part in whole.groups())
    total = hours * 3600 + minutes * 60 + seconds
    if not 0 < total <= LONGEST_BUDGET:
        raise UsageError(f"--budget {text!r} must be positive and at most 30 days (720h)")
    return total


def _power_of_two(number: int) -> int:
    """Return the largest power of two that is not above the number; 1 for less.

    >>> _power_of_two(100), _power_of_two(0)
    (64, 1)
    """
    return 1 << max(0, number.bit_length() - 1)
