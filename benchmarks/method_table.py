"""Tables of all methods on one dataset: settings chosen on validation, scored on test, three seeds.

    python benchmarks/method_table.py embedded all        # search, then train; rerun to resume
    python benchmarks/method_table.py embedded search     # each method's settings, scored on validation
    python benchmarks/method_table.py embedded train      # the chosen ones, three seeds, scored on the test images

    python benchmarks/method_table.py cifartoy-good all --images PATH     # PATH/{train,test}/<class>/*.jpg: CIFAR-10
    python benchmarks/method_table.py cifartoy-bad all --images PATH

    python benchmarks/method_table.py embedded-fast all                       # preset fast: Muon for every method
    python benchmarks/method_table.py cifartoy-good-fast all --images PATH
    python benchmarks/method_table.py cifartoy-good-complete all --images PATH  # all 40,000 images; bad too; hours
    python benchmarks/method_table.py cifar100-fast all                       # below MASKCON_DATA; hours

Validation is a fifth of the training images, held out of training; test labels are read only by the final scores.
Results are written below --out: a folder per run, `search.json`, `chosen.json`, `report.html`, `tables/`, `figures/`.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from maskcon._utils.errors import MaskconError, UsageError, unknown
from maskcon.data.builtin.cifar import TOY_GROUPS
from maskcon.report.summary import write_summary
from maskcon.report.tables import methods_table
from maskcon.training.comparison import Job, run_jobs
from maskcon.training.run_folder import RESULT, make_writable, read_result

DIVERGED = "became NaN or Inf"  # in what such a run says last
Settings = Mapping[str, float]
Trials = Mapping[str, Sequence[Settings]]


def grid(**choices: Sequence[float]) -> list[dict[str, float]]:
    """Every combination, as settings.

    >>> grid(w=[0.5], learning_rate=[0.06, 0.2])
    [{'w': 0.5, 'learning_rate': 0.06}, {'w': 0.5, 'learning_rate': 0.2}]
    """
    return [dict(zip(choices, values, strict=True)) for values in itertools.product(*choices.values())]


RATES = [0.06, 0.2]
# Six settings per method: every method gets the same search effort.
EMBEDDED_TRIALS: Trials = {
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
# Two rates for every method; w or tau beside where the method has them.
PAPER_TRIALS: Trials = {
    "selfcon": grid(learning_rate=RATES),
    "nnclr": grid(learning_rate=RATES),
    "ascl": grid(tau=[0.02], learning_rate=RATES),
    "supce": grid(learning_rate=RATES),
    "supcon": grid(learning_rate=RATES),
    "grafit": grid(w=[0.5, 0.8], learning_rate=RATES),
    "coins": grid(w=[0.5, 0.8], learning_rate=RATES),
    "maskcon": grid(w=[1.0], tau=[0.05, 0.1], learning_rate=RATES),
    "supfine": grid(learning_rate=RATES),
}
# The second split: only what depends on the coarse groups is trained again, at the rate that the first one chose.
REGROUPED: Trials = {
    "supce": grid(learning_rate=[0.06]),
    "supcon": grid(learning_rate=[0.2]),
    "grafit": grid(w=[0.5, 0.8], learning_rate=[0.2]),
    "coins": grid(w=[0.5, 0.8], learning_rate=[0.2]),
    "maskcon": grid(w=[1.0], tau=[0.05, 0.1], learning_rate=[0.2]),
}
# Preset `fast`: the same three rates of Muon for every method; w and tau are the preset's.
MUON_TRIALS: Trials = {
    method: grid(learning_rate=[0.05, 0.1, 0.2]) for method in (*EMBEDDED_TRIALS, "bucsfr", "teachcon")
}
TAUS = (0.0, 0.05, 0.1, 0.5)
PER_CLASS = {"train": 1500, "test": 250}  # images per class of CIFARtoy, 8 classes
COMPLETE = {"train": 5000, "test": 1000}


@dataclass(frozen=True)
class Study:
    """One table: the data, the settings tried, and the budget."""

    source: str  # a dataset by name, or a CIFARtoy split
    trials: Trials
    epochs: int
    search_epochs: int
    eval_every: int
    taus: Sequence[float] = ()  # MaskCon is also trained at each of these, with its chosen w and rate
    fixed: Mapping[str, Any] = field(default_factory=dict)  # settings of every run
    preset: str | None = "cpu"  # None: batch and bank are chosen automatically
    search_on: str = "validation"  # or "test", where the source of the search has none of the test images
    finalists: float = 0.0  # this share of a method's settings, at least one, the best at seed 0 ...
    search_seeds: int = 1  # ... are tried with this many seeds in all; the best mean is chosen
    search_limit: int | None = None  # images of the search, at most
    per_class: Mapping[str, int] = field(default_factory=lambda: PER_CLASS)  # images of CIFARtoy


STUDIES = {
    "embedded": Study("embedded", EMBEDDED_TRIALS, epochs=30, search_epochs=15, eval_every=3),
    "cifartoy-good": Study("good", PAPER_TRIALS, epochs=12, search_epochs=6, eval_every=4, taus=TAUS),
    "cifartoy-bad": Study("bad", REGROUPED, epochs=12, search_epochs=6, eval_every=4),
    "embedded-fast": Study("embedded", MUON_TRIALS, epochs=30, search_epochs=15, eval_every=3, preset="fast"),
    "cifartoy-good-fast": Study("good", MUON_TRIALS, epochs=12, search_epochs=6, eval_every=4, preset="fast"),
    **{
        f"cifartoy-{split}-complete": Study(
            split,
            MUON_TRIALS,
            epochs=50,
            search_epochs=6,
            eval_every=10,
            preset="fast",
            search_limit=12_000,
            per_class=COMPLETE,
        )
        for split in ("good", "bad")
    },
    "cifar100-fast": Study(
        "cifar100",
        MUON_TRIALS,
        epochs=12,
        search_epochs=8,
        eval_every=4,
        preset="fast",
        search_limit=12_000,
    ),
}


def lay_out(
    images: Path, split: str, target: Path, per_class: Mapping[str, int] = PER_CLASS, *, held_out: int = 0
) -> Path:
    """Link part/coarse/fine/image to a subset of CIFAR-10, grouped as in the paper's text.

    Images are chosen by a hash of their names, so the subset is reproducible.

    Args:
        held_out: Further training images per class that replace the test images, for choosing settings.
    """
    shares = {part: (part, 0, count) for part, count in per_class.items()}
    if held_out:
        shares["test"] = ("train", per_class["train"], per_class["train"] + held_out)
    for part, (taken_from, first, end) in shares.items():
        for name, classes in zip(("class A", "class B"), TOY_GROUPS["paper", split], strict=True):
            for fine in classes:
                files = chosen_images(images / taken_from / fine, first, end)
                folder = target / part / name / fine
                folder.mkdir(parents=True, exist_ok=True)
                for file in files:
                    if not (folder / file.name).is_symlink():
                        (folder / file.name).symlink_to(file.resolve())
    return target


def chosen_images(folder: Path, first: int, end: int) -> list[Path]:
    """Return images `first` to `end` of a folder, ordered by a hash of their names."""
    files = sorted(folder.glob("*.*"), key=lambda file: name_hash(file.name))
    if len(files) < end:
        raise UsageError(f"{folder} has {len(files)} images; {end} are needed")
    return files[first:end]


def name_hash(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def train_arguments(
    source: str, method: str, seed: int, settings: Mapping[str, Any], preset: str | None = "cpu"
) -> list[str]:
    """Return the arguments of `maskcon train`; "maskcon+ce" adds cross-entropy on the coarse labels.

    The weight of that cross-entropy is always given, so that defaults do not matter; TeachCon has its own.

    Args:
        preset: None leaves batch and bank size to the automatic choice.
    """
    method, _, more = method.partition("+")
    if method != "teachcon":
        settings = {"coarse_weight": 1.0 if more == "ce" else 0.0, **settings}
    pairs = [argument for key, value in settings.items() for argument in ("--set", f"{key}={value}")]
    start = [] if preset is None else ["--preset", preset]
    return [source, "--method", method, *start, "--seed", str(seed), *pairs]


def show(jobs: Sequence[Job]) -> None:
    if sys.stdout.isatty():
        print(f"\r{sum(job.share for job in jobs):6.2f} of {len(jobs)} runs done", end="", flush=True)


def diverged(job: Job) -> bool:
    """Return whether the run diverged: a bad setting, but no reason to stop the search."""
    return not (job.folder / RESULT).is_file() and job.log_path.is_file() and DIVERGED in job.reason()


def search(study: Study, source: str, methods: Sequence[str], out: Path, at_once: int) -> None:
    """Choose each method's settings by recall@1 on validation; write all trials to `search.json`."""

    def tried(trials: Sequence[tuple[str, int]], seed: int) -> None:
        """Run these trials with this seed and record their recall."""
        jobs: list[Job] = []
        for method, number in trials:
            settings: dict[str, Any] = {**study.fixed, **study.trials[method][number]}
            settings |= {
                "epochs": study.search_epochs,
                "eval_every_epochs": 0,
                "evaluate_on": study.search_on,
                "train_limit": study.search_limit,
            }
            name = f"{method}-{number}" if seed == 0 else f"{method}-{number}-seed{seed}"
            arguments = train_arguments(source, method, seed, settings, study.preset)
            jobs.append(Job(f"{method} {study.trials[method][number]}", out / "search" / name, arguments))
        run_jobs(jobs, at_once=at_once, threads=1, watch=show, may_fail=diverged)
        for trial, job in zip(trials, jobs, strict=True):
            recalls.setdefault(trial, []).append(
                0.0 if diverged(job) else read_result(job.folder)["recall"]["1"]
            )

    recalls: dict[tuple[str, int], list[float]] = {}
    tried([(method, number) for method in methods for number in range(len(study.trials[method]))], 0)
    finals: dict[str, list[tuple[str, int]]] = {
        method: sorted(
            (trial for trial in recalls if trial[0] == method), key=lambda trial: -recalls[trial][0]
        )[: max(1, round(study.finalists * len(study.trials[method])))]
        for method in methods
    }
    for seed in range(1, study.search_seeds):
        tried([trial for method in methods for trial in finals[method]], seed)
    print()
    found: dict[str, list[dict[str, Any]]] = {}
    for (method, number), of_seeds in recalls.items():
        row = {**study.trials[method][number], "validation_recall@1": fmean(of_seeds)}
        found.setdefault(method, []).append({**row, "of_seeds": of_seeds} if len(of_seeds) > 1 else row)
    chosen: dict[str, Settings] = {}
    for method in methods:
        best = max(finals[method], key=lambda trial: fmean(recalls[trial]))
        chosen[method] = study.trials[method][best[1]]
        print(f"{method:10s} {fmean(recalls[best]):.4f} on validation: {dict(chosen[method])}")
    write_json(out / "search.json", found)
    write_json(out / "chosen.json", chosen)


