"""Decode many files into one uint8 array, in memory or in a memory-mapped pack.

A pack is made when the array is large, or on request (`maskcon pack`); an existing one is used whatever its size. It is
a folder (see `cache.cached_folder`) whose name holds a fingerprint of the files.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.errors import UsageError
from maskcon._utils.files import reserve
from maskcon._utils.paths import cache_root, has_folder
from maskcon._utils.threads import usable_cores
from maskcon.data.cache import cached_folder, check_space, files_key, place_key
from maskcon.data.decoding import UndecodableError, decode, decompression_bombs_refused
from maskcon.data.folder_layout import Found, Layout

Progress = Callable[[int, int], None]  # files done, files in total
Result = TypeVar("Result")

PACK_ABOVE_BYTES = 2 << 30  # more than this goes to a memory-mapped file
BLOCK_FILES = 32  # files between two calls of `progress`
MOST_QUEUED = 1 << 13  # files queued for the threads at a time: millions would fill the memory
MAX_THREADS = 32  # more would wait for Python's lock
FORMAT_VERSION = 4
PACKS = "packed"
IMAGES, BESIDE = "images.npy", "beside.npz"  # the pixels; sizes and failures


@dataclass(frozen=True)
class ImagePlan:
    """The images of a source to decode, each onto a canvas of side x side.

    files: the images to decode, train before test; failures: path -> why it is left out
    cache: folder of packs; None if no home folder is known, an error only if a pack is needed
    longest_side: of all images; None if unknown
    is_strict: an image that cannot be read is an error
    """

    layout: Layout
    files: tuple[Found, ...]
    side: int
    channels: int
    cache: Path | None = None
    failures: Mapping[str, str] = field(default_factory=dict)
    longest_side: int | None = None
    is_strict: bool = False

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return (len(self.files), self.channels, self.side, self.side)

    @property
    def size_bytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    def open(self, row: int) -> Path | BytesIO:
        """Return what `decode` takes for the image in this row of `files`."""
        return self.layout.open(self.files[row].path)


@dataclass(frozen=True)
class Packed:
    """The images that could be read, in the order of the files.

    images: [M, C, S, S]; sizes: [M, 2] valid (height, width)
    failures: row of the files -> why that one was left out; folder: of the pack, if there is one
    """

    images: NDArray[np.uint8]
    sizes: NDArray[np.int32]
    failures: Mapping[int, str]
    folder: Path | None = None

    @property
    def kept(self) -> list[int]:
        """Rows of the files that the images belong to."""
        return [row for row in range(len(self.images) + len(self.failures)) if row not in self.failures]


def pack(plan: ImagePlan, progress: Progress | None = None) -> Packed:
    """Decode the images, or find a pack of them; a large array becomes a pack."""
    stored = find_pack(plan)
    if stored is not None:
        return stored
    if plan.size_bytes <= PACK_ABOVE_BYTES:
        return _fill(np.zeros(plan.shape, dtype=np.uint8), plan, progress)
    return make_pack(plan, progress)


def find_pack(plan: ImagePlan) -> Packed | None:
    """Find the pack of these files by their present sizes and times."""
    if plan.cache is None or not has_folder(plan.cache):
        return None
    return _read(_pack_folder(plan.cache, plan), plan)


def make_pack(plan: ImagePlan, progress: Progress | None = None) -> Packed:
    """Decode the images into a pack, which replaces older ones of the same source."""
    cache = plan.cache or cache_root() / PACKS
    return cached_folder(
        lambda: _pack_folder(cache, plan),
        lambda folder: _read(folder, plan),
        lambda folder: _write(folder, plan, progress),
    )


def usual_cache() -> Path | None:
    """Return the folder of packs in the user's cache; None without a home folder."""
    try:
        return cache_root() / PACKS
    except UsageError:
        return None


