"""Presets: optimiser, schedule and sizes, each value with its reason.

`paper` follows the paper's text, `reference` its authors' published code wherever the two differ. `cpu` and `fast` are
ours, sized for two CPU cores: `cpu` trains with the paper's optimiser, `fast` trains every method with Muon.
Some values depend on the dataset (`SOURCE_SETTINGS`), on the method (`METHOD_SETTINGS`), or on a frozen backbone
(`FREEZE`); `maskcon.config.resolution` puts them together.
"""

from __future__ import annotations

import csv
import importlib.resources
from typing import Any

from maskcon.config.backbones import FROZEN_BACKBONE

Settings = dict[str, tuple[Any, str]]  # key -> value, where it comes from

_TEXT = "paper, appendix A"
_CODE = "published code"
_SILENT = "published code; the paper does not say"

_ANY = "ours, where the method has no value of its own"
_WHOLE = "ours: all of the data"
FROZEN = "ours, for a frozen backbone"

PAPER: Settings = {
    "seed": (0, "ours: the paper does not say"),
    "w": (1.0, _ANY),
    "tau": (0.1, _ANY),
    "fine": (None, "paper, section 3: coarse labels alone"),
    "backbone": ("resnet18", "paper, section 4"),
    "width": (64, "paper, section 4"),
    "stem": ("auto", "paper, section 4: 3x3 without pooling for small images"),
    "batchnorm": ("local", _SILENT),
    "epochs": (200, _TEXT),
    "batch_size": (128, _TEXT),
    "optimizer": ("sgd", _TEXT),
    "learning_rate": (0.02, _TEXT),
    "weight_decay": (5e-4, _TEXT),
    "warmup_epochs": (0.0, _TEXT),
    "bank_size": (8192, _TEXT),
    "freeze": (False, "paper, section 4: the whole encoder learns"),
    "thaw": (0, "ours, for a frozen backbone: only its head learns"),
    "projection_dim": (128, _TEXT),
    "fine_weight": (
        1.0,
        "ours, for a frozen backbone: without it a few names change little (docs/methods.md)",
    ),
    "coarse_weight": (0.0, "paper, section 3: its methods add none"),
    "contrast_temperature": (0.1, _TEXT),
    "relation_space": ("projection", "paper, eq. 11: between projections of keys"),
    "key_momentum": (0.99, _SILENT),
    "relation_warmup_epochs": (0.0, "paper, eq. 15: w is constant"),
    "weights": (None, "ours: random weights; the paper does not say"),
    "protocol": (
        "paper",
        "paper, eq. 11, section 4.2 and appendix A",
    ),
    "image_size": (None, "the data's own: 32 for CIFAR and ImageNet32"),
    "train_limit": (None, _WHOLE),
    "test_limit": (None, _WHOLE),
    "evaluate_on": ("test", "paper, section 4"),
    "query_view": (None, "paper, appendix A: the strong view of the data's kind"),
    "key_view": (None, "paper, appendix A: the weak view of the data's kind"),
    "normalise": ("dataset", "published code for CIFAR; it takes ImageNet's values for larger images"),
    "eval_every_epochs": (10, _SILENT),
    "precision": ("32-true", "ours: the paper does not say"),
}

REFERENCE: Settings = {
    **PAPER,
    "projection_dim": (256, _CODE),
    "weights": ("imagenet", _CODE),
    "warmup_epochs": (5.0, _CODE),
    "protocol": ("reference", _CODE),
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
    "projection_dim": (64, _OURS),
    "relation_warmup_epochs": (4.0, "ours: from random weights, w = 1 at step 0 can collapse"),
    "eval_every_epochs": (3, _OURS),
}

_MUON = "ours: reaches the same recall in a fraction of the steps (docs/performance.md)"

FAST: Settings = {
    **CPU,
    "optimizer": ("muon", _MUON),
    "learning_rate": (0.2, "ours: the best of 0.05, 0.1, 0.2 over all methods (benchmarks/method_table.py)"),
}

PRESETS: dict[str, Settings] = {"paper": PAPER, "reference": REFERENCE, "cpu": CPU, "fast": FAST}
DEFAULT_PRESET = "fast"


def default_method(preset: str) -> str:
    """Return the default method: ours with our preset `fast`, else the paper's."""
    return "teachcon" if preset == "fast" else "maskcon"


