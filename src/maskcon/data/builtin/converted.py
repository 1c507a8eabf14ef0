"""Pickled batches of small pictures, converted once into memory-mapped arrays: complete and checked, or not there.

A conversion is a folder in the cache with the pixels and labels of both parts and a manifest. It is written under
another name, synced and renamed, so a kill or a full disk leaves no half of it; what a killed one wrote is removed by
the next. Its name holds a fingerprint of the source files: when they change, they are converted anew and the old
conversion goes.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.download import Progress, file_digest
from maskcon._utils.errors import CorruptFileError, DataError
from maskcon._utils.files import sync_folder, write_synced
from maskcon._utils.locks import one_at_a_time
from maskcon.data.builtin.batch_files import (
    LABEL_DTYPE,
    PICTURE_BYTES,
    PICTURE_SHAPE,
    Batches,
    PartWriter,
    opened,
)
from maskcon.data.cache_folder import files_key, place_key

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
    """Read every picture converted into this folder and compare with the checksums of the manifest."""
    for part, facts in _manifest(folder)["parts"].items():
        path = folder / f"{part}.images"
        if file_digest(path, "sha256") != facts["images_sha256"]:
            raise CorruptFileError(f"{path} does not match its checksum; delete {folder}, it is made anew")


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
    """The conversion in this folder; None if it is not there or damaged, in which case it is made anew."""
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
        images.stat().st_size != count * PICTURE_BYTES
        or file_digest(labels, "sha256") != facts["labels_sha256"]
    ):
        raise ValueError(f"{part} is damaged")
    return ConvertedPart(
        np.memmap(images, dtype=np.uint8, mode="r", shape=(count, *PICTURE_SHAPE)),
        np.fromfile(labels, dtype=LABEL_DTYPE).astype(np.int64),
    )


def _remove_old(cache: Path, prefix: str, *, partial: bool) -> None:
    """Older or damaged conversions of this root; what a killed one left only if nobody can be writing it."""
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
    _check_space(cache, sources)
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
        sync_folder(scratch)
        try:
            scratch.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process, without a lock, was faster: its work is used
                raise
        sync_folder(cache)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _check_space(cache: Path, sources: Sequence[Batches]) -> None:
    sizes = [
        (sum(path.stat().st_size for path in source.stamped_files()), source.is_archive) for source in sources
    ]
    needed = sum(size * ARCHIVE_SPACE if is_archive else size for size, is_archive in sizes)
    free = shutil.disk_usage(cache).free
    if free < needed:
        raise DataError(
            f"converting needs about {needed / 1e9:.1f} GB in {cache}, which has {free / 1e9:.1f} GB free; "
            "set XDG_CACHE_HOME to a larger disk"
        )
