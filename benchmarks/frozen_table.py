"""All methods on a frozen backbone and the backbone alone: CIFARtoy, settings by validation, ten seeds.

    python benchmarks/frozen_table.py good all --images PATH     # PATH/{train,test}/<class>/*.jpg: CIFAR-10
    python benchmarks/frozen_table.py bad all --images PATH      # the weights: once with --download

500 training and 250 test images per class. Settings are chosen on 1,000 further training images per class, because the
differences are small. Every method that uses coarse labels has twenty settings, half of them with added cross-entropy
on these labels where the loss has none (a separate row: "grafit+ce"). They are tried with one seed, the best fifth of a
row with five, and the best mean is chosen. Test labels are read only by the final scores. Images are embedded once for
the search and once for the final runs, on all cores; each run then takes seconds.
Results are written below --out as by `method_table.py`, with `speed.json`: embedded views per second.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from maskcon._utils.errors import unknown
from maskcon.training.comparison import Job, run_jobs
from maskcon.training.run_folder import make_writable, read_result
from method_table import (
    Study,
    Trials,
    answer,
    grid,
    lay_out,
    search,
    train,
    train_arguments,
    write_json,
)

RATES = [0.02, 0.05]
DECAYS = [5e-4, 5e-3]
FAST = {"learning_rate": [0.1], "weight_decay": DECAYS[:1]}
# Ten settings per row, and two rows per method that uses coarse labels, with and without added cross-entropy: equal
# search effort. Where the loss contains that cross-entropy already, one row has all twenty.
PLAIN = grid(learning_rate=[0.01, *RATES, 0.1, 0.2], weight_decay=DECAYS)
BETWEEN = grid(learning_rate=[0.003, 0.006, 0.015, 0.03, 0.07], weight_decay=DECAYS)


def mixed(ws: Sequence[float]) -> list[dict[str, float]]:
    return [*grid(w=ws, learning_rate=RATES, weight_decay=DECAYS), *grid(w=ws, **FAST)]


SOFT = [*grid(tau=[0.05, 0.02], learning_rate=RATES, weight_decay=DECAYS), *grid(tau=[0.1, 0.2], **FAST)]
MASKED = [{"w": 1.0, **settings} for settings in SOFT]
TRIALS: Trials = {
    "selfcon": PLAIN,
    "nnclr": PLAIN,
    "ascl": SOFT,
    "supce": [*PLAIN, *BETWEEN],
    "supcon": PLAIN,
    "supcon+ce": PLAIN,
    "grafit": mixed([0.5, 0.8]),
    "grafit+ce": mixed([0.5, 0.8]),
    "coins": [*mixed([0.5, 0.8]), *mixed([0.3, 0.65])],
    "maskcon": MASKED,
    "maskcon+ce": MASKED,
    "supfine": PLAIN,
}
FINALISTS, SEARCH_SEEDS = 0.2, 5  # one seed is too noisy to choose by
PER_CLASS = {"train": 500, "test": 250}
HELD_OUT = 1000
EPOCHS, EVAL_EVERY = 30, 5
FIXED = {"freeze": "yes", "image_size": 96}
SPEED = re.compile(r"embedded (\d+) images, (\d+) views? each, in .*\(([\d,]+) views/s\)")


def embed(source: str, out: Path, settings: Mapping[str, Any], download: bool) -> list[dict[str, int]]:
    """Fill the cache by one short run on all cores; return the speeds it reports."""
    arguments = train_arguments(source, "supce", 0, {**settings, "epochs": 1, "eval_every_epochs": 0}, None)
    job = Job("embedding", out, [*arguments, *(["--download"] if download else [])])
    run_jobs([job], at_once=1, threads=None, watch=lambda jobs: None)  # noqa: ARG005
    told = SPEED.findall(job.log_path.read_text(encoding="utf-8"))
    return [
        {"images": int(images), "views": int(views), "views_per_second": int(speed.replace(",", ""))}
        for images, views, speed in told
    ]


def carry_out(options: argparse.Namespace) -> None:
    """Run the stages asked for."""
    methods: Sequence[str] = list(TRIALS) if options.methods == "all" else options.methods.split(",")
    for method in methods:
        if method not in TRIALS:
            raise unknown("method", method, TRIALS)
    out: Path = options.out or Path("runs") / f"frozen-{options.split}-table"
    make_writable(out)
    source = str(lay_out(options.images, options.split, out / "images", PER_CLASS))
    study = Study(
        options.split,
        TRIALS,
        EPOCHS,
        EPOCHS,
        EVAL_EVERY,
        fixed=FIXED,
        preset=None,
        search_on="test",
        finalists=FINALISTS,
        search_seeds=SEARCH_SEEDS,
    )
    speeds: dict[str, list[dict[str, int]]] = {}
    if options.stage in ("search", "all"):
        chosen_on = str(
            lay_out(options.images, options.split, out / "images-search", PER_CLASS, held_out=HELD_OUT)
        )
        speeds["search"] = embed(chosen_on, out / "embedding-search", FIXED, options.download)
        search(study, chosen_on, methods, out, options.jobs)
    if options.stage in ("train", "all"):
        speeds["train"] = embed(source, out / "embedding-train", FIXED, options.download)
        train(f"frozen, CIFARtoy {options.split}", study, source, methods, out, options.seeds, options.jobs)
        alone = read_result(out / f"{methods[0]}-seed0")["frozen_backbone"]
        print("backbone alone: " + "  ".join(f"R@{k} {100 * share:.2f}" for k, share in alone.items()))
        write_json(out / "backbone.json", alone)
        print("row of each method by validation: " + ", ".join(best_rows(out).values()))
    if any(speeds.values()):  # nothing was embedded when the cache was there
        write_json(out / "speed.json", speeds)


def best_rows(out: Path) -> dict[str, str]:
    """Return the better row per method by validation, with or without cross-entropy.

    Only settings that were tried with all seeds count.
    """
    found = json.loads((out / "search.json").read_text(encoding="utf-8"))
    best = {
        row: max(trial["validation_recall@1"] for trial in trials if "of_seeds" in trial)
        for row, trials in found.items()
    }
    rows: dict[str, str] = {}
    for row in sorted(best, key=lambda row: best[row]):
        rows[row.removesuffix("+ce")] = row
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("split", choices=["good", "bad"])
    parser.add_argument("stage", choices=["search", "train", "all"])
    parser.add_argument(
        "--images", type=Path, required=True, help="CIFAR-10 as train/ and test/ with a folder per class"
    )
    parser.add_argument("--out", type=Path, help="by default runs/frozen-SPLIT-table")
    parser.add_argument("--methods", default="all", help="comma-separated; all by default")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--download", action="store_true", help="download the weights if they are missing")
    answer(parser, carry_out)


if __name__ == "__main__":
    main()
