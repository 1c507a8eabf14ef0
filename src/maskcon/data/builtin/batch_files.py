"""Batches of 32x32 images in pickled dictionaries: read, checked, and converted into memory-mapped arrays.

A conversion is a folder in the cache with the pixels and labels of both parts and a manifest. It is written under
another name, synced and renamed, so that neither a kill nor a full disk leaves a partial one; the next conversion
removes what a killed one wrote. Its name holds a fingerprint of the source files: when they change, they are converted
again and the old conversion is deleted.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.download import Progress, file_digest
from maskcon._utils.errors import CorruptFileError, DataError
from maskcon._utils.files import sync_file, write_synced
from maskcon._utils.locks import one_at_a_time
from maskcon.data.archive import extract
from maskcon.data.packing import check_space, files_key, place_key, publish
from maskcon.data.safe_pickle import load_pickle

IMAGE_SHAPE = (3, 32, 32)
IMAGE_BYTES = 3 * 32 * 32
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
        """List the files whose size and time are fingerprinted."""
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
        labels = np.concatenate(self.labels).tobytes()  # 2 bytes an image
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
    return np.ascontiguousarray(pixels), labels.astype(LABEL_DTYPE)


def checked_pixels(path: Path, batch: Mapping[str, Any]) -> NDArray[np.uint8]:
    """The images of a batch, [N, 3072] with N > 0; path is for the message."""
    pixels = batch.get("data")
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[1:] != (IMAGE_BYTES,):
        got = f"{pixels.dtype} {pixels.shape}" if isinstance(pixels, np.ndarray) else type(pixels).__name__
        raise CorruptFileError(
            f"{path}: 'data' should be bytes [N, {IMAGE_BYTES}] (32x32 images), got {got}; nothing was used"
        )
    if not len(pixels):
        raise CorruptFileError(f"{path}: 'data' holds no image; nothing was used")
    return pixels


def checked_labels(
    path: Path, batch: Mapping[str, Any], key: str, count: int, allowed: range
) -> NDArray[np.int64]:
    """The labels of a batch under this key, one for each of its images."""
    labels = batch.get(key)
    if (
        not isinstance(labels, list)
        or len(labels) != count
        or any(type(label) is not int for label in labels)
    ):
        raise CorruptFileError(f"{path}: {key!r} should be a list of {count} whole numbers; nothing was used")
    if any(label not in allowed for label in labels):
        raise CorruptFileError(f"{path}: {key!r} should lie in {allowed[0]}..{allowed[-1]}; nothing was used")
    return np.array(labels, dtype=np.int64)


FORMAT_VERSION = 1
MANIFEST = "manifest.json"
ARCHIVE_SPACE = 2.4  # unpacked and converted, against the zip: photographs hardly shrink


@dataclass(frozen=True)
class ConvertedPart:
    """images: [N, 3, 32, 32], a read-only memory map; labels: [N] as in the files, from 1."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]


@dataclass(frozen=True)
class Converted:
    """Both parts, and the md5 of every batch file that they were made of."""

    folder: Path
    parts: dict[str, ConvertedPart]
    md5: dict[str, str]


def convert_once(
    name: str,
    root: Path,
    sources: Sequence[Batches],
    cache: Path,
    *,
    class_count: int,
    check_md5: Callable[[Mapping[str, str]], None],
    progress: Progress | None = None,
) -> Converted:
    """The conversion of these files, made now if there is none yet.

    check_md5 gets the md5 of every batch file before anything is published, and raises to refuse them;
    progress is called with the batch files done and in all.
    """
    family = f"{name}-{place_key(root)}"
    folder = cache / f"{family}-{_fingerprint(sources)}"
    found = _open(folder)
    if found is not None:
        return found
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with one_at_a_time(cache) as alone:
            found = _open(folder)  # another process may have made it while this one waited
            if found is None:
                _remove_old(cache, f"{family}-", partial=alone)
                _make(folder, f"{family}-partial-", sources, class_count, check_md5, progress)
                found = _open(folder)
    except OSError as error:
        raise DataError(
            f"cannot keep the converted images in {cache}: {error.strerror or error}; "
            "set XDG_CACHE_HOME to a disk that has room"
        ) from error
    if found is None:
        raise DataError(f"the converted images in {folder} cannot be read back; delete them and try again")
    return found