# Settings of a dataset, on top of the preset.
_LARGE_IMAGES: Settings = {
    "image_size": (224, _SILENT),
    "normalise": ("imagenet", _SILENT),
}
_IMAGENET: Settings = {
    "epochs": (100, f"{_TEXT}, for ImageNet"),
    "batch_size": (256, f"{_TEXT}, for ImageNet"),
    "normalise": ("imagenet", _SILENT),
}
_PAPER_SOURCES: dict[str, Settings] = {
    "imagenet32": {**_IMAGENET, "bank_size": (8192, f"{_TEXT}; the published code has 16384")},
    "sop-split1": _LARGE_IMAGES,
    "sop-split2": _LARGE_IMAGES,
    "cars196": _LARGE_IMAGES,
}
_FEWER_PIXELS: Settings = {"image_size": (64, _OURS)}
SOURCE_SETTINGS: dict[str, dict[str, Settings]] = {
    "paper": _PAPER_SOURCES,
    "reference": {
        **_PAPER_SOURCES,
        "imagenet32": {
            **_IMAGENET,
            "bank_size": (16384, _CODE),
            "weights": ("imagenet", f"{_CODE}; these weights have seen ImageNet's fine labels"),
        },
    },
    "cpu": dict.fromkeys(("sop-split1", "sop-split2", "cars196"), _FEWER_PIXELS),
}
SOURCE_SETTINGS["fast"] = SOURCE_SETTINGS["cpu"]


def method_table() -> dict[tuple[str, str, str], Settings]:
    """Read method_settings.csv: preset, source ("" for any), method -> settings.

    paper, also for `reference`: w and tau behind the main tables; where the paper names none, section 4.1's advice to
        start from w = 1, tau = tau0 for MaskCon, and a weight that won on several datasets for the others.
    cpu: the best of six settings per method by recall@1 on validation (benchmarks/method_table.py).
    fast: w and tau of `cpu`, and the better of two rates on validation for supce, supcon, grafit, coins and maskcon.
    frozen: with freeze=yes, the best of twenty or ten settings on validation (benchmarks/frozen_table.py, good split).
    TeachCon is, everywhere, MaskCon's relation with neighbours by HOG or pretrained features, and cross-entropy.
    """
    file = importlib.resources.files("maskcon.config") / "method_settings.csv"
    table: dict[tuple[str, str, str], Settings] = {}
    for row in csv.DictReader(file.read_text(encoding="utf-8").splitlines()):
        place = row.pop("preset"), row.pop("source"), row.pop("method")
        where = f"for {place[2]}: {row.pop('from')}"
        table[place] = {
            key: (value if key == "relation_space" else float(value), where)
            for key, value in row.items()
            if value
        }
    return table


METHOD_SETTINGS = method_table()

# Methods whose warm-up is a share of the epochs.
RELATION_WARMUP_SHARES = {"bucsfr": (0.1, "authors' code: a tenth of the epochs")}


# What freeze=yes changes, on top of preset, dataset and method: the encoder, and how its head is trained.
FREEZE: Settings = {
    "backbone": (
        FROZEN_BACKBONE,
        "ours, for a frozen backbone: the fastest whose weights are available everywhere",
    ),
    "weights": ("imagenet", FROZEN),
    "normalise": ("imagenet", "ours, for a frozen backbone: as its weights were made"),
    "image_size": (None, "ours, for a frozen backbone: 128 px for small images, up to 224 for large ones"),
    "width": (64, FROZEN),
    "stem": ("auto", FROZEN),
    "query_view": (
        None,
        "ours, for a frozen backbone: the weak view of the data's kind, which it can still read",
    ),
    "key_view": (None, "ours, for a frozen backbone: the plain view, as at test time"),
    "epochs": (30, FROZEN),
    "optimizer": ("sgd", FROZEN),
    "batch_size": (128, FROZEN),
    "bank_size": (2048, FROZEN),
    "learning_rate": (0.05, FROZEN),
    "weight_decay": (5e-4, FROZEN),
    "warmup_epochs": (1.0, FROZEN),
    "relation_warmup_epochs": (0.0, "ours, for a frozen backbone: its neighbours can be trusted from step 1"),
    "relation_space": (
        "features",
        "ours, for a frozen backbone: they separate kinds from the start, a fresh projector does not",
    ),
    "projection_dim": (128, FROZEN),
    "eval_every_epochs": (5, FROZEN),
}
