"""The axes that a backbone's features lie along: fewer numbers, much the same neighbours.

Features of a pretrained net fill few of their dimensions. Their right singular vectors with the largest values are the
axes; angles along all of them are the angles of the features, and along the leading ones nearly so. They are not
centred, and not whitened either: both change the angles, and with them the neighbours.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

PICTURES_AN_AXIS = 4
LOOKED_AT = 16384  # views, spread over all: many more than there are features
ROWS = 1024  # images read at once


def axes_kept(wanted: int, features: int, pictures: int) -> int:
    """How many axes a run keeps: all of them where its pictures are too few to tell the leading ones.

    >>> axes_kept(256, 1280, 4000), axes_kept(256, 1280, 300), axes_kept(2000, 1280, 10_000)
    (256, 1280, 1280)
    """
    return wanted if wanted < features and pictures >= PICTURES_AN_AXIS * wanted else features


def leading_axes(features: NDArray[np.floating[Any]], kept: int) -> NDArray[np.float32]:
    """Orthonormal columns [F, kept] from features [N, V, F], those with the most of them first.

    Each points to the side of its largest entry, so the same features give the same axes.
    """
    count, views, size = features.shape
    chosen = np.linspace(0, count - 1, min(count, max(LOOKED_AT // views, 1))).astype(np.int64)
    moments = np.zeros((size, size))
    for start in range(0, len(chosen), ROWS):
        rows = np.asarray(features[chosen[start : start + ROWS]], dtype=np.float64).reshape(-1, size)
        moments += rows.T @ rows
    axes = np.linalg.eigh(moments)[1][:, ::-1][:, :kept]  # eigh: smallest first
    largest = np.abs(axes).argmax(axis=0)
    signs = np.where(axes[largest, np.arange(kept)] < 0, -1.0, 1.0)
    return (axes * signs).astype(np.float32)


def along(features: NDArray[np.floating[Any]], matrix: NDArray[np.float32]) -> NDArray[np.float32]:
    """features [N, V, F] @ matrix [F, D] -> [N, V, D], a part at a time."""
    out = np.empty((*features.shape[:2], matrix.shape[1]), dtype=np.float32)
    for start in range(0, len(features), ROWS):
        out[start : start + ROWS] = np.asarray(features[start : start + ROWS], dtype=np.float32) @ matrix
    return out


def root_mean_square(values: NDArray[np.floating[Any]]) -> float:
    """Over all values; 1 if all are zero."""
    total = sum(
        float(np.square(values[start : start + ROWS], dtype=np.float64).sum())
        for start in range(0, len(values), ROWS)
    )
    return float(np.sqrt(total / values.size)) or 1.0
