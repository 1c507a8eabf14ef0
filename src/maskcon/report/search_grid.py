"""The image that `maskcon search --grid` writes: queries with their nearest neighbours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.errors import UsageError
from maskcon.data.collection import gather
from maskcon.data.decoding import UndecodableError, decode
from maskcon.data.image_readers import ImageArrays
from maskcon.report.gallery import TILE_PIXELS, retrieval_grid
from maskcon.retrieval.store import Entry, Header, Neighbours

DECODE_SIDE = 2 * TILE_PIXELS
Picture = NDArray[np.uint8]  # [C, h, w], 1 or 3 channels


def write_grid(
    path: Path,
    queries: Sequence[Picture],
    neighbours: Neighbours,
    picture_of: Callable[[Entry], Picture | None],
) -> int:
    """Draw one row per query and save it; returns how many neighbours are missing, drawn as grey tiles."""
    images = list(queries)
    rows: list[list[int]] = []
    place_of: dict[str, int] = {}
    gone = 0
    for entries in neighbours.entries:
        row = []
        for entry in entries:
            if entry.path not in place_of:
                picture = picture_of(entry)
                gone += picture is None
                place_of[entry.path] = len(images)
                images.append(_missing() if picture is None else picture)
            row.append(place_of[entry.path])
        rows.append(row)
    found = np.array(rows, dtype=np.int64).reshape(len(queries), -1)
    drawn = retrieval_grid(images, range(len(queries)), found, None)
    from PIL import Image

    page = Image.new(
        "RGB", drawn.size, "white"
    )  # as a file it is looked at alone, by programs with any background
    page.paste(drawn, mask=drawn.getchannel("A"))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        page.save(path)
    except ValueError:
        raise UsageError(f"--grid {path}: give a name that ends in .png or .jpg") from None
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from None
    return gone


def picture_reader(
    header: Header, *, canvas: int, root: Path | None = None
) -> Callable[[Entry], Picture | None]:
    """Return a function that reads the image of an index entry; None where the file is gone.

    canvas: size the images were indexed at, for sources decoded as a whole; root: folder of the datasets
    """
    if header.root:

        def from_file(entry: Entry) -> Picture | None:
            try:
                return decode(Path(header.root) / entry.path, DECODE_SIDE, 3)
            except UndecodableError:
                return None

        return from_file
    pictures = gather(header.source, canvas=canvas, channels=3, root=root)
    if not isinstance(pictures, ImageArrays):  # nor were they files when they were indexed
        return lambda _: None

    def from_array(entry: Entry) -> Picture | None:
        row = pictures.row_of.get(entry.path)
        return None if row is None else pictures.image(row)

    return from_array


def _missing() -> Picture:
    return np.full((3, TILE_PIXELS, TILE_PIXELS), 200, dtype=np.uint8)
