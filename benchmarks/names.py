"""Recall@1 with a few known names per fine kind, between MaskCon (no names) and SupFINE (all fine labels).

    python benchmarks/names.py photos.csv --names 5 --seeds 3

SOURCE needs fine labels. Per seed, N training images of every fine kind are named at random; all runs
train a head on the same frozen features. Prints one line per run and a table at the end.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import mean, stdev

import numpy as np

import maskcon
from maskcon.cli.options import parse_settings
from maskcon.config.settings import Machine
from maskcon.data import ImageSet, image_plan, load
from maskcon.data.kinds_file import KindRow, write_kinds
from maskcon.data.photos import labels_only

METHODS = ("maskcon", "teachcon", "supcon")


def choose_rows(train: ImageSet, count: int, seed: int) -> list[int]:
    """Choose `count` images of every fine kind, fewer where there are not as many."""
    assert train.fine is not None
    order = np.random.default_rng(seed).permutation(len(train))
    return sorted(
        int(row) for kind in np.unique(train.fine) for row in order[train.fine[order] == kind][:count]
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source")
    parser.add_argument("--names", type=int, default=5, help="named training images per fine kind")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE")
    parser.add_argument("--data-root")
    parser.add_argument("--out", type=Path, default=Path("runs/names"))
    options = parser.parse_args()
    root = None if options.data_root is None else Path(options.data_root)
    settings = {"freeze": True, **parse_settings(options.set)}
    plan = image_plan(options.source, root=root)
    data = load(options.source, root=root) if plan is None else labels_only(plan)
    data = data.limited(settings.get("train_limit"), None)
    train, names = data.train, data.image_names[0]
    if train.fine is None or data.fine_names is None:
        parser.error("this source has no fine labels to name images by")
    recall: dict[str, list[float]] = {}
    for seed in range(options.seeds):
        rows = choose_rows(train, options.names, seed)
        kinds = options.out / f"kinds-{options.names}-seed{seed}.csv"
        kinds.parent.mkdir(parents=True, exist_ok=True)
        write_kinds(
            kinds,
            [
                KindRow(names[row], data.coarse_names[train.coarse[row]], data.fine_names[train.fine[row]])
                for row in rows
            ],
        )
        wanted = [(method, fine) for method in options.methods for fine in (None, kinds)]
        for method, fine in [*wanted, ("supfine", None)]:
            label = method if fine is None else f"{method} + {options.names} names"
            run = maskcon.fit(
                options.source,
                method=method,
                choose=True,
                fine=fine,
                seed=seed,
                out=options.out / f"{method}{'' if fine is None else f'-{options.names}'}-seed{seed}",
                settings=settings,
                machine=Machine(device="cpu", data_root=options.data_root),
            )
            share = 100 * run.recall[1]
            recall.setdefault(label, []).append(share)
            print(f"seed {seed}  {label:24s} {share:.2f}  ({len(rows)} of {len(train)} named)", flush=True)
    for label, values in recall.items():
        spread = stdev(values) if len(values) > 1 else 0.0
        print(f"| {label} | {mean(values):.2f} ± {spread:.2f} | {len(values)} |")


if __name__ == "__main__":
    main()
