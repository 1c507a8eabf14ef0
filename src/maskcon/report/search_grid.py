"""The image that `maskcon search --grid` writes: queries with their nearest neighbours."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import PIL.Image
from numpy.typing import NDArray

from maskcon._utils.errors import UsageError
from maskcon._utils.files import make_folder, write_atomically
from maskcon.data.collection import gather
from maskcon.data.decoding import UndecodableError, decode
from maskcon.data.image_readers import ImageArrays
from maskcon.report.gallery import TILE_PIXELS, retrieval_grid
from maskcon.retrieval.store import Entry, Header, Neighbours

DECODE_SIDE = 2 * TILE_PIXELS
MISSING = 200  # grey
Image = NDArray[np.uint8]  # [C, h, w], 1 or 3 channels


def write_grid(
    path: Path,
    queries: Sequence[Image],
    neighbours: Neighbours,
    image_of: Callable[[Entry], Image | None],
) -> int:
    """Save an image with one row per query; return how many neighbours are missing, drawn as grey tiles."""
    images = list(queries)
    rows: list[list[int]] = []
    place_of: dict[str, int] = {}
    missing = 0
    for entries in neighbours.entries:
        row = []
        for entry in entries:
            if entry.path not in place_of:
                image = image_of(entry)
                missing += image is None
                place_of[entry.path] = len(images)
                images.append(np.full_like(queries[0], MISSING) if image is None else image)
            row.append(place_of[entry.path])
        rows.append(row)
    found = np.array(rows, dtype=np.int64).reshape(len(queries), -1)
    drawn = retrieval_grid(images, range(len(queries)), found, None)
    # white: image viewers show transparency in various colours
    page = PIL.Image.new("RGB", drawn.size, "white")
    page.paste(drawn, mask=drawn.getchannel("A"))
    try:
        kind = PIL.Image.registered_extensions()[path.suffix.lower()]
        content = io.BytesIO()
        page.save(content, format=kind)
        make_folder(path.parent)
        write_atomically(path, content.getvalue())
    except (KeyError, ValueError):
        raise UsageError(f"--grid {path}: give a name that ends in .png or .jpg") from None
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from None
    return missing


def image_reader(header: Header, *, canvas: int, root: Path | None = None) -> Callable[[Entry], Image | None]:
    """Return a function that reads the image of an index entry; None where the file is gone.

    canvas: size the images were indexed at, for sources decoded as a whole; root: folder of the datasets
    """
    if header.root:

        def from_file(entry: Entry) -> Image | None:
            try:
                return decode(Path(header.root) / entry.path, DECODE_SIDE, 3)
            except UndecodableError:
                return None

        return from_file
    indexed = gather(header.source, canvas=canvas, channels=3, root=root)
    if not isinstance(indexed, ImageArrays):  # nor were they files when they were indexed
        return lambda _: None

    def from_array(entry: Entry) -> Image | None:
        row = indexed.row_of.get(entry.path)
        return None if row is None else indexed.image(row)

    return from_array
