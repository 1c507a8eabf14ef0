"""How sure an image's kind is, and its role in it: typical, borderline or outlier."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from maskcon.data.kinds_file import Role
from maskcon.discovery.clusters import Floats

BORDERLINE = 0.1  # confidence below which an image lies between two kinds
FEWEST_FOR_OUTLIERS = 4  # quartiles of fewer distances say nothing


def judge(
    to_centres: Floats,
    kinds: Sequence[str],
    found: Sequence[str],
    paths: Sequence[str],
    is_junk: Sequence[bool],
) -> tuple[list[float | None], list[Role]]:
    """Judge the images of one coarse class.

    confidence = 1 - d_own / d_second      distances to the own kind and to the nearest other one, at least 0
                 1 - rank / N              in a class of one kind: rank by distance to the centre, from 0

    typical: the nearest third of a kind; borderline: confidence below BORDERLINE (never in a class of one kind);
    outlier: distance above the third quartile + 1.5 interquartile ranges of its kind. Outlier goes before borderline,
    borderline before typical. An image without a kind has neither confidence nor role.

    Args:
        to_centres: distances [N, K] to the centres.
        kinds: kind of each centre; several may have one.
        found: kind of each image.
        paths: decide among equal distances.
        is_junk: these keep the role junk, and do not count.
    """
    names = list(dict.fromkeys(kinds))
    groups = [[place for place, kind in enumerate(kinds) if kind == name] for name in names]
    to_kinds = np.stack([to_centres[:, group].min(1) for group in groups], axis=1)  # [N, kinds]
    own = np.array([names.index(kind) if kind in names else -1 for kind in found], dtype=np.int64)
    confidence: list[float | None] = [None] * len(found)
    roles: list[Role] = ["junk" if junk else "" for junk in is_junk]
    for place in range(len(names)):
        rows = [row for row in range(len(found)) if own[row] == place and not is_junk[row]]
        if not rows:
            continue
        near = to_kinds[rows, place]
        order = sorted(range(len(rows)), key=lambda i: (near[i], paths[rows[i]]))
        if len(names) > 1:
            second = np.delete(to_kinds[rows], place, axis=1).min(1)
            sure = np.clip(1 - near / np.where(second > 0, second, 1), 0, 1)
            sure[second <= 0] = 0
        else:
            sure = np.empty(len(rows))
            sure[order] = 1 - np.arange(len(rows)) / len(rows)
        limit = _outlier_limit(near)
        typical = set(order[: -(-len(rows) // 3)])
        for i, row in enumerate(rows):
            confidence[row] = round(float(sure[i]), 3)
            if near[i] > limit:
                roles[row] = "outlier"
            elif len(names) > 1 and sure[i] < BORDERLINE:
                roles[row] = "borderline"
            elif i in typical:
                roles[row] = "typical"
    return confidence, roles


def _outlier_limit(near: Floats) -> float:
    if len(near) < FEWEST_FOR_OUTLIERS:
        return float("inf")
    first, third = np.quantile(near, [0.25, 0.75])
    return float(third + 1.5 * (third - first)) + 1e-6  # equal images differ by rounding only
