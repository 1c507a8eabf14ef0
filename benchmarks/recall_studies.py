"""What `time_to_recall.py` compares: data sets, recipes and the settings of each, the changes of `fast`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from maskcon._utils.errors import UsageError, unknown
from maskcon.config.presets import METHOD_SETTINGS
from maskcon.training.comparison import Job
from method_table import lay_out

Settings = Mapping[str, Any]

NET: Settings = {"backbone": "resnet10", "width": 16, "stem": "fast", "weights": "none"}
# How `fast` is optimised, and the rates that every other method is tried at by it.
MUON: Settings = {
    **{key: METHOD_SETTINGS["fast"]["maskcon"][key] for key in ("optimizer", "schedule", "warmup_share")},
    "relation_warmup_share": 0.5,  # of Grafit and of MaskCon by projections
}
MUON_RATES = (0.1, 0.2)
BY_MUON = " by muon"
LONGER = 4  # times as many epochs, in the stage `long`
ENCODED = 0.74  # as many epochs, where each has a key net to run
VALIDATION: Settings = {"eval_every_epochs": 0, "evaluate_on": "validation"}  # scored once, at the end


@dataclass(frozen=True)
class Recipe:
    """What is trained: a preset, a method and what is set on top."""

    preset: str
    method: str
    settings: Settings = field(default_factory=dict)
    program: Sequence[str] = Job.program

    def but(self, **settings: Any) -> Recipe:
        """The same with these settings on top."""
        return replace(self, settings={**self.settings, **settings})

    def job(self, label: str, folder: Path, source: str, seed: int) -> Job:
        pairs = [argument for key, value in self.settings.items() for argument in ("--set", f"{key}={value}")]
        fixed = ["--method", self.method, "--preset", self.preset, "--seed", str(seed)]
        return Job(label, folder, [source, *fixed, *pairs], self.program)


@dataclass(frozen=True)
class Study:
    """One data set: its source, the epochs of each recipe and the other methods' settings."""

    source: str  # a data set by name, or the CIFARtoy split to be laid out as folders
    epochs: Mapping[str, int]  # as many as take the CPU seconds of `fast`, or a few more
    methods: Mapping[str, Settings]  # each coarse-label method's best settings by validation
    muon_rates: Mapping[str, float]  # the better of two rates by Muon, by validation
    everywhere: Settings = field(default_factory=dict)  # set in every recipe

    def pictures(self, images: Path | None, out: Path) -> str:
        """The source to train on; CIFARtoy is laid out from `images` under `out` first."""
        if self.source != "good":
            return self.source
        if images is None:
            raise UsageError("CIFARtoy needs --images: CIFAR-10 as train/ and test/, a folder a class")
        return str(lay_out(images, self.source, out / "pictures"))

    @property
    def fast(self) -> Recipe:
        return Recipe("fast", "maskcon", {**self.everywhere, "epochs": self.epochs["fast"]})

    def plain(self, method: str) -> Recipe:
        """A coarse-label method at its best settings, by the optimiser of the paper."""
        settings = {**self.everywhere, "coarse_weight": 0.0, **self.methods[method]}
        return Recipe("cpu", method, {**settings, "epochs": self.epochs[method]})

    def by_muon(self, method: str, rate: float) -> Recipe:
        """The same method optimised as `fast` is, at this rate."""
        return self.plain(method).but(**MUON, learning_rate=rate)

    def published(self, preset: str) -> Recipe:
        """MaskCon by a preset of the paper, with the net that all have."""
        return Recipe(preset, "maskcon", {**NET, **self.everywhere, "epochs": self.epochs[preset]})

    def recipes(self) -> dict[str, Recipe]:
        """All that is compared, by name."""
        return {
            "fast": self.fast,
            **{preset: self.published(preset) for preset in ("reference", "paper") if preset in self.epochs},
            **{method: self.plain(method) for method in self.methods},
            **{method + BY_MUON: self.by_muon(method, rate) for method, rate in self.muon_rates.items()},
        }

    def chosen(self, asked: str) -> dict[str, Recipe]:
        """Recipes by their names, comma-separated or "all"; `reference`, which times are told against, among them."""
        known = self.recipes()
        names = list(known) if asked == "all" else asked.split(",")
        for name in names:
            if name not in known:
                raise unknown("recipe", name, known)
        if "reference" not in names:
            raise UsageError("--recipes needs reference: the others' times are told against it")
        return {name: recipe for name, recipe in known.items() if name in names}

    def changed(self, change: Settings) -> Recipe:
        """`fast` with a change; where keys are then encoded an epoch takes longer, and there are fewer."""
        encoded = change.get("keys") == "encoder" or change.get("relation_space") == "projection"
        epochs = max(1, round(self.epochs["fast"] * (ENCODED if encoded else 1)))
        return self.fast.but(**{"epochs": epochs, **change})

    def longer(self) -> dict[str, Recipe]:
        """`fast`, with strong and with weak views for all queries, and CoIns by Muon, `LONGER` times as long."""
        whole = {
            "fast": self.fast,
            "fast, every query strong": self.fast.but(weak_queries=0.0),
            "fast, weak views for queries": self.fast.but(query_view="weak"),
            "coins" + BY_MUON: self.by_muon("coins", self.muon_rates["coins"]),
        }
        return {name: recipe.but(epochs=LONGER * recipe.settings["epochs"]) for name, recipe in whole.items()}


