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
import shutil
import stat
import struct
import tarfile
import tempfile
import unicodedata
import zipfile
import zlib
from pathlib import Path
from typing import IO

from maskcon._utils.errors import CorruptFileError, DataError, MaskconError
from maskcon._utils.files import write_all
from maskcon._utils.locks import one_at_a_time

MAX_BYTES = 1 << 30
MAX_MEMBERS = 100_000
MAX_DEPTH = 32
MAX_NAME_BYTES = 255  # of one component: what common file systems hold
BLOCK_BYTES = 1 << 20
ZIP_ENCRYPTED = 0x1
ZIP_MAGIC = (b"PK\x03\x04", b"PK\x05\x06")  # a first member, or none

_FORMAT_ERRORS = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    OSError,  # bz2 and gzip say so of damaged data
    ValueError,
    OverflowError,
    NotImplementedError,  # zip compression that the standard library lacks
    RecursionError,
)


def extract(
    archive: Path,
    destination: Path,
    *,
    inside: str | None = None,
    max_bytes: int = MAX_BYTES,
    max_members: int = MAX_MEMBERS,
) -> Path:
    """Unpack a .tar(.gz|.bz2|.xz) or .zip into the new folder `destination`, and return it.

    inside: take only what lies below this top folder of the archive, and leave its name off.
    The folder appears in one piece, by a rename, after everything has been read and checked.
    """
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        with one_at_a_time(destination.parent) as alone:
            if destination.exists():
                raise DataError(f"{destination} exists already; delete it to unpack {archive.name} again")
            scratch = _scratch_for(destination, sweep=alone)
            try:
                _Unpacker(archive, scratch, inside, max_bytes, max_members).run()
                _publish(scratch, destination)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
    except OSError as error:
        raise DataError(f"cannot write to {destination.parent}: {error.strerror or error}") from error
    return destination


def _scratch_for(destination: Path, *, sweep: bool) -> Path:
    """A new folder beside the destination. sweep: delete those that killed processes left there."""
    prefix = f".{destination.name}-unpacking-"
    if sweep:
        for left in destination.parent.iterdir():
            if left.name.startswith(prefix):
                shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=prefix, dir=destination.parent))


def _publish(scratch: Path, destination: Path) -> None:
    scratch.chmod(0o755)  # mkdtemp made it private
    try:
        scratch.rename(destination)
    except OSError as error:
        if not destination.is_dir():  # else another process, where folders cannot be locked, was faster
            raise DataError(f"cannot create {destination}: {error.strerror or error}") from error


