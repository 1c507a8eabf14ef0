"""CPU seconds until the embedding is good: `fast` beside `reference`, `paper` and every coarse-label method.

    python benchmarks/time_to_recall.py embedded all                     # rerun the same command to resume
    python benchmarks/time_to_recall.py cifartoy-good all --images PATH  # PATH/{train,test}/<class>/*.jpg: CIFAR-10
    python benchmarks/time_to_recall.py cifar100 ablate                  # 20,000 images of it, below MASKCON_DATA
    python benchmarks/time_to_recall.py photographs ablate --images PATH # a folder of yours with fine labels

    train    `fast` and all others, three seeds, scored on the test images after every epoch; the other coarse-label
             methods with the optimiser of the paper, and ("... by muon") with that of `fast`
    ablate   `fast` with one part removed or changed, three seeds, on validation images: a fifth of the training images

All recipes share images, net (that of the preset `cpu`) and seeds, and have one thread per run. CPU seconds are those
of training, without evaluation. Each coarse-label method has its best settings by validation (`method_table.py`; with
Muon, the better of the rates 0.1 and 0.2) and as many epochs as take at least the CPU time of `fast`.
Results are written below --out: a folder per run, `train.json`, `ablate.json` and `curves.png`.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from maskcon._utils.errors import UsageError, unknown
from maskcon.config.choices import long_warmup
from maskcon.training.comparison import Job, run_jobs
from maskcon.training.journal import read_journal
from maskcon.training.run_folder import JOURNAL, make_writable, read_result
from method_table import answer, lay_out, show, write_json

Settings = Mapping[str, Any]
Row = dict[str, Any]

NET: Settings = {"backbone": "resnet10", "width": 16, "stem": "fast", "weights": "none"}
# How `fast` is optimised.
MUON: Settings = {"optimizer": "muon"}
RELATION_WARMUP = 0.5  # of the epochs of Grafit and of MaskCon by projections, with Muon
BY_MUON = " by muon"
PHOTOGRAPHS = "photographs"
ENCODED = 0.74  # share of the epochs where a key encoder runs, for the same CPU time
VALIDATION: Settings = {"eval_every_epochs": 0, "evaluate_on": "validation"}  # scored once, at the end


@dataclass(frozen=True)
class Recipe:
    """A preset, a method and settings on top."""

    preset: str
    method: str
    settings: Settings = field(default_factory=dict)

    def but(self, **settings: Any) -> Recipe:
        """The same with these settings on top."""
        return replace(self, settings={**self.settings, **settings})

    def job(self, label: str, folder: Path, source: str, seed: int) -> Job:
        pairs = [argument for key, value in self.settings.items() for argument in ("--set", f"{key}={value}")]
        fixed = ["--method", self.method, "--preset", self.preset, "--seed", str(seed)]
        return Job(label, folder, [source, *fixed, *pairs])


@dataclass(frozen=True)
class Study:
    """One data set: its source, the epochs of each recipe and the other methods' settings."""

    source: str  # a dataset by name, a CIFARtoy split, or PHOTOGRAPHS
    epochs: Mapping[str, int]  # as many as take the CPU seconds of `fast`, or a few more
    methods: Mapping[str, Settings] = field(default_factory=dict)  # best settings by validation
    muon_rates: Mapping[str, float] = field(default_factory=dict)  # the better of two by Muon, by validation
    everywhere: Settings = field(default_factory=dict)  # set in every recipe

    def prepare(self, images: Path | None, out: Path) -> str:
        """Return the source to train on; CIFARtoy is linked from `images` below `out` first."""
        if self.source not in ("good", PHOTOGRAPHS):
            return self.source
        if images is None:
            raise UsageError(
                "this study needs --images: a folder, for CIFARtoy CIFAR-10 as train/ and test/ with a folder per class"
            )
        return (
            str(images) if self.source == PHOTOGRAPHS else str(lay_out(images, self.source, out / "images"))
        )

    @property
    def fast(self) -> Recipe:
        return Recipe("fast", "teachcon", {**self.everywhere, "epochs": self.epochs["fast"]})

    def plain(self, method: str) -> Recipe:
        """A coarse-label method at its best settings, with the optimiser of the paper."""
        settings = {**self.everywhere, "coarse_weight": 0.0, **self.methods[method]}
        return Recipe("cpu", method, {**settings, "epochs": self.epochs[method]})

    def by_muon(self, method: str, rate: float) -> Recipe:
        """The same method with the optimiser of `fast`, at this rate."""
        epochs = self.epochs[method]
        return self.plain(method).but(
            **MUON,
            learning_rate=rate,
            warmup_epochs=long_warmup(epochs),
            relation_warmup_epochs=RELATION_WARMUP * epochs,
        )

    def published(self, preset: str) -> Recipe:
        """MaskCon with a preset of the paper and the common net."""
        return Recipe(preset, "maskcon", {**NET, **self.everywhere, "epochs": self.epochs[preset]})

    def recipes(self) -> dict[str, Recipe]:
        """All recipes, by name."""
        return {
            "fast": self.fast,
            **{preset: self.published(preset) for preset in ("reference", "paper") if preset in self.epochs},
            **{method: self.plain(method) for method in self.methods},
            **{method + BY_MUON: self.by_muon(method, rate) for method, rate in self.muon_rates.items()},
        }

    def chosen(self, asked: str) -> dict[str, Recipe]:
        """Return recipes by name, comma-separated or "all"; `reference`, the yardstick, must be among them."""
        known = self.recipes()
        names = list(known) if asked == "all" else asked.split(",")
        for name in names:
            if name not in known:
                raise unknown("recipe", name, known)
        if "reference" not in names:
            raise UsageError("--recipes needs reference: times are relative to it")
        return {name: recipe for name, recipe in known.items() if name in names}

    def changed(self, change: Settings) -> Recipe:
        """Return `fast` with a change, with fewer epochs where a key encoder runs."""
        if change.get("relation_space") != "projection":
            return self.fast.but(**change)
        epochs = max(1, round(self.epochs["fast"] * ENCODED))
        return self.fast.but(epochs=epochs, relation_warmup_epochs=RELATION_WARMUP * epochs, **change)


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
CIFAR100 = Study("cifar100", epochs={"fast": 8}, everywhere={"train_limit": 20_000})
GROCERY = Study(PHOTOGRAPHS, epochs={"fast": 50}, everywhere={**NET, "image_size": 64})
STUDIES = {"embedded": EMBEDDED, "cifartoy-good": CIFARTOY_GOOD, "cifar100": CIFAR100, PHOTOGRAPHS: GROCERY}

