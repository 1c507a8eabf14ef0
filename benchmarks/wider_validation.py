"""What small parts of `fast` bring on the embedded set, by more validation images than its training part can spare.

    python benchmarks/wider_validation.py --idx FOLDER              # of the four official Fashion-MNIST files
    python benchmarks/wider_validation.py --idx FOLDER --recipes "fast;fast, every query strong" --seeds 1

A fifth of the embedded set's training part is 1,200 images, and a recall@1 of those has a standard error of 1.3 points:
more than most parts bring. Fashion-MNIST's official TRAINING file has 54,000 images more. 10,000 of them, placed as the
embedded ones were (`scripts/build_embedded.py`) and the same in every call, are scored here in five galleries of 2,000,
the size of the test part, with runs on all 6,000 training images. The test images are not looked at. Goes on where it
was stopped; a folder a run and `wider.json` under --out.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import numpy as np
import torch

from maskcon._utils.errors import unknown
from maskcon.api import Run
from maskcon.data import Dataset, ImageSet
from maskcon.data.builtin import registry
from maskcon.data.builtin.embedded import as_part, load_embedded
from maskcon.data.builtin.fashion_mnist import read_idx
from maskcon.retrieval.recall import recall_at_k
from maskcon.training.run_folder import make_writable
from method_table import answer, write_json
from recall_studies import EMBEDDED, Recipe
from recipe_trials import EARLIER_OUTLINES, put_in
from time_to_recall import Bench, seconds, spread, table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "scripts"))
from build_embedded import place, sample_rows

SEED = 77
GALLERIES, PER_CLASS = 5, 200  # images of a class in each gallery
FIRST_NUMBER = 100_000  # their sample numbers: beyond those of the set itself

_FAST = EMBEDDED.fast
_COINS = EMBEDDED.by_muon("coins", EMBEDDED.muon_rates["coins"])
# `fast` with parts of `recipe_trials.py`, which the package lacks.
PARTS: Mapping[str, Sequence[str]] = {
    "fast, outlines not turned": ["upright=yes"],
    "fast, outlines by larger cells": ["coarser=yes"],
    "fast, neighbours not by the mean of both": ["one_sided=yes"],
    "fast, outlines as they were earlier": [f"{part}=yes" for part in EARLIER_OUTLINES],
    "fast, neighbours by FINE labels": ["fine_neighbours=yes"],
}
RECIPES = {
    "fast": _FAST,
    **dict.fromkeys(PARTS, _FAST),
    "fast, 0.7 of its queries weak": _FAST.but(weak_queries=0.7),
    "fast, 0.3 of its queries weak": _FAST.but(weak_queries=0.3),
    "fast, every query strong": _FAST.but(weak_queries=0.0),
    "fast, every query weak": _FAST.but(weak_queries=1.0),
    "CoIns by Muon": _COINS,
    "CoIns by Muon, half of its queries weak": _COINS.but(weak_queries=0.5),
}


def further_images(idx: Path) -> ImageSet:
    """10,000 images of the official training file that are not in the embedded set: gallery after gallery."""
    labels = read_idx(idx / "train-labels-idx1-ubyte.gz", 1)
    random = np.random.Generator(np.random.PCG64(SEED))
    spare = np.setdiff1d(np.arange(len(labels)), load_embedded().train.index)
    galleries = []
    for _ in range(GALLERIES):
        rows = spare[sample_rows(labels[spare], PER_CLASS, random)]
        spare = np.setdiff1d(spare, rows)
        galleries.append(rows)
    chosen = np.concatenate(galleries).astype(np.int32)
    images = read_idx(idx / "train-images-idx3-ubyte.gz", 3)
    return as_part(place(images[chosen], random), labels[chosen], chosen, FIRST_NUMBER)


def recall(folder: Path, images: ImageSet) -> float:
    """Mean recall@1 over the galleries, in percent."""
    features = Run.open(folder).encode(images.images)
    assert images.fine is not None  # of Fashion-MNIST
    parts = zip(features.chunk(GALLERIES), torch.from_numpy(images.fine).chunk(GALLERIES), strict=True)
    return 100 * fmean(recall_at_k(some, fine, (1,))[1] for some, fine in parts)


def run_one(arguments: Sequence[str]) -> None:
    """`run IDX PART=VALUE ... -- train ...`: the command line of the package with these parts in it, where `embedded`
    has these images for its test part."""
    from maskcon.cli import main as command_line

    images = further_images(Path(arguments[0]))
    end = arguments.index("--")
    put_in(arguments[1:end])

    def load() -> Dataset:
        return replace(load_embedded(), test=images)

    registry.load_embedded = load  # type: ignore[attr-defined]
    sys.argv = ["maskcon", *arguments[end + 1 :]]
    command_line()


def carry_out(options: argparse.Namespace) -> None:
    """Train the recipes asked for, and tell what they reach."""
    out: Path = options.out or Path("runs") / "wider-validation"
    make_writable(out)
    names = list(RECIPES) if options.recipes == "all" else options.recipes.split(";")
    for name in names:
        if name not in RECIPES:
            raise unknown("recipe", name, RECIPES)
    images = further_images(options.idx)

    def scored_at_the_end(name: str) -> Recipe:
        program = (__file__, "run", str(options.idx), *PARTS.get(name, ()), "--")
        return replace(RECIPES[name].but(eval_every_epochs=0), program=program)

    found = Bench("embedded", out, options.jobs).train(
        {name: scored_at_the_end(name) for name in names}, options.seeds
    )
    for name, row in found.items():
        row["recall@1"] = [
            round(recall(out / f"{name}-seed{seed}", images), 3) for seed in range(options.seeds)
        ]
    rows = {name: [str(row["epochs"]), spread(row["recall@1"]), seconds(row)] for name, row in found.items()}
    print(table(["", "epochs", "R@1", "CPU s"], rows))
    write_json(out / "wider.json", found)


def main() -> None:
    if sys.argv[1:2] == ["run"]:
        run_one(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--idx", type=Path, required=True, help="folder of the official IDX .gz files")
    parser.add_argument("--out", type=Path, help="by default runs/wider-validation")
    parser.add_argument("--recipes", default="all", help="names of RECIPES, separated by semicolons")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    answer(parser, carry_out)


if __name__ == "__main__":
    main()