def train(
    name: str, study: Study, source: str, methods: Sequence[str], out: Path, seeds: int, at_once: int
) -> None:
    """Train the chosen settings with several seeds, score on test, write table, figures and report."""
    if not (out / "chosen.json").is_file():
        raise UsageError(f"{out} has no chosen.json yet; run the stage search first, or all")
    chosen = json.loads((out / "chosen.json").read_text(encoding="utf-8"))
    unchosen = [method for method in methods if method not in chosen]
    if unchosen:
        raise UsageError(
            f"{out}/chosen.json has no settings for {', '.join(unchosen)}; run the stage search first"
        )
    taus = study.taus if "maskcon" in methods else ()
    whole = {**study.fixed, "epochs": study.epochs, "eval_every_epochs": study.eval_every}
    table = [
        Job(
            f"{method} {seed}",
            out / f"{method}-seed{seed}",
            train_arguments(source, method, seed, {**whole, **chosen[method]}, study.preset),
        )
        for seed in range(seeds)
        for method in methods
    ]
    over_tau = {
        (tau, seed): Job(
            f"tau {tau} {seed}",
            out / f"tau{tau}-seed{seed}",
            train_arguments(
                source, "maskcon", seed, {**whole, **chosen["maskcon"], "tau": tau}, study.preset
            ),
        )
        for seed in range(seeds)
        for tau in taus
        if tau != chosen["maskcon"]["tau"]  # that one is in the table
    }
    run_jobs([*table, *over_tau.values()], at_once=at_once, threads=1, watch=show)
    print()
    results = [read_result(job.folder) for job in table]
    print(methods_table(results).markdown())
    print(f"CPU minutes per run: at most {max(r['cpu_seconds'] for r in results) / 60:.1f}")
    for tau in taus:
        folders = [
            over_tau[tau, seed].folder if (tau, seed) in over_tau else out / f"maskcon-seed{seed}"
            for seed in range(seeds)
        ]
        recalls = [100 * read_result(folder)["recall"]["1"] for folder in folders]
        print(f"MaskCon, tau {tau:g}: R@1 " + ", ".join(f"{recall:.2f}" for recall in recalls))
    command = shlex.join(["python", "benchmarks/method_table.py", *sys.argv[1:]])
    print(write_summary([job.folder for job in table], out, command=command, title=f"All methods, {name}"))