# `fast` with one part removed or changed.
ABLATIONS: Mapping[str, Settings] = {
    "unchanged": {},
    "SGD at its best rate": {
        "optimizer": "sgd",
        "learning_rate": 0.2,
        "warmup_epochs": 1.0,
    },
    "rate falling from epoch 2, from 0.1": {"learning_rate": 0.1, "warmup_epochs": 1.0},
    "key encoder, neighbours by projections, w rising over half the run": {
        "relation_space": "projection",
        "tau": 0.05,
    },
    "no cross-entropy": {"coarse_weight": 0.0},
    "no relation (w = 0)": {"w": 0.0},
}


@dataclass(frozen=True)
class Bench:
    """The source of runs, their folder, and how many run at once."""

    source: str
    out: Path
    at_once: int

    def train(self, recipes: Mapping[str, Recipe], seeds: int, under: str = "") -> dict[str, Row]:
        """Train each recipe with every seed, on one thread each; return their results by name."""
        jobs = {
            name: [
                recipe.job(f"{name} {seed}", self.out / under / f"{name}-seed{seed}", self.source, seed)
                for seed in range(seeds)
            ]
            for name, recipe in recipes.items()
        }
        in_turn = [of_name[seed] for seed in range(seeds) for of_name in jobs.values()]
        run_jobs(in_turn, at_once=self.at_once, threads=1, watch=show)
        print()
        return {name: summary([job.folder for job in of_name]) for name, of_name in jobs.items()}


def curve(folder: Path) -> list[tuple[float, float]]:
    """Return CPU seconds and recall@1 of every evaluation of a finished run."""
    return [
        (event["cpu_seconds"], event["recall"]["1"])
        for event in read_journal(folder / JOURNAL)
        if event.get("kind") == "evaluation"
    ]


def seconds_to(curve: Sequence[tuple[float, float]], recall: float) -> float | None:
    """Return the CPU seconds of the first evaluation that reaches `recall`; None if none does.

    >>> seconds_to([(10.0, 0.4), (20.0, 0.5), (30.0, 0.6)], 0.5)
    20.0
    """
    return next((seconds for seconds, reached in curve if reached >= recall), None)


def spread(values: Sequence[float]) -> str:
    return f"{fmean(values):.2f}" + (f" ± {stdev(values):.2f}" if len(values) > 1 else "")


def summary(folders: Sequence[Path]) -> dict[str, Any]:
    """Return final recall@1 in percent, CPU seconds and curve of every seed."""
    results = [read_result(folder) for folder in folders]
    return {
        "epochs": results[0]["epochs"],
        "recall@1": [round(100 * result["recall"]["1"], 3) for result in results],
        "cpu_seconds": [result["cpu_seconds"] for result in results],
        "curves": [curve(folder) for folder in folders],
    }


def seconds(row: Row) -> str:
    return f"{fmean(row['cpu_seconds']):.0f}"


