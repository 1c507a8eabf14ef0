"""The table of all methods on the embedded set: settings chosen on validation, scored on test, three seeds.

    python benchmarks/embedded_table.py search    # every method tries the same number of settings on validation
    python benchmarks/embedded_table.py train     # the chosen ones, three seeds, scored on the test images
    python benchmarks/embedded_table.py all       # both; goes on where it was stopped

Validation is a fifth of the training images, held out of training; test labels are read only by the final scores.
Everything lands under --out: a folder a run, `search.json`, `chosen.json`, `report.html`, `tables/`, `figures/`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from maskcon.comparison import Job, run_jobs
from maskcon.errors import MaskconError, UsageError
from maskcon.report.tables import methods_table
from maskcon.run_folder import read_result
from maskcon.summary import write_summary

Settings = Mapping[str, float]


def grid(**choices: Sequence[float]) -> list[dict[str, float]]:
    """Every combination, as settings.

    >>> grid(w=[0.5], learning_rate=[0.06, 0.2])
    [{'w': 0.5, 'learning_rate': 0.06}, {'w': 0.5, 'learning_rate': 0.2}]
    """
    return [dict(zip(choices, values, strict=True)) for values in itertools.product(*choices.values())]


RATES = [0.06, 0.2]
# Six settings a method: no method is searched harder than another.
TRIALS: dict[str, list[dict[str, float]]] = {
    "selfcon": grid(learning_rate=[0.06, 0.12, 0.25], weight_decay=[5e-4, 1e-4]),
    "nnclr": grid(learning_rate=[0.06, 0.12, 0.25], weight_decay=[5e-4, 1e-4]),
    "ascl": grid(tau=[0.05, 0.02, 0.01], learning_rate=RATES),  # larger ones give up instances at once
    "supce": grid(learning_rate=[0.03, 0.06, 0.15], weight_decay=[5e-4, 2e-3]),
    "supcon": grid(learning_rate=[0.06, 0.12, 0.25], weight_decay=[5e-4, 1e-4]),
    "grafit": grid(w=[0.2, 0.5, 0.8], learning_rate=RATES),
    "coins": grid(w=[0.2, 0.5, 0.8], learning_rate=RATES),
    "maskcon": [
        {"w": w, "tau": tau, "learning_rate": rate}
        for (w, tau) in ((1.0, 0.05), (1.0, 0.1), (0.8, 0.05))
        for rate in RATES
    ],
    "supfine": grid(learning_rate=[0.03, 0.06, 0.15], weight_decay=[5e-4, 2e-3]),
}


def train_arguments(method: str, seed: int, settings: Mapping[str, Any]) -> list[str]:
    """Arguments of `maskcon train`."""
    pairs = [argument for key, value in settings.items() for argument in ("--set", f"{key}={value}")]
    return ["embedded", "--method", method, "--seed", str(seed), *pairs]


def show(jobs: Sequence[Job]) -> None:
    done = sum(job.share for job in jobs)
    print(f"\r{done:6.2f} of {len(jobs)} runs done", end="", flush=True)


def search(out: Path, epochs: int, at_once: int) -> dict[str, Settings]:
    """Each method's best of its trials by recall@1 on validation; all of them go to `search.json`."""
    jobs: dict[tuple[str, int], Job] = {}
    for method, trials in TRIALS.items():
        for number, trial in enumerate(trials):
            settings = {**trial, "epochs": epochs, "evaluate_on": "validation", "eval_every_epochs": 0}
            folder = out / "search" / f"{method}-{number}"
            jobs[method, number] = Job(f"{method} {trial}", folder, train_arguments(method, 0, settings))
    run_jobs(list(jobs.values()), at_once=at_once, threads=1, watch=show)
    print()
    found: dict[str, list[dict[str, Any]]] = {}
    for (method, number), job in jobs.items():
        recall = read_result(job.folder)["recall"]["1"]
        found.setdefault(method, []).append({**TRIALS[method][number], "validation_recall@1": recall})
    (out / "search.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    best = {method: max(rows, key=lambda row: row["validation_recall@1"]) for method, rows in found.items()}
    chosen: dict[str, Settings] = {
        m: {k: v for k, v in row.items() if k != "validation_recall@1"} for m, row in best.items()
    }
    (out / "chosen.json").write_text(json.dumps(chosen, indent=1) + "\n", encoding="utf-8")
    for method, row in best.items():
        print(f"{method:8s} {row}")
    return chosen


def train(out: Path, epochs: int, seeds: int, at_once: int, eval_every: int) -> None:
    """The chosen settings on all training images, several seeds, scored on test; table, figures and report."""
    if not (out / "chosen.json").is_file():
        raise UsageError(f"{out} has no chosen.json yet; run the stage search first, or all")
    chosen = json.loads((out / "chosen.json").read_text(encoding="utf-8"))
    jobs = []
    for seed in range(seeds):
        for method, settings in chosen.items():
            whole = {**settings, "epochs": epochs, "eval_every_epochs": eval_every}
            job = Job(f"{method} {seed}", out / f"{method}-seed{seed}", train_arguments(method, seed, whole))
            jobs.append(job)
    run_jobs(jobs, at_once=at_once, threads=1, watch=show)
    print()
    results = [read_result(job.folder) for job in jobs]
    print(methods_table(results).markdown())
    print(f"CPU minutes a run: at most {max(r['cpu_seconds'] for r in results) / 60:.1f}")
    command = shlex.join(["python", "benchmarks/embedded_table.py", *sys.argv[1:]])
    print(
        write_summary([job.folder for job in jobs], out, command=command, title="All methods, embedded set")
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("stage", choices=["search", "train", "all"])
    parser.add_argument("--out", type=Path, default=Path("runs/embedded-table"))
    parser.add_argument("--search-epochs", type=int, default=15)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--eval-every", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        if options.stage in ("search", "all"):
            search(options.out, options.search_epochs, options.jobs)
        if options.stage in ("train", "all"):
            train(options.out, options.epochs, options.seeds, options.jobs, options.eval_every)
    except MaskconError as error:
        print(f"\n{error}", file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
