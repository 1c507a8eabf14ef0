"""Judge images: confidence in their kind, role (typical, borderline, outlier)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from maskcon.data.kinds_file import Role
from maskcon.discovery.clusters import Floats

ROLES: tuple[Role, ...] = get_args(Role)
BORDERLINE = 0.1  # confidence below which an image lies between two kinds
FEWEST_FOR_OUTLIERS = 4  # quartiles of fewer distances say nothing


def judge(
    to_centres: Floats,
    kinds: Sequence[str],
    found: Sequence[str],
    paths: Sequence[str],
    is_junk: Sequence[bool],
) -> tuple[list[float | None], list[Role]]:
    """Judge the images of one coarse class; see `judge_rows`.

    Args:
        to_centres: distances [N, K] to the centres.
        kinds: kind of each centre; several may have one.
        found: kind of each image.
        paths: decide among equal distances.
        is_junk: junk keeps its role and does not count.
    """
    names = {name: number for number, name in enumerate(dict.fromkeys(kinds))}
    confidence, roles = judge_rows(
        to_centres,
        np.array([names[kind] for kind in kinds], dtype=np.int64),
        np.array([names.get(kind, -1) for kind in found], dtype=np.int64),
        ranks(paths),
        np.array(is_junk, dtype=bool),
    )
    sure = [None if np.isnan(value) else round(value, 3) for value in confidence.tolist()]
    return sure, [ROLES[code] for code in roles.tolist()]


def judge_rows(
    to_centres: Floats,
    centre_kind: NDArray[np.int64],
    kind: NDArray[np.int64],
    rank: NDArray[np.int64],
    junk: NDArray[np.bool_],
) -> tuple[NDArray[np.float64], NDArray[np.uint8]]:
    """Judge the images of one coarse class.

    confidence = 1 - d_own / d_second      distances to the own kind and to the nearest other one, at least 0
                 1 - rank / N              in a class of one kind: rank by distance to the centre, from 0

    typical: the nearest third of a kind; borderline: confidence below BORDERLINE (never in a class of one kind);
    outlier: distance above the third quartile + 1.5 interquartile ranges of its kind. Outlier takes precedence over
    borderline, and borderline over typical. An image without a kind has neither confidence nor role.

    Args:
        to_centres: distances [N, K] to the centres.
        centre_kind: number [K] of the kind of each centre, without gaps.
        kind: number [N] of the kind of each image, -1 for none.
        rank: [N] decides among equal distances.
        junk: [N] whether an image is junk, which does not count.

    Returns:
        Confidence [N], NaN for none, and roles [N], places in `ROLES`.
    """
    count = int(centre_kind.max()) + 1
    to_kinds = np.stack([to_centres[:, centre_kind == place].min(1) for place in range(count)], axis=1)
    confidence = np.full(len(kind), np.nan)
    roles = np.where(junk, ROLES.index("junk"), ROLES.index("")).astype(np.uint8)
    for place in range(count):
        rows = np.flatnonzero((kind == place) & ~junk)
        if not len(rows):
            continue
        near = to_kinds[rows, place]
        order = np.lexsort((rank[rows], near))
        if count > 1:
            second = np.delete(to_kinds[rows], place, axis=1).min(1)
            sure = np.clip(1 - near / np.where(second > 0, second, 1), 0, 1)
            sure[second <= 0] = 0
        else:
            sure = np.empty(len(rows))
            sure[order] = 1 - np.arange(len(rows)) / len(rows)
        confidence[rows] = sure
        roles[rows[order[: -(-len(rows) // 3)]]] = ROLES.index("typical")
        if count > 1:
            roles[rows[sure < BORDERLINE]] = ROLES.index("borderline")
        roles[rows[near > _outlier_limit(near)]] = ROLES.index("outlier")
    return confidence, roles


def ranks(paths: Sequence[str]) -> NDArray[np.int64]:
    """Return the place [N] of each path in their sorted order."""
    found = np.empty(len(paths), dtype=np.int64)
    found[sorted(range(len(paths)), key=paths.__getitem__)] = np.arange(len(paths))
    return found


def _outlier_limit(near: Floats) -> float:
    if len(near) < FEWEST_FOR_OUTLIERS:
        return float("inf")
    first, third = np.quantile(near, [0.25, 0.75])
    return float(third + 1.5 * (third - first)) + 1e-6  # equal images differ by rounding only