def table(heads: Sequence[str], rows: Mapping[str, Sequence[str]]) -> str:
    """Return a Markdown table, names on the left.

    >>> print(table(["", "R@1"], {"fast": ["71.33"]}))
    |  | R@1 |
    |---|---:|
    | fast | 71.33 |
    """
    lines = [heads, *([name, *cells] for name, cells in rows.items())]
    head, *body = (f"| {' | '.join(line)} |" for line in lines)
    return "\n".join([head, "|---|" + "---:|" * (len(heads) - 1), *body])


def train(bench: Bench, recipes: Mapping[str, Recipe], seeds: int, title: str) -> None:
    """Train these recipes on all training images; score them on the test images after every epoch."""
    found = bench.train({name: recipe.but(eval_every_epochs=1) for name, recipe in recipes.items()}, seeds)
    goal = fmean(found["reference"]["recall@1"]) / 100
    whole = fmean(found["reference"]["cpu_seconds"])

    def cells(row: Row) -> list[str]:
        reached = [time for time in row["seconds_to_reference"] if time is not None]
        missed = "" if len(reached) == seeds else f", {len(reached)} of {seeds} seeds"
        to_goal = [f"{fmean(reached):.0f}{missed}", f"{fmean(reached) / whole:.2f}"]
        return [
            str(row["epochs"]),
            seconds(row),
            spread(row["recall@1"]),
            *(to_goal if reached else ["never", ""]),
        ]

    for row in found.values():
        row["seconds_to_reference"] = [seconds_to(points, goal) for points in row["curves"]]
    heads = [
        "",
        "epochs",
        "CPU s",
        "R@1",
        f"CPU s to reference's {100 * goal:.2f}",
        f"of reference's {whole:.0f}",
    ]
    print(table(heads, {name: cells(row) for name, row in found.items()}))
    write_json(bench.out / "train.json", found)
    draw({name: row["curves"] for name, row in found.items()}, bench.out / "curves.png", title, goal)


def ablate(bench: Bench, study: Study, changes: Mapping[str, Settings], seeds: int) -> None:
    """Train `fast` with each of these changes; score on validation images."""
    recipes = {name: study.changed(change).but(**VALIDATION) for name, change in changes.items()}
    found = bench.train(recipes, seeds, "ablate")
    rows = {name: [spread(row["recall@1"]), seconds(row)] for name, row in found.items()}
    print(table(["`fast`, but", "validation R@1", "CPU s"], rows))
    write_json(bench.out / "ablate.json", {name: {**changes[name], **row} for name, row in found.items()})


def draw(
    curves: Mapping[str, Sequence[Sequence[tuple[float, float]]]], path: Path, name: str, goal: float
) -> None:
    """Plot recall@1 over CPU seconds: mean and range of the seeds."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4.8), layout="constrained")
    for recipe_name, of_seeds in curves.items():
        seconds = [fmean(point[0] for point in points) for points in zip(*of_seeds, strict=True)]
        recalls = [[100 * point[1] for point in points] for points in zip(*of_seeds, strict=True)]
        leading = recipe_name in ("fast", "reference", "paper")
        (line,) = axes.plot(
            seconds,
            [fmean(values) for values in recalls],
            label=recipe_name,
            linewidth=2.2 if leading else 1.1,
            linestyle="-" if leading else "--",
        )
        axes.fill_between(
            seconds, [min(v) for v in recalls], [max(v) for v in recalls], color=line.get_color(), alpha=0.12
        )
    axes.axhline(100 * goal, color="grey", linewidth=0.8, linestyle=":")
    axes.set(xlabel="CPU seconds of training, one thread", ylabel="recall@1 on test images, %", title=name)
    axes.legend(ncols=2, frameon=False)
    axes.grid(alpha=0.25)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("stage", choices=["train", "ablate", "all"])
    parser.add_argument("--images", type=Path, help="CIFAR-10 with a folder per class, for CIFARtoy")
    parser.add_argument("--out", type=Path, help="by default runs/time-to-recall-STUDY")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--recipes", default="all", help="of the stage train, comma-separated; reference among them"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    answer(parser, carry_out)


def carry_out(options: argparse.Namespace) -> None:
    """Run the stages asked for."""
    name: str = options.study
    study = STUDIES[name]
    if options.stage != "ablate" and not study.methods:
        raise UsageError(f"{name} has no recipes to train, only the stage ablate")
    chosen = study.chosen(options.recipes) if study.methods else {}
    out: Path = options.out or Path("runs") / f"time-to-recall-{name}"
    make_writable(out)
    bench = Bench(study.prepare(options.images, out), out, options.jobs)
    if options.stage in ("train", "all"):
        train(bench, chosen, options.seeds, name)
    if options.stage in ("ablate", "all"):
        ablate(bench, study, ABLATIONS, options.seeds)


if __name__ == "__main__":
    main()
