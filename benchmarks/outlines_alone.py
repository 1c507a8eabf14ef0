"""What the outlines that `fast` looks for neighbours by are worth themselves, without any training.

    python benchmarks/outlines_alone.py embedded
    python benchmarks/outlines_alone.py cifartoy-good --images PATH  # PATH/{train,test}/<class>/*.jpg: CIFAR-10

Recall@1 of the test images by their outlines, whose axes are those of the training images: as they are, in a mirror or
not, and with the nearest of all looks at an image, as relations compare them; and as they do not, turned as well.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor

from maskcon.errors import UsageError
from maskcon.outlines import SHIFTS, SIDE, Axes, mirrored, oriented_gradients
from maskcon.sources import ImageSet, load
from maskcon.views import test_view
from method_table import answer
from recall_studies import STUDIES
from recipe_relations import turn

ROWS = 512
TURNS = (-24, -12, 12, 24)  # degrees


def histograms(images: ImageSet, degrees: float = 0) -> Tensor:
    """Of every image, turned, by every shift, ``[N, S, BINS, H', W']``."""
    sizes = None if images.sizes is None else torch.from_numpy(images.sizes)
    found = []
    for rows in (slice(start, start + ROWS) for start in range(0, len(images), ROWS)):
        valid = None if sizes is None else sizes[rows]
        seen = test_view(torch.from_numpy(images.images[rows]), size=SIDE, sizes=valid)
        found.append(oriented_gradients(turn(seen, degrees), SHIFTS))
    return torch.cat(found)


def looks(images: ImageSet, axes: Axes, degrees: float = 0) -> Tensor:
    """Unit vectors ``[V, N, A]`` of every image, turned: by every shift, and in a mirror all over again."""
    seen = histograms(images, degrees)
    return axes(torch.cat([seen, mirrored(seen)], dim=1).flatten(2)).transpose(0, 1)


def recall_at_1(similarity: Tensor, fine: Tensor) -> float:
    """Percent of rows of ``[N, N]`` whose nearest other is of their own fine label."""
    nearest = similarity.clone().fill_diagonal_(-torch.inf).argmax(1)
    return 100 * (fine[nearest] == fine).double().mean().item()


def carry_out(options: argparse.Namespace) -> None:
    data = load(STUDIES[options.study].pictures(options.images, options.out))
    if data.test.fine is None:
        raise UsageError(f"{data.name} has no fine labels to score by")
    fine = torch.from_numpy(data.test.fine)
    axes = Axes.of(histograms(data.train)[:, 0].flatten(1))
    upright = looks(data.test, axes)
    first = upright[0]  # [N, A]
    similar = upright @ first.T  # [V, N, N]
    print(f"as they are: {recall_at_1(similar[0], fine):.2f}")
    print(f"in a mirror or not: {recall_at_1(similar[[0, len(SHIFTS)]].amax(0), fine):.2f}")
    nearest = similar.amax(0)
    print(f"in a mirror or not, moved a little or not: {recall_at_1(nearest, fine):.2f}")
    for degrees in TURNS:
        nearest = torch.maximum(nearest, (looks(data.test, axes, degrees) @ first.T).amax(0))
    print(f"the same, turned by 12 or 24 degrees or not: {recall_at_1(nearest, fine):.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--images", type=Path, help="CIFAR-10 as a folder a class, for CIFARtoy")
    parser.add_argument("--out", type=Path, default=Path("runs") / "outlines-alone")
    answer(parser, carry_out)


if __name__ == "__main__":
    main()
