"""Recall@1 of HOG features, TeachCon's teacher, without any training.

    python benchmarks/hog_alone.py embedded
    python benchmarks/hog_alone.py cifartoy-good --images PATH  # PATH/{train,test}/<class>/*.jpg: CIFAR-10

The whitening axes come from the training images. Test images are compared unchanged, and with mirrored, shifted and
rotated versions; last by the mean of both directions, as in training.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor

from maskcon._utils.errors import UsageError
from maskcon.data import ImageSet, load
from maskcon.models.hog import SHIFTS, SIDE, Axes, Variants
from maskcon.transforms import test_view
from method_table import answer
from time_to_recall import STUDIES

ROWS = 512
TURN = 18.0  # degrees: what `fast` has for the views of the embedded set


def histograms(images: ImageSet, variants: Variants) -> Tensor:
    """Of every image by all variants, ``[N, V, F]``."""
    sizes = None if images.sizes is None else torch.from_numpy(images.sizes)
    found = []
    for rows in (slice(start, start + ROWS) for start in range(0, len(images), ROWS)):
        valid = None if sizes is None else sizes[rows]
        seen = test_view(torch.from_numpy(images.images[rows]), size=SIDE, sizes=valid)
        found.append(variants.histograms(seen).flatten(2))
    return torch.cat(found)


def recall_at_1(similarity: Tensor, fine: Tensor) -> float:
    """Percent of rows of ``[N, N]`` whose nearest other is of their own fine label."""
    nearest = similarity.clone().fill_diagonal_(-torch.inf).argmax(1)
    return 100 * (fine[nearest] == fine).double().mean().item()


def carry_out(options: argparse.Namespace) -> None:
    data = load(STUDIES[options.study].prepare(options.images, options.out))
    if data.test.fine is None:
        raise UsageError(f"{data.name} has no fine labels to score by")
    fine = torch.from_numpy(data.test.fine)
    axes = Axes.of(histograms(data.train, Variants())[:, 0])
    variants = axes(histograms(data.test, Variants(mirror=True, turn=TURN)))  # [N, V, A]
    half = variants.shape[1] // 2  # the other half is in a mirror
    ways = {
        "as they are": [0],
        "in a mirror or not": [0, half],
        "in a mirror or not, moved a little or not": [*range(len(SHIFTS)), *range(half, half + len(SHIFTS))],
        f"the same, turned by {TURN:g} degrees or not": list(range(2 * half)),
    }
    for name, chosen in ways.items():
        seems = torch.stack([variants[:, look] @ variants[:, 0].T for look in chosen]).amax(0)  # [N, N]
        alone, both = recall_at_1(seems, fine), recall_at_1((seems + seems.T) / 2, fine)
        print(f"{name}: {alone:.2f}, by the mean of both {both:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("study", choices=["embedded", "cifartoy-good"])
    parser.add_argument("--images", type=Path, help="CIFAR-10 as a folder a class, for CIFARtoy")
    parser.add_argument("--out", type=Path, default=Path("runs") / "hog-alone")
    answer(parser, carry_out)


if __name__ == "__main__":
    main()
