"""Write folders of the cache and of the data folder aside, then rename them."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from maskcon._utils.errors import DataError
from maskcon._utils.files import make_folder, one_at_a_time, sync_folder
from maskcon._utils.paths import cache_root

SCRATCH = "packing-"  # prefix of incomplete folders
Result = TypeVar("Result")


def cached_folder(
    locate: Callable[[], Path], read: Callable[[Path], Result | None], write: Callable[[Path], None]
) -> Result:
    """Read a folder of the cache; write it first if it is absent or damaged.

    It is written under another name, synced and renamed, so that neither a kill nor a full disk leaves a partial
    folder; the next writer removes what a killed one left. Of several processes, one writes and the others wait.

    Args:
        locate: returns the folder's path; its name ends in a hyphen and a fingerprint of the source files. Folders
            whose names differ only in the fingerprint are replaced.
        read: returns the content, or None for an absent or damaged folder.
        write: fills the folder; raises to refuse the files.
    """
    target = locate()
    cache = target.parent
    try:
        make_folder(cache)
        with one_at_a_time(cache) as alone:
            found = read(target)  # another process may have written it while this one waited
            if found is None:
                delete_starting(cache, f"{target.name.rpartition('-')[0]}-")  # older or damaged

                def write_unchanged(folder: Path) -> None:
                    write(folder)
                    if locate() != target:
                        raise DataError("the source files changed while they were read; try again")

                write_aside(target, write_unchanged, prefix=SCRATCH, sweep=alone)
                found = read(target)
    except OSError as error:
        raise DataError(
            f"cannot keep the decoded images in {cache}: {error.strerror or error}; "
            "set XDG_CACHE_HOME to a disk that has room"
        ) from error
    if found is None:
        raise DataError(f"the decoded images in {target} cannot be read back; delete them and try again")
    return found


def write_aside(target: Path, write: Callable[[Path], None], *, prefix: str, sweep: bool) -> None:
    """Fill a new folder under another name and rename it to `target` when complete.

    prefix: of the temporary name
    sweep: delete what killed processes left; only if no other process can be writing there
    """
    if sweep:
        delete_starting(target.parent, prefix)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=target.parent) as scratch:
        complete = Path(scratch) / "complete"  # readable by everyone, unlike the temporary folder around it
        complete.mkdir()
        write(complete)
        _publish(complete, target)


def _publish(folder: Path, target: Path) -> None:
    sync_folder(folder)
    try:
        folder.rename(target)
    except OSError:
        if not target.is_dir():  # else another process was faster, where folders cannot be locked
            raise
    sync_folder(target.parent)


def delete_starting(folder: Path, prefix: str) -> None:
    """Delete the sub-folders whose names start with `prefix`."""
    for path in folder.iterdir():
        if path.name.startswith(prefix):
            shutil.rmtree(path, ignore_errors=True)  # Windows does not remove files in use


def check_space(folder: Path, size_bytes: float, work: str, advice: str = "") -> None:
    """Refuse work that needs more space in the cache than is free."""
    free = shutil.disk_usage(folder).free
    if free < size_bytes:
        raise DataError(
            f"{work} needs about {size_bytes / 1e9:.1f} GB in {cache_root()}, which has {free / 1e9:.1f} GB free; "
            f"set XDG_CACHE_HOME to a larger disk{advice}"
        )


def place_key(folder: Path) -> str:
    """Hash the location of a folder."""
    return hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:12]


def files_key(root: Path, paths: Sequence[str], salt: str) -> str:
    """Hash the names, sizes and times of files."""
    digest = hashlib.sha256(salt.encode())
    for path in paths:
        try:
            status = (root / path).stat()
            stamp = f"{status.st_size};{status.st_mtime_ns}"
        except OSError:  # opening it gives the reason
            stamp = "none"
        digest.update(os.fsencode(path) + f"\0{stamp};".encode())
    return digest.hexdigest()[:20]
