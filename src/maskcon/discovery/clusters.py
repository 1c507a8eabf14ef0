"""Find the kinds of one coarse class: principal axes, Ward tree, price, k-means.

    increase(merge) = height^2 / 2           of the sum of squares within kinds, in the Ward tree of a class
    spread          = mean over classes of the mean squared distance of an image to its class centre
    kinds(class)    = 1 + #{merges: increase(merge) > PRICE * spread}

One price holds for the whole dataset: a class of few images, or one that varies no more than other classes do, stays
whole. So does a class whose kinds explain no more than those of a single normal distribution would (`evidence`).
Letters in shapes: N images of a class, S of its sample, L of its tree, D embedding, A axes, K kinds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]

# In images: a split must explain as much as this many images at the usual distance from their centre.
# Of 11 to 15, the one whose worst set has most classes within 25 % (or 1) of the true number of kinds: 90 % and more on
# Grocery, CIFAR-100, CIFARtoy good and bad, and Fashion-MNIST (frozen features, MaskCon, seed 0); 75 % at 14, 25 % at
# 12.
PRICE = 13.0
SAMPLE = 1000  # images per class that kinds are found in
LEAVES = 500  # of these, the first ones that the tree is built from: its cost grows with the square
AXES = 50
STARTS = 40  # of k-means: with 10, two seeds of a run agree less often (docs/kinds.md)
CURVE = 20  # numbers of kinds that the price is reported for
# Standard deviations by which kinds must explain more than in normal distributions of the same covariance, see
# `Tree.evidence`. Of the normal distributions that the price would split, fewer than 1 in 100 exceed it.
SURE = 2.5
REFERENCES = 20  # such distributions drawn per class
LEAST_DEVIATION = 0.06  # share of the mean: less may come from a distribution that is not quite normal
CLEAR = 100.0  # evidence beyond doubt
HALVES = 5  # half-samples to judge stability by
COLLAPSED = 1e-6  # mean squared distance of unit rows below which a class counts as collapsed
DISTINCT = 1e-9  # share of the sum of squares below which a merge joins equal images


@dataclass(frozen=True, eq=False)
class Space:
    """Principal axes of a class: mean [D] and axes [D, A], both of unit rows."""

    mean: Floats
    axes: Floats

    def project(self, vectors: Floats) -> Floats:
        """Project embeddings [N, D] onto the axes, [N, A]."""
        return (unit_rows(vectors) - self.mean) @ self.axes


def unit_rows(vectors: Floats) -> Floats:
    """Scale rows to length 1; rows of zeros stay."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1)


def fit_space(vectors: Floats) -> Space:
    """Fit the leading principal axes of embeddings [S, D]."""
    rows = unit_rows(vectors.astype(np.float64))
    mean = rows.mean(0)
    _, scales, axes = np.linalg.svd(rows - mean, full_matrices=False)
    count = max(1, int((scales[:AXES] > 1e-6 * scales[0]).sum()))
    return Space(mean.astype(np.float32), axes[:count].T.astype(np.float32))


