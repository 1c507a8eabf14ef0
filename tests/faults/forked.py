"""Commands in forked children, so that torch is imported once; and folders as values, to compare and put back."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import os
import pickle
import shutil
import signal
import stat
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.disk import Disk, Fault, Operation

TIMEOUT_SECONDS = 120
_IMPORTED: set[str] = set()  # by children
Tree = Mapping[str, tuple[int, bytes]]  # mode and content, or where a link leads, by path


@dataclass(frozen=True)
class Outcome:
    """How a child ended."""

    code: int  # -1: it had to be killed
    output: str
    operations: list[Operation] = field(default_factory=list)

    @property
    def is_clear(self) -> bool:
        """Whether it ended with an error of one line that is no defect."""
        lines = [line for line in self.output.splitlines() if line.startswith("maskcon: ")]
        return (
            self.code in (1, 2)
            and len(lines) == 1
            and "Traceback" not in self.output
            and "this is a defect" not in self.output
        )


def run_command(arguments: list[str], root: Path, fault: Fault | None = None) -> Outcome:
    """Run `maskcon` with a disk that fails."""
    from maskcon.cli import main

    def work() -> None:
        sys.argv = ["maskcon", *arguments]
        main()

    return in_child(work, root, fault)


def in_child(work: Callable[[], Any], root: Path, fault: Fault | None = None) -> Outcome:
    """Run work in the folder `root`, in a child; what it did there is recorded."""
    said, done = (root.with_name(f"{root.name}.{name}-{os.getpid()}") for name in ("output", "operations"))
    done.unlink(missing_ok=True)
    _import_as_before()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        _be_child(work, root, fault, said, done)
    code = _waited(child)
    operations, imported = pickle.loads(done.read_bytes()) if done.exists() else ([], ())
    _IMPORTED.update(imported)
    return Outcome(code, said.read_text(errors="replace"), operations)


def _be_child(work: Callable[[], Any], root: Path, fault: Fault | None, said: Path, done: Path) -> None:
    code = 70
    try:
        handle = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
        os.chdir(root)
        os.environ["XDG_CACHE_HOME"] = str(root / "cache")
        os.environ["MPLCONFIGDIR"] = str(root.with_name("matplotlib"))  # its list of fonts takes long to make
        _stop_clocks()
        disk = Disk(root, fault)
        try:
            with disk:
                work()
            code = 0
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
        sys.stdout.flush()
        done.write_bytes(pickle.dumps((disk.operations, list(sys.modules))))
    except BaseException:
        traceback.print_exc(file=sys.stdout)
        sys.stdout.flush()
    finally:
        os._exit(code)


def _import_as_before() -> None:
    """Import here what a child imported, so that the next one need not."""
    while _IMPORTED:
        with contextlib.suppress(Exception):
            importlib.import_module(_IMPORTED.pop())


def _stop_clocks() -> None:
    """Let recorded times depend on what was done alone, so that runs can be compared byte by byte."""
    ticks = iter(range(1 << 60))
    time.perf_counter = lambda: float(next(ticks))
    time.process_time = lambda: float(next(ticks))


def _waited(child: int) -> int:
    end = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < end:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -1


def tree_of(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Return everything in a folder."""
    found: dict[str, tuple[int, bytes]] = {}
    for path in sorted(folder.rglob("*")) if folder.exists() else ():
        mode = path.lstat().st_mode
        content = os.fsencode(path.readlink()) if stat.S_ISLNK(mode) else b""
        found[str(path.relative_to(folder))] = (mode, path.read_bytes() if stat.S_ISREG(mode) else content)
    return found


def put_back(folder: Path, tree: Tree) -> None:
    """Make a folder what it was."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, (mode, content) in tree.items():
        path = folder / name
        if stat.S_ISDIR(mode):
            path.mkdir(exist_ok=True)
        elif stat.S_ISLNK(mode):
            path.symlink_to(os.fsdecode(content))
        else:
            path.write_bytes(content)


def digest_of(tree: Tree) -> str:
    """Return a checksum of a folder."""
    return hashlib.sha256(repr(sorted(tree.items())).encode()).hexdigest()
