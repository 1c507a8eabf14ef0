"""CPU seconds until the embedding is good: `fast` beside `reference`, `paper` and every coarse-label method.

    python benchmarks/time_to_recall.py embedded all                     # goes on where it was stopped
    python benchmarks/time_to_recall.py cifartoy-good all --images PATH  # PATH/{train,test}/<class>/*.jpg: CIFAR-10

    train    `fast` and all others, three seeds, scored on the test images after every epoch; the other coarse-label
             methods by the optimiser of the paper, and ("... by muon") by that of `fast`
    ablate   `fast` with one part taken away or changed, three seeds, on validation images: a fifth of the training ones
    muon     what optimiser and schedule of `fast` bring the other methods, on validation images: two rates with one
             seed each, then the better one with three
    long     `fast` and CoIns optimised as it is, four times as many epochs, on validation images, one seed

How `fast` was found: `recipe_trials.py`.
The same pictures, the same net (that of the preset `cpu`) and seeds for all; one thread a run. CPU seconds are those of
training, evaluation left out. Each coarse-label method has its own best settings by validation (`method_table.py`; by
Muon, the stage `muon`) and as many epochs as take at least the CPU time of `fast`: they stand in `STUDIES`. Everything
lands under --out:
a folder a run, `train.json`, `ablate.json`, `muon.json`, `long.json` and `curves.png`.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from maskcon.comparison import Job, run_jobs
from maskcon.errors import UsageError, unknown
from maskcon.presets import METHOD_SETTINGS
from maskcon.report.journal import read_journal
from maskcon.run_folder import JOURNAL, make_writable, read_result
from method_table import answer, lay_out, show, write_json
from recall_curves import draw

Settings = Mapping[str, Any]
NET: Settings = {"backbone": "resnet10", "width": 16, "stem": "fast", "weights": "none"}


@dataclass(frozen=True)
class Recipe:
    """What is trained: a preset, a method and what is set on top."""

    preset: str
    method: str
    settings: Settings

    def job(self, label: str, folder: Path, source: str, seed: int, more: Settings) -> Job:
        values = {**self.settings, **more}
        pairs = [argument for key, value in values.items() for argument in ("--set", f"{key}={value}")]
        fixed = ["--method", self.method, "--preset", self.preset, "--seed", str(seed)]
        return Job(label, folder, [source, *fixed, *pairs])


@dataclass(frozen=True)
class Study:
    """One data set: its source and the epochs of each recipe."""

    source: str  # a data set by name, or the CIFARtoy split to be laid out as folders
    epochs: Mapping[str, int]
    methods: Mapping[str, Settings]  # each coarse-label method's best settings by validation
    muon_rates: Mapping[str, float]  # the better of two rates by Muon, by validation


# As many epochs as take the CPU seconds of `fast`, or a few more.
EMBEDDED = Study(
    "embedded",
    epochs={
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
FAST_EPOCHS = {"embedded": 34, "cifartoy-good": 14}
ENCODED = 0.74  # as many epochs, where each has a key net to run
# How `fast` is optimised, and the rates that every other method is tried at by it.
MUON: Settings = {
    **{key: METHOD_SETTINGS["fast"]["maskcon"][key] for key in ("optimizer", "schedule", "warmup_share")},
    "relation_warmup_share": 0.5,  # of Grafit and of MaskCon by projections
}
MUON_RATES = (0.1, 0.2)
BY_MUON = " by muon"
LONGER = 4  # times as many epochs, in the stage `long`
# What each part of it brings.
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
    "no cross-entropy": {"coarse_weight": 0.0},
    "BatchNorm statistics as they ran along": {"final_statistics": 0},
    "no relation (w 0): instances and cross-entropy": {"w": 0.0},
}


def recipes(study: Study) -> dict[str, Recipe]:
    """All that is compared, by name."""
    return {
        "fast": Recipe("fast", "maskcon", {}),
        "reference": Recipe("reference", "maskcon", NET),
        "paper": Recipe("paper", "maskcon", NET),
        **{
            method: Recipe("cpu", method, {"coarse_weight": 0.0, **settings})
            for method, settings in study.methods.items()
        },
        **{
            method + BY_MUON: Recipe(
                "cpu",
                method,
                {"coarse_weight": 0.0, **settings, **MUON, "learning_rate": study.muon_rates[method]},
            )
            for method, settings in study.methods.items()
        },
    }


def wanted_recipes(asked: str, name: str) -> list[str]:
    """Names of recipes, comma-separated or "all"; times are told against `reference`, so it has to be there."""
    known = list(recipes(STUDIES[name]))
    chosen = known if asked == "all" else asked.split(",")
    for recipe_name in chosen:
        if recipe_name not in known:
            raise unknown("recipe", recipe_name, known)
    if "reference" not in chosen:
        raise UsageError("--recipes needs reference: the others' times are told against it")
    return chosen


def curve(folder: Path) -> list[tuple[float, float]]:
    """CPU seconds and recall@1 of every evaluation of a finished run."""
    return [
        (event["cpu_seconds"], event["recall"]["1"])
        for event in read_journal(folder / JOURNAL)
        if event.get("kind") == "evaluation"
    ]


def seconds_to(curve: Sequence[tuple[float, float]], recall: float) -> float | None:
    """CPU seconds at the first evaluation that reaches `recall`; None if none does.

    >>> seconds_to([(10.0, 0.4), (20.0, 0.5), (30.0, 0.6)], 0.5)
    20.0
    """
    return next((seconds for seconds, reached in curve if reached >= recall), None)


def run_all(
    wanted: Mapping[str, tuple[Recipe, Settings]], source: str, out: Path, seeds: int, at_once: int
) -> dict[str, list[Path]]:
    """Train each with every seed; the finished folders by name."""
    jobs = {
        name: [
            recipe.job(f"{name} {seed}", out / f"{name}-seed{seed}", source, seed, more)
            for seed in range(seeds)
        ]
        for name, (recipe, more) in wanted.items()
    }
    run_jobs(
        [job for seed in range(seeds) for job in (of_name[seed] for of_name in jobs.values())],
        at_once=at_once,
        threads=1,
        watch=show,
    )
    print()
    return {name: [job.folder for job in of_name] for name, of_name in jobs.items()}


def spread(values: Sequence[float]) -> str:
    return f"{fmean(values):.2f}" + (f" ± {stdev(values):.2f}" if len(values) > 1 else "")


def summary(folders: Sequence[Path]) -> dict[str, Any]:
    """Final recall@1 in percent and CPU seconds of every seed, and the curves."""
    results = [read_result(folder) for folder in folders]
    return {
        "epochs": results[0]["epochs"],
        "recall@1": [round(100 * result["recall"]["1"], 3) for result in results],
        "cpu_seconds": [result["cpu_seconds"] for result in results],
        "curves": [curve(folder) for folder in folders],
    }


def train(name: str, source: str, out: Path, chosen: Sequence[str], seeds: int, at_once: int) -> None:
    """The chosen recipes on all training images, scored on the test images after every epoch."""
    study = STUDIES[name]
    epochs = {**study.epochs, "fast": FAST_EPOCHS[name]}
    wanted = {
        recipe_name: (recipe, {"epochs": epochs[recipe_name.removesuffix(BY_MUON)], "eval_every_epochs": 1})
        for recipe_name, recipe in recipes(study).items()
        if recipe_name in chosen
    }
    found = {
        recipe_name: summary(folders)
        for recipe_name, folders in run_all(wanted, source, out, seeds, at_once).items()
    }
    goal = fmean(found["reference"]["recall@1"]) / 100
    whole = fmean(found["reference"]["cpu_seconds"])
    print(f"| | epochs | CPU s | R@1 | CPU s to reference's {100 * goal:.2f} | of reference's {whole:.0f} |")
    print("|---|---:|---:|---:|---:|---:|")
    for recipe_name, row in found.items():
        times = [seconds_to(points, goal) for points in row["curves"]]
        reached = [seconds for seconds in times if seconds is not None]
        row["seconds_to_reference"] = times
        missed = "" if len(reached) == len(times) else f", {len(reached)} of {len(times)} seeds"
        to_goal = f"{fmean(reached):.0f}{missed} | {fmean(reached) / whole:.2f}" if reached else "never | "
        cost = f"{row['epochs']} | {fmean(row['cpu_seconds']):.0f}"
        print(f"| {recipe_name} | {cost} | {spread(row['recall@1'])} | {to_goal} |")
    write_json(out / "train.json", found)
    draw({key: row["curves"] for key, row in found.items()}, out / "curves.png", name, goal)


def by_muon(name: str, source: str, out: Path, seeds: int, at_once: int) -> None:
    """Each coarse-label method optimised as `fast` is, with the epochs that it has by SGD, on validation images."""
    study = STUDIES[name]
    fixed = {"eval_every_epochs": 0, "evaluate_on": "validation", **MUON}

    def run(rates: Mapping[str, Sequence[float]], seeds: int) -> dict[tuple[str, float], list[Path]]:
        wanted = {
            f"{method} {rate}": (
                Recipe("cpu", method, {"coarse_weight": 0.0, **study.methods[method]}),
                {**fixed, "epochs": study.epochs[method], "learning_rate": rate},
            )
            for method, of_method in rates.items()
            for rate in of_method
        }
        folders = run_all(wanted, source, out / "muon", seeds, at_once)
        return {
            (method, rate): folders[f"{method} {rate}"]
            for method, of_method in rates.items()
            for rate in of_method
        }

    searched = run(dict.fromkeys(study.methods, MUON_RATES), 1)
    reached = {trial: 100 * read_result(folder)["recall"]["1"] for trial, (folder,) in searched.items()}
    best = {method: max((reached[method, rate], rate) for rate in MUON_RATES)[1] for method in study.methods}
    finals = run({method: [rate] for method, rate in best.items()}, seeds)
    print(f"| by Muon | {' | '.join(f'rate {rate}' for rate in MUON_RATES)} | R@1, {seeds} seeds | CPU s |")
    print(f"|---|{'---:|' * (len(MUON_RATES) + 2)}")
    found = {}
    for (method, rate), folders in finals.items():
        rates = {str(tried_rate): round(reached[method, tried_rate], 3) for tried_rate in MUON_RATES}
        found[method] = row = {"learning_rate": rate, "at_rates": rates, **summary(folders)}
        cells = " | ".join(f"{recall:.2f}" for recall in rates.values())
        print(f"| {method} | {cells} | {spread(row['recall@1'])} | {fmean(row['cpu_seconds']):.0f} |")
    write_json(out / "muon.json", found)


def ablate(
    trials: Mapping[str, Settings], name: str, source: str, out: Path, seeds: int, at_once: int
) -> None:
    """`fast` with each of these changes, scored on validation images at its end.

    Where keys are encoded an epoch takes longer, and there are fewer.
    """
    fixed = {"eval_every_epochs": 0, "evaluate_on": "validation"}
    fast = Recipe("fast", "maskcon", {})
    wanted = {}
    for trial, changes in trials.items():
        encoded = changes.get("keys") == "encoder" or changes.get("relation_space") == "projection"
        epochs = max(1, round(FAST_EPOCHS[name] * (ENCODED if encoded else 1)))
        wanted[trial] = (fast, {**fixed, "epochs": epochs, **changes})
    folders = run_all(wanted, source, out / "ablate", seeds, at_once)
    found = {trial: {**trials[trial], **summary(folders[trial])} for trial in trials}
    print("| `fast`, but | validation R@1 | CPU s |\n|---|---:|---:|")
    for trial, row in found.items():
        print(f"| {trial} | {spread(row['recall@1'])} | {fmean(row['cpu_seconds']):.0f} |")
    write_json(out / "ablate.json", found)


def train_long(name: str, source: str, out: Path, at_once: int) -> None:
    """`fast` and CoIns by Muon, in the same CPU time four times as long, on validation images."""
    study = STUDIES[name]
    epochs = {"fast": FAST_EPOCHS[name], "coins" + BY_MUON: study.epochs["coins"]}
    known = recipes(study)
    wanted = {
        recipe_name: (
            known[recipe_name],
            {"epochs": LONGER * count, "eval_every_epochs": 0, "evaluate_on": "validation"},
        )
        for recipe_name, count in epochs.items()
    }
    folders = run_all(wanted, source, out / "long", 1, at_once)
    found = {recipe_name: summary(of_name) for recipe_name, of_name in folders.items()}
    print("| | epochs | validation R@1 | CPU s |\n|---|---:|---:|---:|")
    for recipe_name, row in found.items():
        cost = f"{fmean(row['cpu_seconds']):.0f}"
        print(f"| {recipe_name} | {row['epochs']} | {spread(row['recall@1'])} | {cost} |")
    write_json(out / "long.json", found)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("stage", choices=["train", "ablate", "muon", "long", "all"])
    parser.add_argument("--images", type=Path, help="CIFAR-10 as a folder a class, for CIFARtoy")
    parser.add_argument("--out", type=Path, help="by default runs/time-to-recall-STUDY")
    parser.add_argument("--seeds", type=int, default=3, help="of the stages train, ablate and muon")
    parser.add_argument(
        "--recipes", default="all", help="of the stage train, comma-separated; reference among them"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    answer(parser, carry_out)


def carry_out(options: argparse.Namespace) -> None:
    """The stages asked for."""
    name: str = options.study
    out: Path = options.out or Path("runs") / f"time-to-recall-{name}"
    make_writable(out)
    source = STUDIES[name].source
    if source == "good":
        if options.images is None:
            raise UsageError("CIFARtoy needs --images: CIFAR-10 as train/ and test/, a folder a class")
        source = str(lay_out(options.images, source, out / "pictures"))
    if options.stage in ("train", "all"):
        train(name, source, out, wanted_recipes(options.recipes, name), options.seeds, options.jobs)
    if options.stage in ("ablate", "all"):
        ablate(ABLATIONS, name, source, out, options.seeds, options.jobs)
    if options.stage in ("muon", "all"):
        by_muon(name, source, out, options.seeds, options.jobs)
    if options.stage in ("long", "all"):
        train_long(name, source, out, options.jobs)


if __name__ == "__main__":
    main()
