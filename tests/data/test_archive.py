from __future__ import annotations

import errno
import gzip
import io
import os
import stat
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from maskcon._utils.errors import CorruptFileError, DataError
from maskcon.data.archive import extract

Member = tuple[str, bytes]


def unpacked(archive: Path, out: Path) -> Path:
    """Unpack what lies in the archive's top folder `set`."""
    extract(archive, out, inside="set")
    return out


def tar_member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", size: int = 0) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.size = kind, link, size
    return member


def write_tar(path: Path, members: list[tuple[tarfile.TarInfo, bytes]], mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode, format=tarfile.PAX_FORMAT) as tar:  # type: ignore[call-overload]
        for member, content in members:
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def plain_tar(path: Path, *members: Member, mode: str = "w:gz") -> Path:
    return write_tar(path, [(tar_member(name), content) for name, content in members], mode)


def write_zip(path: Path, *members: tuple[str | zipfile.ZipInfo, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return path


def zip_special(name: str, mode: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    return info


def renamed_zip(path: Path, harmless: str, hostile: bytes) -> Path:
    """A zip with a name that the zipfile module would not write, of the same length."""
    assert len(harmless) == len(hostile)
    write_zip(path, (harmless, b"bad"))
    path.write_bytes(path.read_bytes().replace(harmless.encode(), hostile))
    return path


def lying_zip(path: Path) -> Path:
    """10 MB of zeros whose directory entry claims 10 bytes."""
    write_zip(path, ("zeros", bytes(10_000_000)))
    data = path.read_bytes()
    path.write_bytes(data.replace((10_000_000).to_bytes(4, "little"), (10).to_bytes(4, "little")))
    return path


def pax_bomb(path: Path) -> Path:
    """A header that claims two gigabytes of further header, well compressed."""
    header = tarfile.TarInfo("pax")
    header.type, header.size = tarfile.XHDTYPE, 2 << 30
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(header.tobuf(tarfile.USTAR_FORMAT))
        file.write(bytes(30 << 20))
    return path


GOOD: Member = ("set/good", b"fine")
HOSTILE: dict[str, Callable[[Path], Path]] = {
    "absolute path": lambda p: plain_tar(p, GOOD, ("/tmp/maskcon-escaped", b"bad")),
    "parent folder": lambda p: plain_tar(p, GOOD, ("../escaped", b"bad")),
    "parent folder inside": lambda p: plain_tar(p, GOOD, ("set/a/../../../escaped", b"bad")),
    "backslashes": lambda p: plain_tar(p, GOOD, ("set\\..\\..\\escaped", b"bad")),
    "drive letter": lambda p: plain_tar(p, GOOD, ("C:/escaped", b"bad")),
    "symlink": lambda p: write_tar(p, [(tar_member("set/link", tarfile.SYMTYPE, "/etc"), b"")]),
    "symlink, then through it": lambda p: write_tar(
        p, [(tar_member("set/link", tarfile.SYMTYPE, "../.."), b""), (tar_member("set/link/escaped"), b"bad")]
    ),
    "hardlink": lambda p: write_tar(p, [(tar_member("set/link", tarfile.LNKTYPE, "/etc/passwd"), b"")]),
    "character device": lambda p: write_tar(p, [(tar_member("set/zero", tarfile.CHRTYPE), b"")]),
    "block device": lambda p: write_tar(p, [(tar_member("set/disk", tarfile.BLKTYPE), b"")]),
    "pipe": lambda p: write_tar(p, [(tar_member("set/pipe", tarfile.FIFOTYPE), b"")]),
    "sparse file": lambda p: write_tar(p, [(tar_member("set/sparse", tarfile.GNUTYPE_SPARSE), b"")]),
    "size bomb": lambda p: plain_tar(p, GOOD, ("set/zeros", bytes(10_000_000))),
    "many small files": lambda p: plain_tar(p, *[(f"set/{number}", b"") for number in range(600)]),
    "header bomb": pax_bomb,
    "duplicate name": lambda p: plain_tar(p, ("set/a", b"1"), ("set/a", b"2")),
    "duplicate by case": lambda p: plain_tar(p, ("set/A", b"1"), ("set/a", b"2")),
    "duplicate by accent form": lambda p: plain_tar(p, ("set/\u00e9", b"1"), ("set/e\u0301", b"2")),
    "file below a file": lambda p: plain_tar(p, ("set/a", b"1"), ("set/a/b", b"2")),
    "file where a folder is": lambda p: plain_tar(p, ("set/a/b", b"1"), ("set/a", b"2")),
    "control character": lambda p: plain_tar(p, ("set/a\nb", b"1")),
    "NUL in a pax name": lambda p: write_tar(p, [(_with_pax_path("set/a\0b"), b"1")]),
    "long component": lambda p: plain_tar(p, ("set/" + "x" * 300, b"1")),
    "deep path": lambda p: plain_tar(p, ("set/" + "d/" * 60 + "x", b"1")),
    "truncated": lambda p: _cut(plain_tar(p, ("set/a", os.urandom(50_000)))),
    "wrong checksum": lambda p: _flip_stored(plain_tar(p, ("set/a", b"A" * 100), mode="w")),
    "folders only": lambda p: write_tar(p, [(tar_member("set/a", tarfile.DIRTYPE), b"")]),
    "not an archive": lambda p: _write(p, b"hello world" * 1000),
    "empty file": lambda p: _write(p, b""),
    "zip: parent folder": lambda p: write_zip(p, ("../escaped", b"bad")),
    "zip: absolute path": lambda p: write_zip(p, ("/tmp/maskcon-escaped", b"bad")),
    "zip: symlink": lambda p: write_zip(p, (zip_special("set/link", stat.S_IFLNK | 0o777), b"/etc/passwd")),
    "zip: device": lambda p: write_zip(p, (zip_special("set/dev", stat.S_IFCHR | 0o666), b"")),
    "zip: size bomb": lambda p: write_zip(p, ("set/zeros", bytes(10_000_000))),
    "zip: lying size": lying_zip,
    "zip: NUL in a name": lambda p: renamed_zip(p, "set/aXb", b"set/a\0b"),
    "zip: backslash": lambda p: renamed_zip(p, "set/..Xb", b"set/..\\b"),
    "zip: many members": lambda p: write_zip(p, *[(f"set/{number}", b"") for number in range(600)]),
    "zip: duplicate name": lambda p: renamed_zip_twice(p),
    "zip: wrong checksum": lambda p: _flip_content(write_zip(p, ("set/a", b"A" * 10))),
}


def renamed_zip_twice(path: Path) -> Path:
    write_zip(path, ("set/aa", b"1"), ("set/ab", b"2"))
    path.write_bytes(path.read_bytes().replace(b"set/ab", b"set/aa"))
    return path


def _with_pax_path(name: str) -> tarfile.TarInfo:
    member = tar_member("set/x")
    member.pax_headers = {"path": name}
    return member


def _cut(path: Path) -> Path:
    path.write_bytes(path.read_bytes()[:20_000])
    return path


def _write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def _flip_stored(path: Path) -> Path:
    """Gzipped without compression, so that one other byte still unpacks, and only the checksum tells."""
    data = bytearray(gzip.compress(path.read_bytes(), compresslevel=0))
    data[data.index(b"A" * 100) + 50] ^= 1
    path.write_bytes(data)
    return path


def _flip_content(path: Path) -> Path:
    data = bytearray(path.read_bytes())
    data[30 + len("set/a")] ^= 0xFF
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_hostile_archive_is_refused_whole_and_leaves_nothing(name: str, tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    archive = HOSTILE[name](inner / "archive")
    with pytest.raises(CorruptFileError, match="nothing was unpacked"):
        extract(archive, inner / "out", inside="set", max_bytes=1_000_000, max_members=500)
    assert sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")) == [
        "inner",
        "inner/archive",
    ]
    assert not Path("/tmp/maskcon-escaped").exists()


def test_at_least_25_hostile_archives_are_tried() -> None:
    assert len(HOSTILE) >= 25


def test_ordinary_tar_is_unpacked(tmp_path: Path) -> None:
    members = [
        (tar_member("./set", tarfile.DIRTYPE), b""),
        (tar_member("./set/a b"), b"1"),
        (tar_member("./set/c/d"), b"22"),
    ]
    out = unpacked(write_tar(tmp_path / "archive", members), tmp_path / "new" / "out")
    assert (out / "a b").read_bytes() == b"1"
    assert (out / "c" / "d").read_bytes() == b"22"


def test_ordinary_zip_is_unpacked(tmp_path: Path) -> None:
    archive = write_zip(tmp_path / "a.zip", ("set/", b""), ("set/a", b"1"), ("set/\u732b/b", b"2"))
    out = unpacked(archive, tmp_path / "out")
    assert (out / "\u732b" / "b").read_bytes() == b"2"


def test_only_the_wanted_top_folder_is_taken(tmp_path: Path) -> None:
    archive = plain_tar(tmp_path / "archive", ("set/a", b"1"), ("other/b", b"2"), ("settle", b"3"))
    out = unpacked(archive, tmp_path / "out")
    assert [path.name for path in out.rglob("*")] == ["a"]


def test_archive_without_the_wanted_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorruptFileError, match="no file below 'set'"):
        extract(plain_tar(tmp_path / "archive", ("other/b", b"2")), tmp_path / "out", inside="set")


def test_permissions_of_the_archive_are_not_taken_over(tmp_path: Path) -> None:
    member = tar_member("set/tool")
    member.mode = 0o4777
    out = unpacked(write_tar(tmp_path / "archive", [(member, b"#!/bin/sh\n")]), tmp_path / "out")
    assert (out / "tool").stat().st_mode & 0o7111 == 0


def test_existing_destination_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(DataError, match="exists already"):
        unpacked(plain_tar(tmp_path / "archive", GOOD), tmp_path / "out")


def test_missing_archive_is_a_data_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="No such file"):
        unpacked(tmp_path / "absent.tar", tmp_path / "out")


def test_tar_that_ends_with_a_zip_is_unpacked_as_a_tar(tmp_path: Path) -> None:
    inner = write_zip(tmp_path / "inner.zip", ("inner", b"1")).read_bytes()
    archive = plain_tar(tmp_path / "archive", ("set/inner.zip", inner))
    archive.write_bytes(gzip.compress(gzip.decompress(archive.read_bytes()), compresslevel=0))
    assert (unpacked(archive, tmp_path / "out") / "inner.zip").read_bytes() == inner


@pytest.mark.skipif(os.name != "posix", reason="folders are not locked there")
def test_what_a_killed_process_left_is_swept_away(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from maskcon.data import archive, cache\n"
        "cache._publish = lambda *_: os._exit(9)\n"
        "archive.extract(Path(sys.argv[1]), Path(sys.argv[2]), inside='set')"
    )
    archive = plain_tar(tmp_path / "archive", GOOD)
    killed = subprocess.run([sys.executable, "-c", code, str(archive), str(tmp_path / "out")], check=False)
    assert killed.returncode == 9
    assert len(list(tmp_path.iterdir())) == 2
    unpacked(archive, tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["archive", "out"]


def test_full_disk_is_not_called_a_damaged_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = plain_tar(tmp_path / "archive", GOOD)
    mkdir = Path.mkdir

    def full(path: Path, *arguments: Any, **options: Any) -> None:
        if path.name == "complete":
            raise OSError(errno.ENOSPC, "No space left on device")
        mkdir(path, *arguments, **options)

    monkeypatch.setattr(Path, "mkdir", full)
    with pytest.raises(DataError, match="No space left"):
        unpacked(archive, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["archive"]


def test_disk_that_fills_within_a_small_file_is_not_called_a_damaged_archive(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    archive = plain_tar(tmp_path / "archive", ("set/small", b"x" * 3000))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    # Python ignores the signal of this limit, so that an OSError comes, as from a full disk
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(DataError, match="File too large"):
            unpacked(archive, tmp_path / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [path.name for path in tmp_path.iterdir()] == ["archive"]
