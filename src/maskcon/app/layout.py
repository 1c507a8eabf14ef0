"""The 2-D map of the page: principal axes at once, t-SNE when ready.

t-SNE places a sample; every other image is placed between its nearest images of the sample. Letters in shapes:
N images, S of the sample, D embedding, A axes.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.files import write_atomically
from maskcon.app.background import Report

FILE = "map.npz"
SAMPLE = 4000  # images placed by t-SNE itself
AXES = 50
NEAREST = 3
JITTER = 0.004  # separates images at equal places; a share of the map's extent
BLOCK = 1024

Points = NDArray[np.float32]


def plain_map(vectors: NDArray[np.float32]) -> Points:
    """Place N unit vectors [N, D] by their two leading principal axes, in -1..1, [N, 2]."""
    points = _projected(vectors, 2)
    return scaled(np.pad(points, ((0, 0), (0, max(0, 2 - points.shape[1])))))


def neighbour_map(vectors: NDArray[np.float32], report: Report) -> Points:
    """Place N unit vectors [N, D] by t-SNE of a sample, in -1..1, [N, 2]; the same for the same vectors."""
    from maskcon.report.maps import map_2d
    from maskcon.retrieval.nearest import rough_nearest, unit_rows

    report(0, len(vectors))
    chosen = sample_rows(len(vectors))
    placed = map_2d(vectors[chosen])
    report(len(chosen), len(vectors))
    if len(chosen) == len(vectors):
        return scaled(placed)
    axes = unit_rows(_projected(vectors, AXES))
    points = np.empty((len(vectors), 2), dtype=np.float32)
    sample = axes[chosen]
    noise = np.random.default_rng(0).standard_normal(points.shape) * JITTER * np.ptp(placed, axis=0).max()
    for start in range(0, len(vectors), BLOCK):
        near, cosines = rough_nearest(sample, axes[start : start + BLOCK], NEAREST)
        weights = 1 / (1.0001 - np.minimum(cosines, 1))[:, :, None]
        points[start : start + BLOCK] = (placed[near] * weights).sum(1) / weights.sum(1)
        report(max(start, len(chosen)), len(vectors))
    points += noise.astype(np.float32)
    points[chosen] = placed
    return scaled(points)


def sample_rows(count: int) -> NDArray[np.int64]:
    """Choose at most SAMPLE rows, ascending."""
    if count <= SAMPLE:
        return np.arange(count)
    return np.sort(np.random.default_rng(0).permutation(count)[:SAMPLE])


def scaled(points: NDArray[np.floating]) -> Points:
    """Centre and scale to -1..1, equally on both axes."""
    if not len(points):
        return np.zeros((0, 2), dtype=np.float32)
    low, high = points.min(0), points.max(0)
    half = float((high - low).max()) / 2
    centred: Points = ((points - (low + high) / 2) / (half if half > 0 else 1)).astype(np.float32)
    return centred


def read_map(folder: Path, digest: str) -> Points | None:
    """Read the stored map of these embeddings; None if there is none."""
    try:
        with np.load(io.BytesIO((folder / FILE).read_bytes()), allow_pickle=False) as file:
            points = np.asarray(file["points"], dtype=np.float32)
            return points if str(file["digest"]) == digest and points.ndim == 2 else None
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None


def keep_map(folder: Path, digest: str, points: Points) -> None:
    """Store a map for the next start."""
    content = io.BytesIO()
    np.savez(content, points=points, digest=np.array(digest))
    write_atomically(folder / FILE, content.getvalue())


def _projected(vectors: NDArray[np.float32], axes: int) -> NDArray[np.float32]:
    """Project onto the leading principal axes of a sample, [N, A]."""
    if not len(vectors):
        return np.zeros((0, axes), dtype=np.float32)
    sample = vectors[sample_rows(len(vectors))].astype(np.float64)
    mean = sample.mean(0)
    covariance = (sample - mean).T @ (sample - mean)
    leading = np.linalg.eigh(covariance)[1][:, ::-1][:, :axes].astype(np.float32)
    projected: NDArray[np.float32] = vectors @ leading - mean.astype(np.float32) @ leading
    return projected