def write_json(path: Path, values: object) -> None:
    path.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("stage", choices=["search", "train", "all"])
    parser.add_argument("--images", type=Path, help="CIFAR-10 with a folder per class, for CIFARtoy")
    parser.add_argument("--out", type=Path, help="by default runs/STUDY-table")
    parser.add_argument("--methods", default="all", help="comma-separated; all by default")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    answer(parser, carry_out)


def answer(parser: argparse.ArgumentParser, work: Callable[[argparse.Namespace], None]) -> None:
    """Run the script; an error of the package becomes one line and an exit code."""
    options = parser.parse_args()
    try:
        work(options)
    except MaskconError as error:
        print(f"\n{error}", file=sys.stderr)
        sys.exit(error.exit_code)


def carry_out(options: argparse.Namespace) -> None:
    """Run the stages asked for."""
    study = STUDIES[options.study]
    methods = list(study.trials) if options.methods == "all" else options.methods.split(",")
    for method in methods:
        if method not in study.trials:
            raise unknown("method", method, study.trials)
    out: Path = options.out or Path("runs") / f"{options.study}-table"
    make_writable(out)
    source = study.source
    if source in ("good", "bad"):
        if options.images is None:
            raise UsageError("CIFARtoy needs --images: CIFAR-10 as train/ and test/ with a folder per class")
        source = str(lay_out(options.images, source, out / "images", study.per_class))
    if options.stage in ("search", "all"):
        search(study, source, methods, out, options.jobs)
    if options.stage in ("train", "all"):
        train(options.study, study, source, methods, out, options.seeds, options.jobs)


if __name__ == "__main__":
    main()
