"""CPU seconds until the embedding is good: `fast` beside `reference`, `paper` and every coarse-label method.

    python benchmarks/time_to_recall.py embedded all                     # goes on where it was stopped
    python benchmarks/time_to_recall.py cifartoy-good all --images PATH  # PATH/{train,test}/<class>/*.jpg: CIFAR-10

    train    `fast` and all others, three seeds, scored on the test images after every epoch; the other coarse-label
             methods by the optimiser of the paper, and ("... by muon") by that of `fast`
    ablate   `fast` with one part taken away or changed, three seeds, on validation images: a fifth of the training ones
    muon     what optimiser and schedule of `fast` bring the other methods, on validation images: two rates with one
             seed each, then the better one with three
    long     `fast`, the same with strong and with weak views for all queries, and CoIns optimised as it is, four times
             as many epochs, on validation images, one seed

How `fast` was found: `recipe_trials.py`.
The same pictures, the same net (that of the preset `cpu`) and seeds for all; one thread a run. CPU seconds are those of
training, evaluation left out. Each coarse-label method has its own best settings by validation (`method_table.py`; by
Muon, the stage `muon`) and as many epochs as take at least the CPU time of `fast`: they stand in `recall_studies.py`.
Everything lands under --out: a folder a run, `train.json`, `ablate.json`, `muon.json`, `long.json` and `curves.png`.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from maskcon.training.comparison import run_jobs
from maskcon.training.journal import read_journal
from maskcon.training.run_folder import JOURNAL, make_writable, read_result
from method_table import answer, show, write_json
from recall_curves import draw
from recall_studies import ABLATIONS, MUON_RATES, STUDIES, VALIDATION, Recipe, Settings, Study

Row = dict[str, Any]


@dataclass(frozen=True)
class Bench:
    """Where runs are made: of which pictures, under which folder, how many at once."""

    source: str
    out: Path
    at_once: int

    def train(self, recipes: Mapping[str, Recipe], seeds: int, under: str = "") -> dict[str, Row]:
        """Each recipe with every seed, on one thread; what they reached, by name."""
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


def seconds(row: Row) -> str:
    return f"{fmean(row['cpu_seconds']):.0f}"


def table(heads: Sequence[str], rows: Mapping[str, Sequence[str]]) -> str:
    """Markdown: names on the left, numbers to the right.

    >>> print(table(["", "R@1"], {"fast": ["71.33"]}))
    |  | R@1 |
    |---|---:|
    | fast | 71.33 |
    """
    lines = [heads, *([name, *cells] for name, cells in rows.items())]
    head, *body = (f"| {' | '.join(line)} |" for line in lines)
    return "\n".join([head, "|---|" + "---:|" * (len(heads) - 1), *body])


def train(bench: Bench, recipes: Mapping[str, Recipe], seeds: int, title: str) -> None:
    """These recipes, `reference` among them, on all training images, scored on the test images after every epoch."""
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
    """`fast` with each of these changes, on validation images."""
    recipes = {name: study.changed(change).but(**VALIDATION) for name, change in changes.items()}
    found = bench.train(recipes, seeds, "ablate")
    rows = {name: [spread(row["recall@1"]), seconds(row)] for name, row in found.items()}
    print(table(["`fast`, but", "validation R@1", "CPU s"], rows))
    write_json(bench.out / "ablate.json", {name: {**changes[name], **row} for name, row in found.items()})


def by_muon(bench: Bench, study: Study, seeds: int) -> None:
    """Each coarse-label method optimised as `fast` is, with the epochs that it has by SGD, on validation images."""

    def run(rates: Mapping[str, Sequence[float]], seeds: int) -> dict[str, dict[float, Row]]:
        pairs = {f"{method} {rate}": (method, rate) for method, tried in rates.items() for rate in tried}
        recipes = {name: study.by_muon(*pair).but(**VALIDATION) for name, pair in pairs.items()}
        found = bench.train(recipes, seeds, "muon")
        return {
            method: {rate: found[f"{method} {rate}"] for rate in tried} for method, tried in rates.items()
        }

    searched = run(dict.fromkeys(study.methods, MUON_RATES), 1)
    at_rates = {
        method: {rate: row["recall@1"][0] for rate, row in of_method.items()}
        for method, of_method in searched.items()
    }
    best = {
        method: max((recall, rate) for rate, recall in tried.items())[1] for method, tried in at_rates.items()
    }
    finals = run({method: [rate] for method, rate in best.items()}, seeds)
    found = {
        method: {
            "learning_rate": best[method],
            "at_rates": {str(rate): recall for rate, recall in at_rates[method].items()},
            **of_method[best[method]],
        }
        for method, of_method in finals.items()
    }
    heads = ["by Muon", *(f"rate {rate}" for rate in MUON_RATES), f"R@1, {seeds} seeds", "CPU s"]
    rows = {
        method: [
            *(f"{recall:.2f}" for recall in row["at_rates"].values()),
            spread(row["recall@1"]),
            seconds(row),
        ]
        for method, row in found.items()
    }
    print(table(heads, rows))
    write_json(bench.out / "muon.json", found)


def train_long(bench: Bench, study: Study) -> None:
    """`fast` and what it is compared with, several times as long, on validation images."""
    recipes = {name: recipe.but(**VALIDATION) for name, recipe in study.longer().items()}
    found = bench.train(recipes, 1, "long")
    rows = {name: [str(row["epochs"]), spread(row["recall@1"]), seconds(row)] for name, row in found.items()}
    print(table(["", "epochs", "validation R@1", "CPU s"], rows))
    write_json(bench.out / "long.json", found)


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
    study = STUDIES[name]
    chosen = study.chosen(options.recipes)
    out: Path = options.out or Path("runs") / f"time-to-recall-{name}"
    make_writable(out)
    bench = Bench(study.pictures(options.images, out), out, options.jobs)
    if options.stage in ("train", "all"):
        train(bench, chosen, options.seeds, name)
    if options.stage in ("ablate", "all"):
        ablate(bench, study, ABLATIONS, options.seeds)
    if options.stage in ("muon", "all"):
        by_muon(bench, study, options.seeds)
    if options.stage in ("long", "all"):
        train_long(bench, study)


if __name__ == "__main__":
    main()
