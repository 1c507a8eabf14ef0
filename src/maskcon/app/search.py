"""Search by images: exact cosine to the mean of the positive images minus the mean of the negative ones."""

from __future__ import annotations

import io
import itertools
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.errors import UsageError
from maskcon.data.decoding import UndecodableError, examine
from maskcon.data.image_readers import with_channels
from maskcon.retrieval.nearest import nearest, unit_rows
from maskcon.retrieval.store import Embed

Vector = NDArray[np.float32]
MOST_RESULTS = 1000
KEPT_UPLOADS = 64
SHORTEST_QUERY = 1e-6  # below, its direction is rounding error


def search(
    vectors: NDArray[np.float32],
    positive: Sequence[int],
    negative: Sequence[int],
    uploads: Sequence[Vector],
    among: NDArray[np.bool_],
    k: int,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Find the images nearest to mean(positive and uploads) - mean(negative), without these themselves.

    Args:
        vectors: unit rows [N, D].
        uploads: unit vectors [D] of other images.
        among: [N] which images may be found.

    Returns:
        Rows and cosines, best first.

    Example:
        >>> stored = np.eye(3, dtype=np.float32)
        >>> search(stored, [0], [1], [], np.ones(3, bool), k=5)[0]
        array([2])
    """
    wanted = [*(vectors[row] for row in positive), *uploads]
    if not wanted:
        raise UsageError("give at least one image to search for")
    query: NDArray[np.float64] = np.stack(wanted).astype(np.float64).mean(0)
    if negative:
        query = query - vectors[list(negative)].astype(np.float64).mean(0)
    if np.linalg.norm(query) < SHORTEST_QUERY:
        raise UsageError("the positive and the negative images are the same; remove one of them")
    among = among.copy()
    among[[*positive, *negative]] = False
    rows, scores = nearest(vectors, unit_rows(query[None]), min(k, MOST_RESULTS), among)
    return rows[0], scores[0]


class Uploads:
    """Images that were dropped on the page, stored as vectors only; the oldest are dropped."""

    def __init__(self, run: Path, device: str = "cpu") -> None:
        self._run, self._device = run, device
        self._lock, self._numbers = threading.Lock(), itertools.count(1)
        self._encoder: tuple[Embed, int, int] | None = None
        self._vectors: dict[str, Vector] = {}

    def add(self, content: bytes) -> tuple[str, int, int]:
        """Decode and encode an image; return its name, width and height.

        Raises:
            UsageError: the content cannot be decoded as an image.
        """
        with self._lock:
            encode, canvas, channels = self._open_encoder()
            try:
                shape, pixels = examine(io.BytesIO(content), canvas)
            except UndecodableError as error:
                raise UsageError(f"the file cannot be read as an image: {error}") from None
            image = np.zeros((1, 3, canvas, canvas), dtype=np.uint8)
            image[0, :, : pixels.shape[1], : pixels.shape[2]] = pixels
            sizes = np.array([pixels.shape[1:]], dtype=np.int32)
            vector = unit_rows(encode(with_channels(image, channels), sizes))[0]
            name = f"u{next(self._numbers)}"
            self._vectors[name] = vector
            for old in list(self._vectors)[:-KEPT_UPLOADS]:
                del self._vectors[old]
        return name, shape.width, shape.height

    def vector(self, name: str) -> Vector:
        """Return the unit vector [D] of an upload."""
        with self._lock:
            if name not in self._vectors:
                raise UsageError(f"the upload {name!r} has expired; drop the file again")
            return self._vectors[name]

    def _open_encoder(self) -> tuple[Embed, int, int]:
        if self._encoder is None:  # torch takes seconds to import: only when a file is dropped
            from maskcon.api import Run
            from maskcon.api.embedding import open_encoder

            encode, facts, _ = open_encoder(Run.open(self._run), self._device)
            self._encoder = encode, facts.canvas, facts.in_channels
        return self._encoder