def check_converted(folder: Path) -> None:
    """Read every image converted into this folder and compare with the checksums of the manifest."""
    for part, facts in _manifest(folder)["parts"].items():
        path = folder / f"{part}.images"
        if file_digest(path, "sha256") != facts["images_sha256"]:
            raise CorruptFileError(f"{path} does not match its checksum; delete {folder}, it is made again")


def _fingerprint(sources: Sequence[Batches]) -> str:
    """Changes when a source file is replaced, touched or moved."""
    paths = [str(path.resolve()) for source in sources for path in source.stamped_files()]
    return files_key(Path(), paths, f"{FORMAT_VERSION};")


def _manifest(folder: Path) -> dict[str, Any]:
    found = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    if not isinstance(found, dict) or found.get("format") != FORMAT_VERSION:
        raise ValueError(f"not a manifest of format {FORMAT_VERSION}")
    return found


def _open(folder: Path) -> Converted | None:
    """The conversion in this folder; None if it is not there or damaged, in which case it is made again."""
    try:
        manifest = _manifest(folder)
        parts = {part: _open_part(folder, part, facts) for part, facts in manifest["parts"].items()}
        return Converted(folder, parts, dict(manifest["md5"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _open_part(folder: Path, part: str, facts: Mapping[str, Any]) -> ConvertedPart:
    count = int(facts["count"])
    images, labels = folder / f"{part}.images", folder / f"{part}.labels"
    # the pixels are checked by size only: hashing gigabytes at every start would cost more than the conversion saves
    if (
        images.stat().st_size != count * IMAGE_BYTES
        or file_digest(labels, "sha256") != facts["labels_sha256"]
    ):
        raise ValueError(f"{part} is damaged")
    return ConvertedPart(
        np.memmap(images, dtype=np.uint8, mode="r", shape=(count, *IMAGE_SHAPE)),
        np.fromfile(labels, dtype=LABEL_DTYPE).astype(np.int64),
    )


def _remove_old(cache: Path, prefix: str, *, partial: bool) -> None:
    """Older or damaged conversions of this root; what a killed one left only if no other process can be writing it."""
    for path in cache.glob(f"{prefix}*"):
        if partial or not path.name.startswith(f"{prefix}partial-"):
            shutil.rmtree(path, ignore_errors=True)


def _make(
    folder: Path,
    prefix: str,
    sources: Sequence[Batches],
    class_count: int,
    check_md5: Callable[[Mapping[str, str]], None],
    progress: Progress | None,
) -> None:
    cache = folder.parent
    sizes = [
        (sum(path.stat().st_size for path in source.stamped_files()), source.is_archive) for source in sources
    ]
    check_space(cache, sum(size * (ARCHIVE_SPACE if zipped else 1) for size, zipped in sizes), "converting")
    before = _fingerprint(sources)
    batch_count = sum(len(source.names) for source in sources)
    scratch = Path(tempfile.mkdtemp(prefix=prefix, dir=cache))
    try:
        md5: dict[str, str] = {}
        parts = {}
        for source in sources:
            with opened(source, scratch) as files, PartWriter(scratch, source.part, class_count) as writer:
                for path in files:
                    md5[path.name] = writer.add(path)
                    if progress is not None:
                        progress(len(md5), batch_count)
                parts[source.part] = writer.facts()
        check_md5(md5)
        if _fingerprint(sources) != before:
            raise DataError("the source files changed while they were converted; try again")
        manifest = json.dumps({"format": FORMAT_VERSION, "parts": parts, "md5": md5}, indent=1)
        write_synced(scratch / MANIFEST, manifest.encode())
        scratch.chmod(0o755)  # mkdtemp made it private
        publish(scratch, folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
