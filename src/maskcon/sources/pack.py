"""Decode many files into one uint8 array: in memory, or in a memory-mapped file of the cache if it is large."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from maskcon.errors import DataError
from maskcon.locations import cache_root
from maskcon.sources.decode import UndecodableError, decode, picture_bombs_refused
from maskcon.turns import one_at_a_time

Progress = Callable[[int, int], None]  # files done, files in all
Result = TypeVar("Result")

PACK_ABOVE_BYTES = 2 << 30  # more than this goes to a memory-mapped file
BLOCK_FILES = 128  # files handed to the threads at a time, and between two calls of `progress`
MAX_THREADS = 8
FORMAT_VERSION = 1
SCRATCH_PREFIX = "packing-"


@dataclass(frozen=True)
class Packed:
    """The pictures that could be read, in the order of the files.

    images: [M, C, S, S]; sizes: [M, 2] valid (height, width); kept: [M] their places in the list of files;
    failures: place in the list -> why that file was left out.
    """

    images: NDArray[np.uint8]
    sizes: NDArray[np.int32]
    kept: NDArray[np.int64]
    failures: dict[int, str]


def pack(
    root: Path,
    paths: Sequence[str],
    *,
    side: int,
    channels: int,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> Packed:
    """Decode root/path for each path onto a canvas of side x side.

    cache: where a pack too large for memory is kept, by default in the user's cache.
    """
    shape = (len(paths), channels, side, side)
    if int(np.prod(shape, dtype=np.int64)) <= PACK_ABOVE_BYTES:
        return _fill(np.zeros(shape, dtype=np.uint8), root, paths, progress)
    folder = (cache or cache_root() / "packed") / _fingerprint(root, paths, side, channels)
    stored = _read_stored(folder, shape)
    return stored if stored is not None else _write_stored(folder, shape, root, paths, progress)


def map_files(work: Callable[[int], Result], count: int, progress: Progress | None = None) -> list[Result]:
    """work(0), ..., work(count - 1) in a pool of threads, in order; Pillow decodes outside Python's lock."""
    results: list[Result] = []
    threads = max(1, min(MAX_THREADS, os.cpu_count() or 1))
    with picture_bombs_refused(), ThreadPoolExecutor(threads) as pool:
        for start in range(0, count, BLOCK_FILES):
            results.extend(pool.map(work, range(start, min(start + BLOCK_FILES, count))))
            if progress is not None:
                progress(len(results), count)
    return results


def _fill(images: NDArray[np.uint8], root: Path, paths: Sequence[str], progress: Progress | None) -> Packed:
    _, channels, side, _ = images.shape

    def work(row: int) -> tuple[int, int] | str:
        try:
            pixels = decode(root / paths[row], side, channels)
        except UndecodableError as error:
            return str(error)
        _, height, width = pixels.shape
        images[row, :, :height, :width] = pixels
        return height, width

    outcome = map_files(work, len(paths), progress)
    failures = {row: found for row, found in enumerate(outcome) if isinstance(found, str)}
    kept = np.array([row for row in range(len(paths)) if row not in failures], dtype=np.int64)
    sizes = np.array([found for found in outcome if not isinstance(found, str)], dtype=np.int32).reshape(
        -1, 2
    )
    if failures:
        for target, row in enumerate(
            kept.tolist()
        ):  # close the gaps in place: the array may be larger than memory
            if target != row:
                images[target] = images[row]
    return Packed(images[: len(kept)], sizes, kept, failures)


def _fingerprint(root: Path, paths: Sequence[str], side: int, channels: int) -> str:
    """Changes when a file is added, removed, replaced or touched, or when the canvas does."""
    digest = hashlib.sha256(
        f"{FORMAT_VERSION};{root.resolve()};{side};{channels};".encode(errors="surrogateescape")
    )
    for path in paths:
        try:
            status = (root / path).stat()
            state = f"{status.st_size};{status.st_mtime_ns}"
        except OSError:
            state = "gone"  # since its header was read; decoding it will say so
        digest.update(os.fsencode(path) + f"\0{state};".encode())
    return digest.hexdigest()[:32]


def _read_stored(folder: Path, shape: tuple[int, ...]) -> Packed | None:
    try:
        images = np.load(folder / "images.npy", mmap_mode="r", allow_pickle=False)
        with np.load(folder / "beside.npz", allow_pickle=False) as beside:
            sizes, kept = beside["sizes"], beside["kept"]
            failures = {int(row): why for row, why in json.loads(str(beside["failures"])).items()}
    except Exception:  # numpy and zipfile raise nearly anything on damaged data
        return None  # not there, or damaged: decoded anew
    if images.shape != shape or images.dtype != np.uint8 or sizes.shape != (len(kept), 2):
        return None
    if sorted([*kept.tolist(), *failures]) != list(range(shape[0])):
        return None
    return Packed(images[: len(kept)], sizes, kept, failures)


def _write_stored(
    folder: Path, shape: tuple[int, ...], root: Path, paths: Sequence[str], progress: Progress | None
) -> Packed:
    """Decode into a scratch folder that gets its name when it is complete; of several processes, one does."""
    cache = folder.parent
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with one_at_a_time(cache) as alone:
            if alone:
                for left in cache.glob(f"{SCRATCH_PREFIX}*"):  # by processes that were killed
                    shutil.rmtree(left, ignore_errors=True)
            stored = _read_stored(folder, shape)
            if stored is not None:
                return stored
            _check_room(cache, int(np.prod(shape, dtype=np.int64)))
            with tempfile.TemporaryDirectory(prefix=SCRATCH_PREFIX, dir=cache) as scratch:
                complete = Path(scratch) / "complete"
                complete.mkdir()
                _write(complete, shape, root, paths, progress)
                shutil.rmtree(folder, ignore_errors=True)  # a damaged one
                complete.rename(folder)
    except OSError as error:
        raise DataError(f"cannot keep the decoded images in {cache}: {error.strerror or error}") from error
    stored = _read_stored(folder, shape)
    if stored is None:
        raise DataError(f"the decoded images in {folder} cannot be read back; delete them and try again")
    return stored


def _write(
    folder: Path, shape: tuple[int, ...], root: Path, paths: Sequence[str], progress: Progress | None
) -> None:
    images = np.lib.format.open_memmap(folder / "images.npy", mode="w+", dtype=np.uint8, shape=shape)
    _reserve(folder / "images.npy")
    packed = _fill(images, root, paths, progress)
    images.flush()
    failures = json.dumps({str(row): why for row, why in packed.failures.items()})
    np.savez(folder / "beside.npz", sizes=packed.sizes, kept=packed.kept, failures=np.array(failures))


def _check_room(cache: Path, size: int) -> None:
    free = shutil.disk_usage(cache).free
    if free < size:
        raise DataError(
            f"decoding needs {size / 1e9:.1f} GB in {cache}, which has {free / 1e9:.1f} GB free; "
            "set XDG_CACHE_HOME to a larger disk, or give a smaller image size"
        )


def _reserve(path: Path) -> None:
    """Claim the disk space now: running out of it later, inside a memory map, would kill the process."""
    if hasattr(os, "posix_fallocate"):
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