class _Unpacker:
    def __init__(
        self, archive: Path, folder: Path, inside: str | None, max_bytes: int, max_members: int
    ) -> None:
        self.archive = archive
        self.folder = folder
        self.inside = inside
        self.max_bytes = max_bytes
        self.max_members = max_members
        self.bytes_written = 0
        self.files_written = 0
        self.seen: set[str] = set()

    def run(self) -> None:
        try:
            file = self.archive.open("rb")
        except OSError as error:
            raise DataError(f"cannot read {self.archive}: {error.strerror or error}") from error
        with file:
            try:
                # by its first bytes: a tar file whose last member is a zip file would pass for one by its end
                is_zip = file.read(4) in ZIP_MAGIC
                file.seek(0)
                if is_zip:
                    self._unpack_zip(file)
                else:
                    self._unpack_tar(file)
            except MaskconError:
                raise
            except _FORMAT_ERRORS as error:
                raise self._refused(f"damaged or not an archive ({error or type(error).__name__})") from error
        if not self.files_written:
            where = "" if self.inside is None else f" below {self.inside!r}"
            raise self._refused(f"it holds no file{where}")

    def _unpack_tar(self, file: IO[bytes]) -> None:
        # the cap lies on the unpacked stream, so that headers which claim gigabytes stop there as well
        limited = _LimitedReader(_decompressed(file), self.max_bytes + 4096 * self.max_members)
        with tarfile.open(fileobj=limited, mode="r|") as tar:
            for member in tar:
                if member.isdir():
                    self._take_folder(member.name)
                elif member.type in (tarfile.REGTYPE, tarfile.AREGTYPE):
                    source = tar.extractfile(member)
                    if source is None:
                        raise self._refused(f"{member.name!r} cannot be read")
                    self._take_file(member.name, source, member.size)
                else:
                    raise self._refused(f"{member.name!r} is a link, a device or another special file")
        while limited.read(BLOCK_BYTES):  # to the very end, where the checksum of the compressed data is
            pass

    def _unpack_zip(self, file: IO[bytes]) -> None:
        with zipfile.ZipFile(file) as archive:
            for member in archive.infolist():
                name = member.orig_filename  # zipfile cuts `filename` at a NUL
                kind = stat.S_IFMT(member.external_attr >> 16)
                if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                    raise self._refused(f"{name!r} is a link, a device or another special file")
                if member.flag_bits & ZIP_ENCRYPTED:
                    raise self._refused(f"{name!r} is encrypted")
                if name.endswith("/") or kind == stat.S_IFDIR:
                    self._take_folder(name)
                else:
                    with archive.open(member) as source:
                        self._take_file(name, source, member.file_size)

    def _take_folder(self, name: str) -> None:
        parts = self._checked_parts(name)
        self._count(parts, folder=True)
        target = self._target(parts)
        if target is not None:
            self._make_folder(target, name)

    def _take_file(self, name: str, source: IO[bytes], size: int) -> None:
        parts = self._checked_parts(name)
        self._count(parts, folder=False)
        if not parts:
            raise self._refused(f"a file with the empty name {name!r}")
        target = self._target(parts)
        if self.bytes_written + size > self.max_bytes:
            raise self._refused(f"more than {self.max_bytes} bytes once unpacked, at {name!r}")
        if target is None:
            return
        self._make_folder(target.parent, name)
        written = 0
        with _create(target, name, self) as out:
            while block := source.read(BLOCK_BYTES):
                written += len(block)
                self.bytes_written += len(block)
                if self.bytes_written > self.max_bytes:  # the size in the header was a lie
                    raise self._refused(f"more than {self.max_bytes} bytes once unpacked, at {name!r}")
                _write(out, block, target)
        if written != size:
            raise self._refused(f"{name!r} has {written} bytes instead of {size}")
        self.files_written += 1

    def _checked_parts(self, name: str) -> list[str]:
        """The components of a relative, harmless name; "." and empty components left out."""
        if "\\" in name or ":" in name or any(ord(letter) < 32 or ord(letter) == 127 for letter in name):
            raise self._refused(f"the name {name!r} has a control character, a backslash or a colon")
        parts = [part for part in name.split("/") if part not in ("", ".")]
        if name.startswith("/") or ".." in parts:
            raise self._refused(f"the name {name!r} points outside the archive")
        if len(parts) > MAX_DEPTH or any(len(os.fsencode(part)) > MAX_NAME_BYTES for part in parts):
            raise self._refused(f"the name {name[:80]!r} is too long or too deep")
        return parts

    def _count(self, parts: list[str], *, folder: bool) -> None:
        if len(self.seen) >= self.max_members:
            raise self._refused(f"more than {self.max_members} members")
        # names that some file system takes for one another clash as well
        key = unicodedata.normalize("NFC", "/".join(parts)).casefold()
        if key in self.seen and not folder:
            raise self._refused(f"the name {'/'.join(parts)!r} occurs twice")
        self.seen.add(key)

    def _target(self, parts: list[str]) -> Path | None:
        if self.inside is not None:
            if parts[:1] != [self.inside]:
                return None
            parts = parts[1:]
        return self.folder.joinpath(*parts)

    def _make_folder(self, folder: Path, name: str) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise self._refused(f"{name!r} lies below a file") from error
        except OSError as error:
            raise DataError(f"cannot create {folder}: {error.strerror or error}") from error

    def _refused(self, why: str) -> CorruptFileError:
        return CorruptFileError(f"{self.archive}: {why}; nothing was unpacked")


def _create(target: Path, name: str, unpacker: _Unpacker) -> io.FileIO:
    try:
        return target.open("xb", buffering=0)
    except (FileExistsError, IsADirectoryError) as error:
        raise unpacker._refused(f"the name {name!r} occurs twice") from error
    except OSError as error:
        raise DataError(f"cannot write {target}: {error.strerror or error}") from error


def _write(out: io.FileIO, block: bytes, target: Path) -> None:
    try:
        write_all(out, block)
    except OSError as error:
        raise DataError(f"cannot write {target}: {error.strerror or error}") from error


def _decompressed(file: IO[bytes]) -> IO[bytes]:
    magic = file.read(6)
    file.seek(0)
    if magic[:2] == b"\x1f\x8b":
        return gzip.GzipFile(fileobj=file)  # type: ignore[return-value]
    if magic[:3] == b"BZh":
        return bz2.BZ2File(file)
    if magic == b"\xfd7zXZ\x00":
        return lzma.LZMAFile(file)
    return file


class _LimitedReader(io.RawIOBase):
    """A stream that refuses to yield more than a number of bytes."""

    def __init__(self, source: IO[bytes], limit: int) -> None:
        self.source = source
        self.left = limit

    def read(self, size: int = -1) -> bytes:
        data = self.source.read(size if 0 <= size <= self.left else self.left + 1)
        self.left -= len(data)
        if self.left < 0:
            raise ValueError("larger than the limit once unpacked")
        return data