def map_files(work: Callable[[int], Result], count: int, progress: Progress | None = None) -> list[Result]:
    """Return work(0), ..., work(count - 1), computed by a pool of threads.

    Pillow decodes outside Python's lock.
    """
    results: list[Result] = []
    with decompression_bombs_refused(), ThreadPool(min(MAX_THREADS, usable_cores())) as pool:
        for start in range(0, count, MOST_QUEUED):
            # an error or Ctrl-C leaves without the queued files
            for result in pool.imap(work, range(start, min(start + MOST_QUEUED, count))):
                results.append(result)
                if progress is not None and (len(results) % BLOCK_FILES == 0 or len(results) == count):
                    progress(len(results), count)
    return results


def fill(
    images: NDArray[np.uint8],
    read: Callable[[int], NDArray[np.uint8]],
    progress: Progress | None = None,
) -> Packed:
    """Write read(0), read(1), ... to canvases [N, C, S, S], skipping unreadable ones."""

    def work(row: int) -> tuple[int, int] | str:
        try:
            pixels = read(row)
        except UndecodableError as error:
            return str(error)
        _, height, width = pixels.shape
        images[row, :, :height, :width] = pixels
        return height, width

    outcome = map_files(work, len(images), progress)
    failures = {row: found for row, found in enumerate(outcome) if isinstance(found, str)}
    sizes = np.array([found for found in outcome if not isinstance(found, str)], dtype=np.int32)
    packed = Packed(images[: len(sizes)], sizes.reshape(-1, 2), failures)
    if failures:  # close the gaps in place: the array may be larger than memory
        for target, row in enumerate(packed.kept):
            if target != row:
                images[target] = images[row]
    return packed


def _fill(images: NDArray[np.uint8], plan: ImagePlan, progress: Progress | None) -> Packed:
    return fill(images, lambda row: decode(plan.open(row), plan.side, plan.channels), progress)


def _pack_folder(cache: Path, plan: ImagePlan) -> Path:
    """Name the pack; packs of one source and side differ after the last hyphen only."""
    layout, paths = plan.layout, [found.path for found in plan.files]
    salt = f"{FORMAT_VERSION};{plan.channels};"
    if layout.contents is None:
        key = files_key(layout.root, paths, salt)
    else:
        listed = "".join(f"{path}\0" for path in paths)
        key = hashlib.sha256(f"{salt}{layout.contents.key};{listed}".encode()).hexdigest()[:20]
    return cache / f"{layout.kind}-{plan.side}px-{place_key(layout.root)}-{key}"


def _read(folder: Path, plan: ImagePlan) -> Packed | None:
    try:
        images = np.load(folder / IMAGES, mmap_mode="r", allow_pickle=False)
        with np.load(folder / BESIDE, allow_pickle=False) as beside:
            sizes = beside["sizes"]
            failures = {int(row): str(why) for row, why in json.loads(str(beside["failures"])).items()}
    except Exception:  # numpy and zipfile raise many types on damaged data
        return None
    count = len(plan.files)
    if images.shape != plan.shape or images.dtype != np.uint8 or sizes.shape != (count - len(failures), 2):
        return None
    if any(not 0 <= row < count for row in failures):
        return None
    return Packed(images[: len(sizes)], sizes, failures, folder)


def _write(folder: Path, plan: ImagePlan, progress: Progress | None) -> None:
    check_space(folder, plan.size_bytes, "decoding", ", or give a smaller image size")
    images = np.lib.format.open_memmap(folder / IMAGES, mode="w+", dtype=np.uint8, shape=plan.shape)
    with (folder / IMAGES).open("r+b") as file:
        # a disk that fills up later, inside a memory map, would kill the process
        reserve(file, (folder / IMAGES).stat().st_size)
    packed = _fill(images, plan, progress)
    images.flush()
    failures = json.dumps({str(row): why for row, why in packed.failures.items()})
    np.savez(folder / BESIDE, sizes=packed.sizes, failures=np.array(failures))
    for name in (IMAGES, BESIDE):
        with (folder / name).open("r+b") as file:
            os.fsync(file.fileno())
