"""Which query view suits the embedded set: six variants, four methods, scored on validation images alone.

    python benchmarks/embedded_views.py [--out runs/embedded-views] [--epochs 15] [--seeds 1]

A view is shared by all methods, so none may choose it alone: the variant with the best mean over a method of each kind
(instances, coarse classes, both, masked relation) is the one to take. Goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import maskcon
from maskcon.config.settings import Machine
from maskcon.transforms.boxes import RandomCrop, WholeImage
from maskcon.transforms.jitter import RandomErasing, ToneJitter
from maskcon.transforms.operations import Affine
from maskcon.transforms.policies import POLICIES, ViewPolicy

METHODS = ("selfcon", "supce", "coins", "maskcon")
_PLACED = Affine(rotation=30, area=(0.5, 1.2), shift=0.08)
_TONE = ToneJitter(brightness=0.3, contrast=(0.5, 1.5), gamma=(0.6, 1.6))
_MILD_TONE = ToneJitter(brightness=0.15, contrast=(0.75, 1.25), gamma=(0.8, 1.25))
_ERASED = RandomErasing(probability=0.25)
VARIANTS = {
    "as the key view": POLICIES["embedded-weak"],
    "placed": ViewPolicy("placed", WholeImage(), 0.5, (_PLACED,)),
    "placed, mild tone, erased": ViewPolicy("mild", WholeImage(), 0.5, (_PLACED, _MILD_TONE, _ERASED)),
    "placed, tone": ViewPolicy("unerased", WholeImage(), 0.5, (_PLACED, _TONE)),
    "placed, tone, erased": POLICIES["embedded-strong"],  # the package's
    "cropped as for CIFAR, tone, erased": ViewPolicy(
        "cropped", RandomCrop((0.2, 1.0)), 0.5, (_TONE, _ERASED)
    ),
}


def validation_recall(variant: str, method: str, seed: int, epochs: int, out: Path) -> float:
    """Recall@1 in percent of one run."""
    view = replace(VARIANTS[variant], name=f"variant: {variant}")
    POLICIES[view.name] = view  # in this process, for this run
    run = maskcon.fit(
        "embedded",
        method=method,
        preset="cpu",
        epochs=epochs,
        seed=seed,
        out=out / f"{variant}-{method}-seed{seed}".replace(", ", "-").replace(" ", "_"),
        settings={"query_view": view.name, "evaluate_on": "validation", "eval_every_epochs": 0},
        machine=Machine(threads=1),
    )
    return 100 * run.recall[1]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("runs/embedded-views"))
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
    with ProcessPoolExecutor(options.jobs, mp_context=context) as pool:
        found = {
            (variant, method): [
                pool.submit(validation_recall, variant, method, seed, options.epochs, options.out)
                for seed in range(options.seeds)
            ]
            for variant in VARIANTS
            for method in METHODS
        }
        print("| query view | " + " | ".join(METHODS) + " | mean |")
        print("|---|" + "---:|" * (len(METHODS) + 1))
        table: dict[str, dict[str, float]] = {}
        for variant in VARIANTS:
            row = {m: statistics.fmean(run.result() for run in found[variant, m]) for m in METHODS}
            table[variant] = {**row, "mean": statistics.fmean(row.values())}
            print(f"| {variant} | " + " | ".join(f"{value:.1f}" for value in table[variant].values()) + " |")
    (options.out / "views.json").write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
