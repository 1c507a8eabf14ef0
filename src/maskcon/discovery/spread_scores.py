"""Score embeddings without labels, by measures from self-supervised learning.

They reward spread. `maskcon tune` reports them beside its own criterion and does not choose by them (docs/tune.md).

    RankMe     exp(entropy of the normalised singular values)                         larger is better
    alpha-ReQ  |alpha - 1|, eigenvalues of the covariance ~ rank^-alpha               smaller is better
    LiDAR      exp(entropy of the normalised eigenvalues of S_w^-1/2 S_b S_w^-1/2)    larger is better
    CLID       learnability of k-means clusters + intrinsic dimension                 larger is better

RankMe is Garrido et al. 2023, alpha-ReQ Agrawal et al. 2022, LiDAR Thilak et al. 2024, CLID Lu et al. 2023. Letters in
shapes: N images, V views, D embedding.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans

from maskcon.retrieval.nearest import nearest_others, unit_rows

Floats = NDArray[np.floating]

SHRINKAGE = 1e-4  # LiDAR: added to the diagonal of S_w
VOTERS = 10  # CLID: neighbours that predict a cluster
IMAGES = 1000  # the first ones, since the cost is quadratic


def spread_scores(views: Floats) -> dict[str, float]:
    """Score embeddings of views [N, V, D].

    All but LiDAR use the last view only, which is the plain image. CLID is returned as its two parts, since their sum
    has a meaning only after both are standardised over settings.
    """
    some = np.asarray(views[:IMAGES], dtype=np.float64)
    plain = some[:, -1]
    return {
        "rankme": rankme(plain),
        "alpha_req": alpha_req(plain),
        "lidar": lidar(some),
        "clid_learnability": learnability(plain),
        "clid_dimension": intrinsic_dimension(plain),
    }


def rankme(vectors: Floats) -> float:
    """Return RankMe of [N, D], between 1 and min(N, D).

    exp(entropy) of the shares of the singular values of the unit rows

    >>> round(rankme(np.ones((10, 4))), 3), round(rankme(np.eye(4)), 3)
    (1.0, 4.0)
    """
    return entropy_rank(np.linalg.svd(unit_rows(vectors), compute_uv=False))


def entropy_rank(sizes: Floats) -> float:
    """Return exp(entropy) of the shares of these sizes; 1 if all are 0.

    This is the number of equal sizes with the same entropy.
    """
    if not sizes.sum() > 0:
        return 1.0
    shares = sizes[sizes > 0] / sizes.sum()
    return max(1.0, float(np.exp(-(shares * np.log(shares)).sum())))


def alpha_req(vectors: Floats) -> float:
    """Return alpha-ReQ of [N, D].

    |alpha - 1|; -alpha is the least-squares slope of log eigenvalue over log rank
    """
    centred = vectors - vectors.mean(axis=0)
    values = np.linalg.svd(centred, compute_uv=False) ** 2
    values = values[values > values[0] * 1e-9] if len(values) else values
    if len(values) < 2:
        return float("inf")
    slope = np.polyfit(np.log(np.arange(1, len(values) + 1)), np.log(values), 1)[0]
    return float(abs(-slope - 1))


def lidar(views: Floats) -> float:
    """Return the effective rank of the linear discriminants between images [N, V, D].

    The views of an image form one class.
    """
    count, each, size = views.shape
    means = views.mean(axis=1)  # [N, D]
    inside = (views - means[:, None]).reshape(-1, size)
    within = inside.T @ inside / (count * max(1, each - 1)) + SHRINKAGE * np.eye(size)
    centred = means - means.mean(axis=0)
    between = centred.T @ centred / max(1, count - 1)
    values, axes = np.linalg.eigh(within)
    whitened = axes / np.sqrt(values)  # [D, D]
    return entropy_rank(np.linalg.eigvalsh(whitened.T @ between @ whitened).clip(min=0))


def learnability(vectors: Floats) -> float:
    """Return how well neighbours predict the k-means clusters of [N, D], k = sqrt(N).

    The share of images whose cluster is the most frequent one among their VOTERS nearest others
    """
    unit = unit_rows(vectors)
    clusters = max(2, round(len(unit) ** 0.5))
    if len(np.unique(unit, axis=0)) < clusters:
        return 1.0
    labels = KMeans(clusters, n_init=1, random_state=0).fit_predict(unit)
    near = labels[nearest_others(unit, np.arange(len(unit)), VOTERS)[0]]  # [N, VOTERS]
    votes = np.apply_along_axis(np.bincount, 1, near, minlength=clusters)
    return float((votes.argmax(axis=1) == labels).mean())


def intrinsic_dimension(vectors: Floats) -> float:
    """Return the TwoNN estimate of the dimension of [N, D].

    N / sum log(r2 / r1); r1 and r2 are the distances to the two nearest others
    """
    unit = unit_rows(vectors)
    cosines = nearest_others(unit, np.arange(len(unit)), 2)[1]
    if cosines.shape[1] < 2:
        return 0.0
    distance = np.sqrt(np.maximum(2 - 2 * cosines, 0))
    apart = distance[:, 0] > 0  # duplicates have no ratio
    ratios = np.log(distance[apart, 1] / distance[apart, 0])
    return float(len(ratios) / ratios.sum()) if ratios.sum() > 0 else 0.0
