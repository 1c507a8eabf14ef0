"""Decode many files into one uint8 array: in memory, or in a memory-mapped file of the cache, called a pack.

A pack is made when the array is large, or on request (`maskcon pack`); an existing one is used whatever its size. It is
a folder (see `cache.cached_folder`) whose name holds a fingerprint of the files.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from io import BytesIO
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.errors import UsageError
from maskcon._utils.files import reserve
from maskcon._utils.paths import cache_root, has_folder
from maskcon._utils.threads import usable_cores
from maskcon.data.cache import cached_folder, check_space, files_key, place_key
from maskcon.data.dataset import Dataset
from maskcon.data.decoding import UndecodableError, checked_side, decode, decompression_bombs_refused

Progress = Callable[[int, int], None]  # files done, files in all
Result = TypeVar("Result")

PACK_ABOVE_BYTES = 2 << 30  # more than this goes to a memory-mapped file
BLOCK_FILES = 32  # files between two calls of `progress`
MAX_THREADS = 32  # what an image takes of Python's lock leaves room for about so many
FORMAT_VERSION = 4
PACKS = "packed"
IMAGES, BESIDE = "images.npy", "beside.npz"  # the pixels; sizes and failures


class Contents(Protocol):
    """Images that are no files of their own, by the paths that stand for them."""

    @property
    def key(self) -> str:
        """Identify the content; changes when any image does."""
        ...

    def read(self, path: str) -> bytes:
        """Return an image file's content, or raise `UndecodableError`; thread-safe."""
        ...


@dataclass(frozen=True)
class PackJob:
    """Images to be decoded: root/path for each path, onto a canvas of side x side.

    name distinguishes the packs of one folder, such as the two splits of a dataset; cache is where packs live, None
    where no home folder is known, an error only for jobs that need a pack; contents: where paths are no files.
    """

    name: str
    root: Path
    paths: tuple[str, ...]
    side: int
    channels: int
    cache: Path | None
    contents: Contents | None = None

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return (len(self.paths), self.channels, self.side, self.side)

    @property
    def size_bytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))


@dataclass(frozen=True)
class Packed:
    """The images that could be read, in the order of the files.

    images: [M, C, S, S]; sizes: [M, 2] valid (height, width); kept: [M] their places in the list of files;
    failures: place in the list -> why that file was left out; folder: the pack that they lie in, if in one.
    """

    images: NDArray[np.uint8]
    sizes: NDArray[np.int32]
    kept: NDArray[np.int64]
    failures: dict[int, str]
    folder: Path | None = None


@dataclass(frozen=True)
class ImagePlan:
    """A dataset made of image files, before they are decoded.

    failures: path -> why it is left out, of those that are not in the job
    dataset: makes the dataset of the decoded images
    longest_side: of any image; None if that is not known
    """

    job: PackJob
    failures: Mapping[str, str]
    dataset: Callable[[Packed], Dataset]
    longest_side: int | None = None

    def load(self, image_size: int | None, progress: Progress | None = None) -> Dataset:
        """Decode the images onto a canvas of this side, or of the longest side if that is smaller."""
        limit = checked_side(image_size)
        side = limit if self.longest_side is None else min(limit, self.longest_side)
        return self.dataset(pack(replace(self.job, side=side), progress))


def pack(job: PackJob, progress: Progress | None = None) -> Packed:
    """Decode the images, unless there is a pack of them; a large array goes into one."""
    stored = find_pack(job)
    if stored is not None:
        return stored
    if job.size_bytes <= PACK_ABOVE_BYTES:
        return _fill(np.zeros(job.shape, dtype=np.uint8), job, progress)
    return make_pack(job, progress)


def find_pack(job: PackJob) -> Packed | None:
    """Find the pack of these files in their present state, by sizes and times only."""
    if job.cache is None or not has_folder(job.cache):
        return None
    return _read(_pack_folder(job.cache, job), job)


def make_pack(job: PackJob, progress: Progress | None = None) -> Packed:
    """Decode the images into a pack; replaces an older one of the same name and folder."""
    cache = job.cache or cache_root() / PACKS
    return cached_folder(
        lambda: _pack_folder(cache, job),
        lambda folder: _read(folder, job),
        lambda folder: _write(folder, job, progress),
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
        for result in pool.imap(work, range(count)):  # an error or Ctrl-C leaves without the queued files
            results.append(result)
            if progress is not None and (len(results) % BLOCK_FILES == 0 or len(results) == count):
                progress(len(results), count)
    return results


def opened(root: Path, path: str, contents: Contents | None) -> Path | BytesIO:
    """Return what `decode` takes for this image."""
    return root / path if contents is None else BytesIO(contents.read(path))


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
    kept = np.array([row for row in range(len(images)) if row not in failures], dtype=np.int64)
    sizes = np.array([found for found in outcome if not isinstance(found, str)], dtype=np.int32)
    if failures:  # close the gaps in place: the array may be larger than memory
        for target, row in enumerate(kept.tolist()):
            if target != row:
                images[target] = images[row]
    return Packed(images[: len(kept)], sizes.reshape(-1, 2), kept, failures)


def _fill(images: NDArray[np.uint8], job: PackJob, progress: Progress | None) -> Packed:
    def read(row: int) -> NDArray[np.uint8]:
        return decode(opened(job.root, job.paths[row], job.contents), job.side, job.channels)

    return fill(images, read, progress)


def _pack_folder(cache: Path, job: PackJob) -> Path:
    """Name the pack; all of one folder, name and side differ after the last hyphen only."""
    salt = f"{FORMAT_VERSION};{job.channels};"
    if job.contents is None:
        key = files_key(job.root, job.paths, salt)
    else:
        listed = "".join(f"{path}\0" for path in job.paths)
        key = hashlib.sha256(f"{salt}{job.contents.key};{listed}".encode()).hexdigest()[:20]
    return cache / f"{job.name}-{job.side}px-{place_key(job.root)}-{key}"


def _read(folder: Path, job: PackJob) -> Packed | None:
    try:
        images = np.load(folder / IMAGES, mmap_mode="r", allow_pickle=False)
        with np.load(folder / BESIDE, allow_pickle=False) as beside:
            sizes, kept = beside["sizes"], beside["kept"]
            failures = {int(row): why for row, why in json.loads(str(beside["failures"])).items()}
    except Exception:  # numpy and zipfile raise nearly anything on damaged data
        return None  # not there, or damaged: decoded again
    if images.shape != job.shape or images.dtype != np.uint8 or sizes.shape != (len(kept), 2):
        return None
    if sorted([*kept.tolist(), *failures]) != list(range(len(job.paths))):
        return None
    return Packed(images[: len(kept)], sizes, kept, failures, folder)


def _write(folder: Path, job: PackJob, progress: Progress | None) -> None:
    check_space(folder, job.size_bytes, "decoding", ", or give a smaller image size")
    images = np.lib.format.open_memmap(folder / IMAGES, mode="w+", dtype=np.uint8, shape=job.shape)
    with (folder / IMAGES).open("r+b") as file:
        # now: running out of disk space later, inside a memory map, would kill the process
        reserve(file, (folder / IMAGES).stat().st_size)
    packed = _fill(images, job, progress)
    images.flush()
    failures = json.dumps({str(row): why for row, why in packed.failures.items()})
    np.savez(folder / BESIDE, sizes=packed.sizes, kept=packed.kept, failures=np.array(failures))
    for name in (IMAGES, BESIDE):
        with (folder / name).open("r+b") as file:
            os.fsync(file.fileno())