EMBEDDED = Study(
    "embedded",
    epochs={
        "fast": 34,
        "reference": 30,
        "paper": 30,
        "supce": 60,
        "supcon": 30,
        "grafit": 30,
        "coins": 30,
        "maskcon": 30,
    },
    methods={
        "supce": {"learning_rate": 0.15},
        "supcon": {"learning_rate": 0.06},
        "grafit": {"w": 0.5, "learning_rate": 0.2},
        "coins": {"w": 0.8, "learning_rate": 0.2},
        "maskcon": {"w": 1.0, "tau": 0.05, "learning_rate": 0.2},
    },
    muon_rates={"supce": 0.1, "supcon": 0.1, "grafit": 0.2, "coins": 0.2, "maskcon": 0.1},
)
CIFARTOY_GOOD = Study(
    "good",
    epochs={
        "fast": 14,
        "reference": 12,
        "paper": 12,
        "supce": 24,
        "supcon": 12,
        "grafit": 12,
        "coins": 12,
        "maskcon": 12,
    },
    methods={
        "supce": {"learning_rate": 0.06},
        "supcon": {"learning_rate": 0.2},
        "grafit": {"w": 0.8, "learning_rate": 0.2},
        "coins": {"w": 0.5, "learning_rate": 0.2},
        "maskcon": {"w": 1.0, "tau": 0.1, "learning_rate": 0.2},
    },
    muon_rates={"supce": 0.1, "supcon": 0.1, "grafit": 0.1, "coins": 0.2, "maskcon": 0.1},
)
STUDIES = {"embedded": EMBEDDED, "cifartoy-good": CIFARTOY_GOOD}

# `fast` with one part taken away or changed.
ABLATIONS: Mapping[str, Settings] = {
    "as it is": {},
    "SGD at its best rate": {
        "optimizer": "sgd",
        "learning_rate": 0.2,
        "schedule": "cosine",
        "warmup_epochs": 1.0,
    },
    "rate falling from the second epoch on, from 0.1": {"learning_rate": 0.1, "warmup_epochs": 1.0},
    "keys by the key encoder": {"keys": "encoder"},
    "keys by the key encoder, neighbours by projections, w rising over half": {
        "relation_space": "projection",
        "tau": 0.05,
        "relation_warmup_share": 0.5,
    },
    "every query in its strong view": {"weak_queries": 0.0},
    "no cross-entropy": {"coarse_weight": 0.0},
    "BatchNorm statistics as they ran along": {"final_statistics": 0},
    "no relation (w 0): instances and cross-entropy": {"w": 0.0},
}
