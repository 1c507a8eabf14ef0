"""MaskConEmbedder in a scikit-learn workflow: digits labelled only by their kind of stroke, separated.

Every training image has a coarse label (loop, straight, open), and very few have the digit as well. How well does the
nearest of those few name the digit of a new image, by pixels and by the embedding learnt from the coarse labels?

    python examples/sklearn_digits.py      # about 20 CPU seconds a method; --epochs 5 for a first look

    named of each digit        1       2       5      10
    pixels                 63.2%   72.8%   86.2%   91.0%
    maskcon                83.8%   89.7%   91.8%   93.9%
    coins                  76.0%   85.1%   90.5%   92.3%

That is one seed, 1,198 training and 599 test images, the preset's settings, one thread of a busy CPU. All of it was
left at its defaults, and no setting was chosen on the test images.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier

from maskcon import MaskConEmbedder

STROKES = np.array(
    ["loop", "straight", "open", "open", "straight", "open", "loop", "straight", "loop", "loop"]
)
METHODS = ("maskcon", "coins")
LABELLED = (1, 2, 5, 10)  # images of each digit that somebody has named
DRAWS = 20  # of which ones these are: the mean is shown


def accuracy(
    train: NDArray[np.floating],  # [N, F]
    digits: NDArray[np.integer],  # [N]
    test: NDArray[np.floating],  # [M, F]
    test_digits: NDArray[np.integer],  # [M]
    labelled: int,
) -> float:
    """Share of test images whose nearest labelled image shows the same digit."""
    generator, scores = np.random.default_rng(0), []
    for _ in range(DRAWS):
        named = [generator.choice(np.flatnonzero(digits == d), labelled, replace=False) for d in range(10)]
        rows = np.concatenate(named)
        scores.append(KNeighborsClassifier(1).fit(train[rows], digits[rows]).score(test, test_digits))
    return float(np.mean(scores))


def compare(methods: Sequence[str] = METHODS, epochs: int | None = None) -> dict[str, list[float]]:
    """Accuracy by pixels and by each method's embedding, for every number of `LABELLED`."""
    images, digits = load_digits(return_X_y=True)  # [1797, 64] with values 0..16, [1797]
    train, test, train_digits, test_digits = train_test_split(
        images, digits, test_size=1 / 3, random_state=0, stratify=digits
    )
    spaces = {"pixels": (train, test)}
    for method in methods:
        embedder = MaskConEmbedder(
            method, epochs=epochs, image_shape=(8, 8), pixel_range=(0, 16), random_state=0
        )
        embedder.fit(train, STROKES[train_digits])  # all training images, by their coarse labels alone
        spaces[method] = (embedder.transform(train), embedder.transform(test))
    return {
        name: [accuracy(a, train_digits, b, test_digits, labelled) for labelled in LABELLED]
        for name, (a, b) in spaces.items()
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Digits from coarse labels, with scikit-learn")
    parser.add_argument("--epochs", type=int, default=None, help="by default the preset's")
    parser.add_argument("--methods", nargs="+", default=METHODS, help="any of `maskcon methods`")
    given = parser.parse_args()
    print(f"{'named of each digit':<20}" + "".join(f"{labelled:>8}" for labelled in LABELLED))
    for name, scores in compare(given.methods, given.epochs).items():
        print(f"{name:<20}" + "".join(f"{100 * score:>7.1f}%" for score in scores))
