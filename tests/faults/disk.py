"""A disk that fails at its n-th operation, or remembers every one: what Python does to files under a folder.

    with Disk(folder, Fault(at=7, how="EIO")) as disk: ...
    disk.operations   # [Operation("open", ...), ...]

It stands where the package meets the system: `open`, `io.FileIO` and the functions of `os`. Buffered and text files
are built on a raw file of ours, so each operation is one that the kernel would see. What C and Rust libraries do by
themselves is not seen, except `safetensors.safe_open`, which counts as an open.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import stat
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from unittest import mock

import safetensors

READING = frozenset({"stat", "list", "open", "read"})
# errors that a kind of operation can end with, beside EIO
DENIED = frozenset({"stat", "list", "open", "create", "rename", "unlink", "mkdir", "rmdir"})
FILLING = frozenset({"create", "write", "resize", "mkdir", "rename", "sync", "sync folder"})
LASTING = {"full": errno.ENOSPC, "dead": errno.EIO}  # from the n-th operation on


@dataclass(frozen=True)
class Fault:
    """What happens at the n-th operation, counted from 1.

    how: the name of an error; "short", a read or write of half of the bytes, which is none; "torn", half of the bytes
    and ENOSPC; "full", nothing can be written from then on; "dead", nothing at all succeeds from then on; "kill", the
    process ends.
    """

    at: int
    how: str

    def fits(self, kind: str) -> bool:
        """Whether an operation of this kind can fail so."""
        kinds = {"EACCES": DENIED, "ENOSPC": FILLING, "full": FILLING, "torn": {"write"}}
        return kind in (kinds | {"short": {"read", "write"}}).get(self.how, {kind})


@dataclass(frozen=True)
class Operation:
    """One thing done: for the sweep its kind and path, for a power loss what it changed."""

    kind: str
    path: str
    target: str = ""  # the new name of a rename
    file: int = 0  # which file, whatever its name is then
    offset: int = 0
    data: bytes = b""


class Disk:
    """Files under a folder, from `__enter__` to `__exit__`, in this process, where it is `Disk.here`."""

    here: Disk

    def __init__(self, root: Path, fault: Fault | None = None) -> None:
        self.root, self.fault = str(root), fault
        self.operations: list[Operation] = []
        self.opened: dict[int, tuple[str, int]] = {}  # by descriptor
        self._files: dict[str, int] = {}  # by path: of those that were created here
        self._patches = ExitStack()
        self._real = {name: getattr(os, name) for name in _WRAPPED}

    def meet(self, kind: str, path: str, **more: Any) -> bool:
        """Count an operation that is about to happen; raises if it fails, returns whether it is cut short."""
        self.operations.append(Operation(kind, path, **more))
        fault, number = self.fault, len(self.operations)
        if fault is None or number < fault.at or (number > fault.at and fault.how not in LASTING):
            return False
        if fault.how == "kill":
            os._exit(99)
        if not fault.fits(kind):
            return False
        if fault.how in ("short", "torn"):
            return True
        code = LASTING.get(fault.how) or getattr(errno, fault.how)
        raise OSError(code, os.strerror(code), path)

    def acknowledge(self, what: str) -> None:
        """Note that a promise was given: what is named is kept, whatever happens from here on."""
        self.operations.append(Operation("acknowledged", what))

    def path_of(self, file: Any, dir_fd: int | None = None) -> str | None:
        """Return the full path of a file under the folder, else None."""
        if isinstance(file, int):
            return self.opened.get(file, (None, 0))[0]
        try:
            name = os.fsdecode(file)
        except TypeError:
            return None
        base = self.opened.get(dir_fd, (None, 0))[0] if dir_fd is not None else os.getcwd()  # noqa: PTH109
        path = os.path.normpath(os.path.join(base or "/", name))  # noqa: PTH118
        return path if path == self.root or path.startswith(self.root + os.sep) else None

    def exists(self, path: str) -> bool:
        """Return whether there is anything, without being counted."""
        try:
            self._real["lstat"](path)
        except OSError:
            return False
        return True

    def is_folder(self, path: str) -> bool:
        return stat.S_ISDIR(self._real["stat"](path).st_mode)

    def file_at(self, path: str, *, new: bool = False) -> int:
        """Return the number of the file of this name."""
        if new or path not in self._files:
            self._files[path] = len(self._files) + len(self.operations) + 1
        return self._files[path]

    def moved(self, path: str, target: str) -> None:
        """Let numbers follow a rename, also those of files in a folder."""
        for name in [n for n in self._files if n == path or n.startswith(path + os.sep)]:
            self._files[target + name[len(path) :]] = self._files.pop(name)

    def __enter__(self) -> Self:
        Disk.here = self
        for name, wrap in _WRAPPED.items():
            self._patch(os, name, wrap(self, self._real[name]))
        opened = _opened(self, io.open)
        raw = type("FileIO", (_File,), {"disk": self})
        for module, name, value in ((builtins, "open", opened), (io, "open", opened), (io, "FileIO", raw)):
            self._patch(module, name, value)
        self._patch(safetensors, "safe_open", _watched(self, safetensors.safe_open))
        return self

    def _patch(self, module: Any, name: str, value: Any) -> None:
        self._patches.enter_context(mock.patch.object(module, name, value))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._patches.close()


class _File(io.FileIO):
    """A raw file whose reads and writes are counted; `disk` is that of its class."""

    disk: Disk

    def __init__(self, file: Any, mode: str = "r", closefd: bool = True, opener: Any = None) -> None:
        path = self.disk.path_of(file)
        self.where, self.number = path, 0
        if path is not None and not isinstance(file, int):
            there = self.disk.exists(path)
            self.number = self.disk.file_at(path, new=not there)
            new = "w" in mode or "x" in mode or ("a" in mode and not there)
            self.disk.meet("create" if new else "open", path, file=self.number)
            if "w" in mode and there:
                self.disk.operations.append(Operation("resize", path, file=self.number))
        elif path is not None:
            self.number = self.disk.opened[file][1]
        super().__init__(file, mode, closefd, opener)
        if path is not None:
            self.disk.opened[self.fileno()] = (path, self.number)

    def close(self) -> None:
        if not self.closed and self.where is not None:
            self.disk.opened.pop(self.fileno(), None)
        super().close()

    def readinto(self, buffer: Any, /) -> Any:
        if self.where is not None and len(buffer) > 1 and self.disk.meet("read", self.where):
            return super().readinto(memoryview(buffer)[: len(buffer) // 2])
        return super().readinto(buffer)

    def read(self, size: int | None = -1, /) -> Any:
        if self.where is not None and self.disk.meet("read", self.where) and size and size > 1:
            size //= 2
        return super().read(-1 if size is None else size)

    def readall(self) -> Any:
        if self.where is not None:
            self.disk.meet("read", self.where)
        return super().readall()

    def write(self, data: Any, /) -> Any:
        if self.where is None:
            return super().write(data)
        content = bytes(data)
        place = os.fstat(self.fileno()).st_size if "a" in self.mode else self.tell()
        if not self.disk.meet("write", self.where, file=self.number, offset=place, data=content):
            return super().write(content)
        assert self.disk.fault is not None
        written = super().write(content[: max(1, len(content) // 2)])
        if self.disk.fault.how == "torn":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return written

    def truncate(self, size: int | None = None, /) -> Any:
        if self.where is not None:
            size = self.tell() if size is None else size
            self.disk.meet("resize", self.where, file=self.number, offset=size)
        return super().truncate(size)


def _opened(disk: Disk, real: Callable[..., Any]) -> Callable[..., Any]:
    def opened(
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
        opener: Any = None,
    ) -> Any:
        if disk.path_of(file) is None:
            return real(file, mode, buffering, encoding, errors, newline, closefd, opener)
        raw = io.FileIO(file, mode.replace("b", "").replace("t", ""), closefd, opener)
        if buffering == 0:
            return raw
        if "+" in mode:
            buffered: Any = io.BufferedRandom(raw)
        else:
            buffered = io.BufferedReader(raw) if "r" in mode else io.BufferedWriter(raw)
        if "b" in mode:
            return buffered
        text = io.TextIOWrapper(buffered, encoding, errors, newline)
        text.mode = mode  # type: ignore[misc]
        return text

    return opened


def _watched(disk: Disk, real: Callable[..., Any]) -> Callable[..., Any]:
    def watched(file: Any, *arguments: Any, **more: Any) -> Any:
        if (path := disk.path_of(file)) is not None:
            disk.meet("open", path)
        return real(file, *arguments, **more)

    return watched


Wrap = Callable[[Disk, Callable[..., Any]], Callable[..., Any]]


def _plain(kind: str) -> Wrap:
    """A function of one path."""

    def wrap(disk: Disk, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any = ".", *arguments: Any, **more: Any) -> Any:
            found = disk.path_of(path, more.get("dir_fd"))
            if found is not None:
                disk.meet(kind, found, file=disk._files.get(found, 0))
            result = real(path, *arguments, **more)
            if found is not None and kind in ("unlink", "rmdir"):
                disk._files.pop(found, None)
            return result

        return call

    return wrap


def _moving(disk: Disk, real: Callable[..., Any]) -> Callable[..., Any]:
    def call(path: Any, target: Any, **more: Any) -> None:
        found, new = disk.path_of(path), disk.path_of(target)
        if found is not None and new is not None:
            disk.meet("rename", found, target=new, file=disk._files.get(found, 0))
        real(path, target, **more)
        if found is not None and new is not None:
            disk.moved(found, new)

    return call


def _linking(disk: Disk, real: Callable[..., Any]) -> Callable[..., Any]:
    def call(source: Any, path: Any, *arguments: Any, **more: Any) -> None:
        if (found := disk.path_of(path)) is not None:
            disk.meet("create", found, file=disk.file_at(found, new=True), target=os.fsdecode(source))
        real(source, path, *arguments, **more)

    return call


def _opening(disk: Disk, real: Callable[..., Any]) -> Callable[..., Any]:
    def call(path: Any, flags: int, *arguments: Any, **more: Any) -> int:
        found = disk.path_of(path, more.get("dir_fd"))
        number = 0
        if found is not None:
            named = not flags & getattr(os, "O_TMPFILE", 0) & ~os.O_DIRECTORY
            new = bool(flags & os.O_CREAT) and not disk.exists(found)
            number = disk.file_at(found, new=new) if new and named else disk._files.get(found, 0)
            disk.meet("create" if new or not named else "open", found, file=number)
        handle: int = real(path, flags, *arguments, **more)
        if found is not None:
            disk.opened[handle] = (found, number)
        return handle

    return call


def _closing(disk: Disk, real: Callable[..., Any]) -> Callable[..., Any]:
    def call(handle: int) -> None:
        disk.opened.pop(handle, None)
        real(handle)

    return call


def _syncing(disk: Disk, real: Callable[..., Any]) -> Callable[..., Any]:
    def call(file: Any) -> None:
        handle = file if isinstance(file, int) else file.fileno()
        if handle in disk.opened:  # not waited for: these tests lose no power
            path, number = disk.opened[handle]
            disk.meet("sync folder" if disk.is_folder(path) else "sync", path, file=number)
        else:
            real(handle)

    return call


def _reserving(disk: Disk, real: Callable[..., Any]) -> Callable[..., Any]:
    def call(handle: int, offset: int, length: int) -> None:
        if handle in disk.opened:
            path, number = disk.opened[handle]
            size = max(os.fstat(handle).st_size, offset + length)
            disk.meet("resize", path, file=number, offset=size)
        real(handle, offset, length)

    return call


_WRAPPED: dict[str, Wrap] = {
    "stat": _plain("stat"),
    "lstat": _plain("stat"),
    "listdir": _plain("list"),
    "scandir": _plain("list"),
    "mkdir": _plain("mkdir"),
    "rmdir": _plain("rmdir"),
    "unlink": _plain("unlink"),
    "remove": _plain("unlink"),
    "rename": _moving,
    "replace": _moving,
    "symlink": _linking,
    "open": _opening,
    "close": _closing,
    "fsync": _syncing,
    "posix_fallocate": _reserving,
}
