"""Unpack tar and zip files that may be hostile: all of it, inside the destination, within limits; or nothing.

Only plain files and folders are unpacked. Links, devices, absolute paths, `..`, names that clash and sizes beyond
the cap refuse the whole archive. Owners, permissions and times stored in the archive are not taken over.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import stat
import struct
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

from maskcon._utils.errors import CorruptFileError, DataError, MaskconError
from maskcon._utils.files import write_all
from maskcon._utils.locks import one_at_a_time
from maskcon.data.cache import write_aside

MAX_BYTES = 1 << 30
MAX_MEMBERS = 100_000
MAX_DEPTH = 32
MAX_NAME_BYTES = 255  # of one component: what common file systems hold
BLOCK_BYTES = 1 << 20
ZIP_ENCRYPTED = 0x1
ZIP_MAGIC = (b"PK\x03\x04", b"PK\x05\x06")  # a first member, or none

_FORMAT_ERRORS = (
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError),
    OSError,  # bz2 and gzip raise it for damaged data
    NotImplementedError,  # zip compression that the standard library lacks
    *(ValueError, OverflowError, RecursionError),
)


class _RefusedError(Exception):
    """What is wrong with an archive."""


class _Member(NamedTuple):
    name: str
    source: IO[bytes] | None  # None: a folder
    size: int = 0


def extract(
    archive: Path,
    destination: Path,
    *,
    inside: str | None = None,
    max_bytes: int = MAX_BYTES,
    max_members: int = MAX_MEMBERS,
) -> Path:
    """Unpack a .tar(.gz|.bz2|.xz) or .zip into the new folder `destination`.

    The folder appears in one piece, by a rename, after everything has been read and checked.

    Args:
        inside: take only what lies below this top folder of the archive, and leave its name off.
        max_bytes: limit on the unpacked size.
        max_members: limit on the number of files and folders.

    Returns:
        The destination.
    """
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        with one_at_a_time(destination.parent) as alone:
            if destination.exists():
                raise DataError(f"{destination} exists already; delete it to unpack {archive.name} again")
            write_aside(
                destination,
                lambda folder: _unpack(archive, folder, inside, max_bytes, max_members),
                prefix=f".{destination.name}-unpacking-",
                sweep=alone,
            )
    except OSError as error:
        raise DataError(f"cannot write to {destination.parent}: {error.strerror or error}") from error
    return destination


def _unpack(archive: Path, folder: Path, inside: str | None, max_bytes: int, max_members: int) -> None:
    try:
        file = archive.open("rb")
    except OSError as error:
        raise DataError(f"cannot read {archive}: {error.strerror or error}") from error
    with file:
        # by its first bytes: a tar file whose last member is a zip file would pass for one by its end
        is_zip = file.read(4) in ZIP_MAGIC
        file.seek(0)
        members = _zip_members(file) if is_zip else _tar_members(file, max_bytes + 4096 * max_members)
        try:
            if not _write_members(members, folder, inside, max_bytes, max_members):
                raise _RefusedError("it holds no file" + ("" if inside is None else f" below {inside!r}"))
        except _RefusedError as error:
            raise CorruptFileError(f"{archive}: {error}; nothing was unpacked") from error
        except MaskconError:  # a full disk, for example
            raise
        except _FORMAT_ERRORS as error:
            why = f"damaged or not an archive ({error or type(error).__name__})"
            raise CorruptFileError(f"{archive}: {why}; nothing was unpacked") from error


def _tar_members(file: IO[bytes], limit: int) -> Iterator[_Member]:
    # the cap lies on the unpacked stream, so that headers which claim gigabytes stop there as well
    limited = _LimitedReader(_decompressed(file), limit)
    with tarfile.open(fileobj=limited, mode="r|") as tar:
        for member in tar:
            if member.isdir():
                yield _Member(member.name, None)
            elif member.type in (tarfile.REGTYPE, tarfile.AREGTYPE):
                yield _Member(member.name, tar.extractfile(member), member.size)
            else:
                raise _RefusedError(f"{member.name!r} is a link, a device or another special file")
    while limited.read(BLOCK_BYTES):  # to the very end, where the checksum of the compressed data is
        pass


def _zip_members(file: IO[bytes]) -> Iterator[_Member]:
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            name = member.orig_filename  # zipfile cuts `filename` at a NUL
            kind = stat.S_IFMT(member.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise _RefusedError(f"{name!r} is a link, a device or another special file")
            if member.flag_bits & ZIP_ENCRYPTED:
                raise _RefusedError(f"{name!r} is encrypted")
            if name.endswith("/") or kind == stat.S_IFDIR:
                yield _Member(name, None)
            else:
                with archive.open(member) as source:
                    yield _Member(name, source, member.file_size)


def _write_members(
    members: Iterator[_Member], folder: Path, inside: str | None, max_bytes: int, max_members: int
) -> int:
    """Check and write the members; return the number of files."""
    seen: set[str] = set()
    files = written = 0
    for name, source, size in members:
        parts = _checked_parts(name)
        if len(seen) >= max_members:
            raise _RefusedError(f"more than {max_members} members")
        # names that some file system takes for one another clash as well
        key = unicodedata.normalize("NFC", "/".join(parts)).casefold()
        if source is not None and (key in seen or not parts):
            raise _RefusedError(
                f"the name {name!r} occurs twice" if parts else f"a file with the name {name!r}"
            )
        seen.add(key)
        if written + size > max_bytes:
            raise _RefusedError(f"more than {max_bytes} bytes once unpacked, at {name!r}")
        if inside is not None:
            if parts[:1] != [inside]:
                continue
            parts = parts[1:]
        written += size
        target = folder.joinpath(*parts)
        try:
            if source is None:
                target.mkdir(parents=True, exist_ok=True)
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            out = target.open("xb", buffering=0)
        except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
            raise _RefusedError(f"{name!r} lies below a file, or is a folder already") from error
        except OSError as error:
            raise DataError(f"cannot create {target}: {error.strerror or error}") from error
        with out:
            _copy(source, out)
        files += 1
    return files


def _copy(source: IO[bytes], out: io.FileIO) -> None:
    """Copy a member; its reader refuses a wrong size or checksum."""
    while block := source.read(BLOCK_BYTES):
        try:
            write_all(out, block)
        except OSError as error:
            raise DataError(f"cannot write {out.name!s}: {error.strerror or error}") from error


def _checked_parts(name: str) -> list[str]:
    """Split a relative, harmless name; "." and empty components are left out."""
    if "\\" in name or ":" in name or any(ord(letter) < 32 or ord(letter) == 127 for letter in name):
        raise _RefusedError(f"the name {name!r} has a control character, a backslash or a colon")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts:
        raise _RefusedError(f"the name {name!r} points outside the archive")
    if len(parts) > MAX_DEPTH or any(len(os.fsencode(part)) > MAX_NAME_BYTES for part in parts):
        raise _RefusedError(f"the name {name[:80]!r} is too long or too deep")
    return parts


def _decompressed(file: IO[bytes]) -> IO[bytes]:
    magic = file.read(6)
    file.seek(0)
    if magic[:2] == b"\x1f\x8b":
        return gzip.GzipFile(fileobj=file)  # type: ignore[return-value]
    if magic[:3] == b"BZh":
        return bz2.BZ2File(file)
    return lzma.LZMAFile(file) if magic == b"\xfd7zXZ\x00" else file


class _LimitedReader(io.RawIOBase):
    """A stream that refuses to yield more than a number of bytes."""

    def __init__(self, source: IO[bytes], limit: int) -> None:
        self.source, self.left = source, limit

    def read(self, size: int = -1) -> bytes:
        data = self.source.read(size if 0 <= size <= self.left else self.left + 1)
        self.left -= len(data)
        if self.left < 0:
            raise ValueError("larger than the limit once unpacked")
        return data
