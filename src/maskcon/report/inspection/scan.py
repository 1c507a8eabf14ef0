"""Read every image of a source once: size, mode, checksum, hash; labels and splits as in training."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from maskcon._utils.errors import DataError
from maskcon.data.dataset import Dataset, ImageSet
from maskcon.data.decoding import Shape, UndecodableError, decode, examine
from maskcon.data.folder_layout import show
from maskcon.data.packing import ImagePlan, Progress, map_files
from maskcon.data.photos import labels_only
from maskcon.report.inspection.near_duplicates import compared_by
from maskcon.report.style import as_pixels

EXAMINED_SIDE = 64  # a JPEG is decoded at a reduced size; a hash needs no more
IMAGE_MODES = {1: "L", 3: "RGB"}


@dataclass(frozen=True)
class Examined:
    """One image: its shape, the sha256 of its content, its hash (None without contrast), its tiny version."""

    shape: Shape
    size_bytes: int
    checksum: bytes
    hash: int | None
    tiny: NDArray[np.uint8]  # [3, 16, 16]


@dataclass(frozen=True, eq=False)
class Read:
    """All images of a source: the N images of train, then those of test.

    labels: the dataset; only its labels, paths and notes are used
    failures: path -> why an image is left out
    thumbnails: rows, side -> of each [3, h, w] with h, w <= side, or None where it can no longer be read
    """

    labels: Dataset
    images: list[Examined]
    failures: dict[str, str]
    thumbnails: Callable[[Sequence[int], int], list[NDArray[np.uint8] | None]]

    @property
    def names(self) -> list[str]:
        """Name each image by its path, or its part and number."""
        return [*_names("train", self.labels.train), *_names("test", self.labels.test)]

    @property
    def coarse(self) -> NDArray[np.int64]:
        return np.concatenate([self.labels.train.coarse, self.labels.test.coarse])


def read_plan(plan: ImagePlan, progress: Progress | None = None) -> Read:
    """Read all images of a plan, each file once."""

    def work(row: int) -> Examined | str:
        try:
            file = plan.open(row)
            shape, pixels = examine(file, EXAMINED_SIDE)
            with file.open("rb") if isinstance(file, Path) else BytesIO(file.getvalue()) as content:
                checksum = hashlib.file_digest(content, "sha256").digest()
                return _examined(shape, content.seek(0, os.SEEK_END), checksum, pixels)
        except UndecodableError as error:
            return str(error)
        except DataError as error:  # of the disk; inspection reports it for each file and goes on
            return (
                error.__cause__.strerror or str(error) if isinstance(error.__cause__, OSError) else str(error)
            )
        except OSError as error:
            return error.strerror or str(error)

    outcome = map_files(work, len(plan.files), progress)
    broken = {row: found for row, found in enumerate(outcome) if isinstance(found, str)}
    readable = [row for row in range(len(outcome)) if row not in broken]

    def thumbnails(places: Sequence[int], side: int) -> list[NDArray[np.uint8] | None]:
        def decoded(number: int) -> NDArray[np.uint8] | None:
            try:
                return decode(plan.open(readable[places[number]]), side, 3)
            except UndecodableError:
                return None

        return map_files(decoded, len(places))

    return Read(
        labels=labels_only(plan, broken),
        images=[found for found in outcome if not isinstance(found, str)],
        failures={show(path): why for path, why in plan.failures.items()}
        | {show(plan.files[row].path): why for row, why in broken.items()},
        thumbnails=thumbnails,
    )


def read_arrays(data: Dataset, progress: Progress | None = None) -> Read:
    """Read all images of a dataset of arrays."""
    parts = (data.train, data.test)

    def pixels(row: int) -> NDArray[np.uint8]:
        part, inside = (parts[0], row) if row < len(parts[0]) else (parts[1], row - len(parts[0]))
        return part.image(inside)

    def work(row: int) -> Examined:
        image = pixels(row)
        channels, height, width = image.shape
        content = np.ascontiguousarray(image).tobytes()
        checksum = hashlib.sha256(f"{image.shape};".encode() + content).digest()
        shape = Shape(width, height, IMAGE_MODES[channels], "array")
        return _examined(shape, len(content), checksum, image)

    def thumbnail(row: int, side: int) -> NDArray[np.uint8]:
        image = Image.fromarray(as_pixels(pixels(row)))
        image.thumbnail((side, side))
        return np.ascontiguousarray(np.asarray(image).transpose(2, 0, 1))

    def thumbnails(rows: Sequence[int], side: int) -> list[NDArray[np.uint8] | None]:
        return [thumbnail(row, side) for row in rows]

    total = sum(len(part) for part in parts)
    return Read(data, map_files(work, total, progress), {}, thumbnails)


def _examined(shape: Shape, size: int, checksum: bytes, pixels: NDArray[np.uint8]) -> Examined:
    hashed, tiny = compared_by(pixels)
    return Examined(shape, size, checksum, hashed, tiny)


def _names(part_name: str, part: ImageSet) -> list[str]:
    if part.paths is not None:
        return [show(path) for path in part.paths]
    return [f"{part_name}/{number}" for number in range(len(part))]
