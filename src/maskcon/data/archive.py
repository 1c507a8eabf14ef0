"""Unpack .tar.gz and .zip files that may be hostile: within limits, or nothing.

Only plain files and folders are unpacked. Links, devices, absolute paths, `..`, names that clash and sizes beyond
the cap refuse the whole archive. Owners, permissions and times stored in the archive are ignored.
"""

from __future__ import annotations

import gzip
import io
import os
import shutil
import stat
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from maskcon._utils.errors import CorruptFileError, DataError
from maskcon._utils.files import one_at_a_time
from maskcon._utils.paths import check_regular
from maskcon.data.cache import write_aside

MAX_BYTES = 1 << 30
MAX_MEMBERS = 100_000
MAX_DEPTH = 32
MAX_NAME_BYTES = 255  # of one component: what common file systems hold
BLOCK_BYTES = 1 << 20
ZIP_ENCRYPTED = 0x1
ZIP_MAGIC = b"PK"
REGULAR = (0, stat.S_IFREG, stat.S_IFDIR)  # 0: not stated

Member = tuple[str, int, IO[bytes] | None]  # name, size, content; None: a folder

_DAMAGE = (
    *(tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError),
    *(NotImplementedError, ValueError, OverflowError, RecursionError),
)


class _RefusedError(Exception):
    """What is wrong with an archive."""


def extract(
    archive: Path,
    destination: Path,
    *,
    inside: str,
    max_bytes: int = MAX_BYTES,
    max_members: int = MAX_MEMBERS,
) -> None:
    """Unpack a .tar.gz or .zip into the new folder `destination`.

    The folder appears by a rename, after everything has been read and checked.

    Args:
        inside: unpack only what lies below this top folder of the archive, without its name.
        max_bytes: limit on the unpacked size.
        max_members: limit on the number of files and folders.
    """
    try:
        check_regular(archive)
        destination.parent.mkdir(parents=True, exist_ok=True)
        with archive.open("rb") as file, one_at_a_time(destination.parent) as alone:
            if destination.exists():
                raise DataError(f"{destination} exists already; delete it to unpack {archive.name} again")
            # by its first bytes: zip files are recognised by their end, which a tar file with a zip inside has too
            is_zip = file.read(2) == ZIP_MAGIC
            file.seek(0)
            members = _zip_members(file) if is_zip else _tar_members(file, max_bytes + 4096 * max_members)
            write_aside(
                destination,
                lambda folder: _write_members(members, folder, inside, max_bytes, max_members),
                prefix=f".{destination.name}-unpacking-",
                sweep=alone,
            )
    except _RefusedError as error:
        raise CorruptFileError(f"{archive}: {error}; nothing was unpacked") from error
    except DataError:
        raise
    except _DAMAGE as error:
        why = f"damaged or not an archive ({error or type(error).__name__})"
        raise CorruptFileError(f"{archive}: {why}; nothing was unpacked") from error
    except OSError as error:
        raise DataError(f"cannot unpack {archive} to {destination}: {error.strerror or error}") from error


def _tar_members(file: IO[bytes], limit: int) -> Iterator[Member]:
    # limits the unpacked stream, so that headers that claim gigabytes are stopped too
    limited = _LimitedReader(gzip.GzipFile(fileobj=file), limit)
    with tarfile.open(fileobj=limited, mode="r|") as tar:
        for member in tar:
            if not member.isdir() and member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
                raise _RefusedError(f"{member.name!r} is a link, a device or another special file")
            yield member.name, member.size, tar.extractfile(member)
    while limited.read(BLOCK_BYTES):  # to the end, where the checksum of the compressed data is
        pass


def _zip_members(file: IO[bytes]) -> Iterator[Member]:
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            name = member.orig_filename  # zipfile cuts `filename` at a NUL
            kind = stat.S_IFMT(member.external_attr >> 16)
            if kind not in REGULAR or member.flag_bits & ZIP_ENCRYPTED:
                raise _RefusedError(f"{name!r} is encrypted, a link, a device or another special file")
            if name.endswith("/") or kind == stat.S_IFDIR:
                yield name, 0, None
            else:
                with archive.open(member) as content:
                    yield name, member.file_size, content


def _write_members(
    members: Iterator[Member], folder: Path, inside: str, max_bytes: int, max_members: int
) -> None:
    """Check and write the members below `inside`."""
    seen: set[str] = set()
    written = 0
    for name, size, content in members:
        parts = _checked_parts(name)
        # names that are equal on some file systems clash too
        key = unicodedata.normalize("NFC", "/".join(parts)).casefold()
        if content is not None and (key in seen or not parts):
            raise _RefusedError(f"the name {name!r} is empty or occurs twice")
        seen.add(key)
        written += size
        if len(seen) > max_members or written > max_bytes:
            raise _RefusedError(f"more than {max_members} members or {max_bytes} bytes, at {name!r}")
        if parts[:1] != [inside]:
            continue
        target = folder.joinpath(*parts[1:])
        try:
            if content is None:
                target.mkdir(parents=True, exist_ok=True)
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as out:
                shutil.copyfileobj(content, out)  # the reader refuses a wrong size or checksum
        except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
            raise _RefusedError(f"{name!r} lies below a file, or is a folder already") from error
    if not any(path.is_file() for path in folder.rglob("*")):
        raise _RefusedError(f"it holds no file below {inside!r}")


def _checked_parts(name: str) -> list[str]:
    """Split a relative, harmless name; "." and empty components are left out."""
    if "\\" in name or ":" in name or not name.isprintable():
        raise _RefusedError(f"the name {name!r} has a control character, a backslash or a colon")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts:
        raise _RefusedError(f"the name {name!r} points outside the archive")
    if len(parts) > MAX_DEPTH or any(len(os.fsencode(part)) > MAX_NAME_BYTES for part in parts):
        raise _RefusedError(f"the name {name[:80]!r} is too long or too deep")
    return parts


class _LimitedReader(io.RawIOBase):
    """A stream that raises `ValueError` beyond a number of bytes."""

    def __init__(self, source: IO[bytes] | gzip.GzipFile, limit: int) -> None:
        self.source, self.left = source, limit

    def read(self, size: int = -1) -> bytes:
        data = self.source.read(size if 0 <= size <= self.left else self.left + 1)
        self.left -= len(data)
        if self.left < 0:
            raise ValueError("larger than the limit once unpacked")
        return data