@dataclass(frozen=True, eq=False)
class Tree:
    """Sample of a class and the Ward tree of its first images; points: [S, A]."""

    points: Floats

    @property
    def leaves(self) -> Floats:
        """Points of the tree, [L, A]."""
        return self.points[:LEAVES]

    @cached_property
    def merges(self) -> Floats:
        """Merges as `scipy.cluster.hierarchy.linkage` lists them, [L - 1, 4]."""
        from scipy.cluster.hierarchy import linkage

        merges: Floats = linkage(self.leaves, "ward") if len(self.leaves) > 1 else np.zeros((0, 4))
        return merges

    @cached_property
    def increases(self) -> Floats:
        """Increases of the sum of squares by merge, ascending, [L - 1]."""
        return np.sort(self.merges[:, 2] ** 2 / 2)

    @property
    def spread(self) -> float:
        """Mean squared distance of an image to the centre; 0 if the class is collapsed."""
        spread = float(self.increases.sum() / max(1, len(self.leaves)))
        return spread if spread > COLLAPSED else 0.0

    @property
    def most(self) -> int:
        """Number of kinds that differ at all; 1 for a collapsed class."""
        return 1 + int((self.increases > DISTINCT * self.increases.sum()).sum()) if self.spread else 1

    def count(self, price: float) -> int:
        """Count the kinds that are worth the price."""
        return min(self.most, 1 + int((self.increases > price).sum()))

    def split(self, kinds: int) -> tuple[Floats, NDArray[np.int64]]:
        """Split the sample by k-means: centres [K, A] and kinds [S].

        The best result, by the sum of squares within kinds, of one start from the tree's centres and STARTS random
        ones. K is smaller than `kinds` if the tree has fewer different images.
        """
        from scipy.cluster.hierarchy import fcluster
        from sklearn.cluster import KMeans

        kinds = min(kinds, self.most)
        if kinds == 1:
            return self.points.mean(0, keepdims=True), np.zeros(len(self.points), np.int64)
        start = _means(self.leaves, fcluster(self.merges, kinds, "maxclust") - 1)
        found = KMeans(len(start), init=start, n_init=1).fit(self.points)
        if found.inertia_ > DISTINCT * self.increases.sum():  # else the kinds are groups of equal images
            other = KMeans(len(start), n_init=STARTS, random_state=0).fit(self.points)
            found = min(found, other, key=lambda means: means.inertia_)
        labels = np.unique(found.labels_, return_inverse=True)[1].astype(np.int64)
        return _means(self.points, labels), labels

    def evidence(self, kinds: int) -> float:
        """Compare what these kinds explain with what they would explain in normal data.

        evidence = (explained - mean) / max(deviation, LEAST_DEVIATION * mean)

        explained: sum of squares between the kinds; mean and deviation: the same in REFERENCES samples of the normal
        distribution with the covariance of the class, split into as many kinds. CLEAR if the unexplained share is less
        than half of the mean there: many kinds along few axes explain nearly everything in both cases.
        """
        random = np.random.default_rng(0)
        deviations = self.leaves.std(0)
        drawn = [Tree(random.standard_normal(self.leaves.shape) * deviations) for _ in range(REFERENCES)]
        explained, usual = self._explained(kinds), np.array([tree._explained(kinds) for tree in drawn])
        if 1 - explained < (1 - usual.mean()) / 2:
            return CLEAR
        deviation = max(usual.std(ddof=1), LEAST_DEVIATION * usual.mean())
        return min(CLEAR, float((explained - usual.mean()) / deviation))

    def _explained(self, kinds: int) -> float:
        """Return the share of the sum of squares that lies between this many kinds."""
        return float(self.increases[len(self.increases) + 1 - kinds :].sum() / self.increases.sum())

    def stability(self, labels: NDArray[np.int64]) -> float | None:
        """Return the mean adjusted Rand index of half-sample clusterings and kinds [S].

        None where the halves hold fewer than two images per kind: kinds of one image agree whatever they are.
        """
        from sklearn.metrics import adjusted_rand_score

        if (len(self.points) + 1) // 2 < 2 * (int(labels.max()) + 1):
            return None
        scores = []
        for number in range(HALVES):
            order = np.random.default_rng(number).permutation(len(self.points))
            half = np.sort(order[: (len(order) + 1) // 2])
            _, again = Tree(self.points[half]).split(int(labels.max()) + 1)
            scores.append(adjusted_rand_score(labels[half], again))
        return float(np.mean(scores))


@dataclass(frozen=True)
class Suggestion:
    """How many kinds a class seems to have.

    Attributes:
        kinds: the number that the price tells apart.
        price: in images; PRICE, or a multiple of it for coarser or finer kinds.
        coarser, finer: the next numbers, at twice and at half the price.
        curve: the price, in images, up to which 2, 3, ... kinds are found.
        evidence: see `Tree.evidence`; None where the price alone decides.
        reason: why the class is left whole, else empty.
    """

    kinds: int
    price: float
    coarser: int
    finer: int
    curve: tuple[float, ...]
    evidence: float | None
    reason: str


def suggest(tree: Tree, spread: float, scale: float = 1.0) -> Suggestion:
    """Suggest the number of kinds of a class.

    Args:
        spread: mean of `Tree.spread` over the classes of the dataset.
        scale: multiplies the price: 2 for coarser kinds, 0.5 for finer ones.
    """
    spread = max(spread, tree.spread / 2)  # classes that hardly vary must not shatter one that does
    price = scale * PRICE * spread
    kinds, evidence, reason = tree.count(price), None, ""
    if not tree.spread:
        one = len(tree.points) == 1
        reason = "a single image" if one else "the embeddings of its images are equal"
    elif kinds == 1:
        few = len(tree.points) <= scale * PRICE
        reason = "too few images to find kinds" if few else "no split is worth the price"
    else:
        evidence = tree.evidence(kinds)
        if evidence < SURE:
            kinds, reason = 1, "no more structure than a normal distribution has"
    curve = tree.increases[::-1][: CURVE - 1] / spread if spread else np.zeros(0)
    return Suggestion(
        kinds=kinds,
        price=scale * PRICE,
        coarser=max(1, min(kinds - 1, tree.count(2 * price))),
        finer=min(tree.most, max(kinds + 1, tree.count(price / 2))),
        curve=tuple(round(float(value), 2) for value in curve),
        evidence=evidence,
        reason=reason,
    )


def nearest(points: Floats, centres: Floats) -> NDArray[np.int64]:
    """Return the nearest centre [N] of points [N, A]."""
    found: NDArray[np.int64] = distances(points, centres).argmin(1)
    return found


def distances(points: Floats, centres: Floats) -> Floats:
    """Return Euclidean distances [N, K] of points [N, A] to centres [K, A]."""
    rows, centres = points.astype(np.float64), centres.astype(np.float64)
    squares = (rows**2).sum(1)[:, None] - 2 * rows @ centres.T + (centres**2).sum(1)
    found: Floats = np.sqrt(np.maximum(squares, 0))
    return found


def _means(points: Floats, labels: NDArray[np.integer]) -> Floats:
    return np.stack([points[labels == label].mean(0) for label in range(int(labels.max()) + 1)])
