"""Batches of 32x32 pictures as pickled dictionaries: found, unpacked, read and checked one by one."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.download import file_digest
from maskcon._utils.errors import CorruptFileError, DataError
from maskcon._utils.files import sync_file, write_synced
from maskcon.data.archive import extract
from maskcon.data.safe_pickle import load_pickle

PICTURE_SHAPE = (3, 32, 32)
PICTURE_BYTES = 3 * 32 * 32
LABEL_DTYPE = "<i2"
UNPACKED_LIMIT = 6_000_000_000  # the larger archive unpacks to 4 GB


@dataclass(frozen=True)
class Batches:
    """The batch files of one part (train or test), in order: in a folder, or still in their zip."""

    part: str
    names: tuple[str, ...]
    place: Path

    @property
    def is_archive(self) -> bool:
        return self.place.is_file()

    def stamped_files(self) -> list[Path]:
        """The files whose size and time tell whether anything changed."""
        return [self.place] if self.is_archive else [self.place / name for name in self.names]


@contextlib.contextmanager
def opened(source: Batches, scratch: Path) -> Iterator[list[Path]]:
    """The batch files; those of an archive are unpacked for the time being."""
    if not source.is_archive:
        yield [source.place / name for name in source.names]
        return
    unpacked = extract(source.place, scratch / f"{source.part}-unpacked", max_bytes=UNPACKED_LIMIT)
    try:
        found = {path.name: path for path in unpacked.rglob("*") if path.is_file()}
        lacking = [name for name in source.names if name not in found]
        if lacking:
            raise CorruptFileError(f"it holds no {', '.join(lacking)}; download it again")
        yield [found[name] for name in source.names]
    except CorruptFileError as error:  # names a file of ours that is about to go: name the user's instead
        inside = str(error).replace(f"{unpacked}{os.sep}", "")
        raise CorruptFileError(f"{source.place}: {inside}") from error
    finally:
        shutil.rmtree(unpacked, ignore_errors=True)


class PartWriter:
    """Appends one batch after the other to the files of a part; holds one batch in memory at a time."""

    def __init__(self, folder: Path, part: str, class_count: int) -> None:
        self.class_count = class_count
        self.images = (folder / f"{part}.images").open("wb")
        self.labels_path = folder / f"{part}.labels"
        self.labels: list[NDArray[np.int16]] = []
        self.digest = hashlib.sha256()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.images.close()

    def add(self, path: Path) -> str:
        """Append the batch in this file; returns the file's md5."""
        pixels, labels = _read_batch(path, self.class_count)
        content = pixels.reshape(-1).data
        self.images.write(content)
        self.digest.update(content)
        self.labels.append(labels)
        try:
            return file_digest(path, "md5")
        except OSError as error:
            raise DataError(f"cannot read {path}: {error.strerror or error}") from error

    def facts(self) -> dict[str, Any]:
        """What the manifest says of this part, once the disk has both files."""
        sync_file(self.images)
        labels = np.concatenate(self.labels).tobytes()  # 2 bytes a picture
        write_synced(self.labels_path, labels)
        return {
            "count": sum(len(batch) for batch in self.labels),
            "images_sha256": self.digest.hexdigest(),
            "labels_sha256": hashlib.sha256(labels).hexdigest(),
        }


def _read_batch(path: Path, class_count: int) -> tuple[NDArray[np.uint8], NDArray[np.int16]]:
    """Pixels [N, 3072] and labels [N] (1..class_count) of one file."""
    batch = load_pickle(path)
    pixels = checked_pixels(path, batch)
    labels = checked_labels(path, batch, "labels", len(pixels), range(1, class_count + 1))
    return np.ascontiguousarray(pixels), np.array(labels, dtype=LABEL_DTYPE)


def checked_pixels(path: Path, batch: Mapping[str, Any]) -> NDArray[np.uint8]:
    """The pictures of a batch, [N, 3072] with N > 0; path is for the message."""
    pixels = batch.get("data")
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[1:] != (PICTURE_BYTES,):
        got = f"{pixels.dtype} {pixels.shape}" if isinstance(pixels, np.ndarray) else type(pixels).__name__
        raise CorruptFileError(
            f"{path}: 'data' should be bytes [N, {PICTURE_BYTES}] (32x32 pictures), got {got}; nothing was used"
        )
    if not len(pixels):
        raise CorruptFileError(f"{path}: 'data' holds no picture; nothing was used")
    return pixels


def checked_labels(path: Path, batch: Mapping[str, Any], key: str, count: int, allowed: range) -> list[int]:
    """The labels of a batch under this key, one for each of its pictures."""
    labels = batch.get(key)
    if (
        not isinstance(labels, list)
        or len(labels) != count
        or any(type(label) is not int for label in labels)
    ):
        raise CorruptFileError(f"{path}: {key!r} should be a list of {count} whole numbers; nothing was used")
    if any(label not in allowed for label in labels):
        raise CorruptFileError(f"{path}: {key!r} should lie in {allowed[0]}..{allowed[-1]}; nothing was used")
    return labels
