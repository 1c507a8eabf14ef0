"""What lies where in a folder of pictures: parts, coarse classes, fine classes, and files to leave alone."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from maskcon.errors import DataError
from maskcon.sources.decode import EXTENSIONS

TRAIN_NAMES = ("train", "training")
TEST_NAMES = ("test", "val", "validation")  # the first that exists is used
MAX_DEPTH = 16  # of sub-folders


@dataclass(frozen=True)
class Found:
    """One picture file: its path from the root with `/`, its part, its class folders."""

    path: str
    is_test: bool
    coarse: str
    fine: str | None


@dataclass
class Layout:
    """All picture files of a folder, train before test, each sorted by path."""

    files: list[Found] = field(default_factory=list)
    has_parts: bool = False
    empty_classes: list[str] = field(default_factory=list)
    ignored_files: int = 0
    unreadable: list[tuple[str, str]] = field(default_factory=list)  # path, reason
    notes: list[str] = field(default_factory=list)


def read_layout(root: Path) -> Layout:
    """Find the pictures below `root`: [train|test/]coarse/[fine/]picture."""
    if not root.is_dir():
        reason = "is not a folder" if root.exists() else "does not exist"
        raise DataError(f"{show(str(root))} {reason}; give a folder with one sub-folder of images a class")
    layout = Layout()
    folders = _folders(root, "", layout)
    by_name = {name.lower(): name for name in folders}
    train = next((by_name[name] for name in TRAIN_NAMES if name in by_name), None)
    tests = [by_name[name] for name in TEST_NAMES if name in by_name]
    if train is not None and tests:
        layout.has_parts = True
        _read_part(root, train, False, layout)
        _read_part(root, tests[0], True, layout)
        used = {train, tests[0]}
        spare = [name for name in folders if name not in used]
        if spare:
            layout.notes.append(f"not used beside {train!r} and {tests[0]!r}: {some(spare)}")
    elif train is not None and len(folders) == 1:
        _read_part(root, train, False, layout)
    else:
        layout = Layout()  # _read_part counts the files beside the folders itself
        _read_part(root, "", False, layout)
    return layout


def path_hash(path: str) -> int:
    """63 bits that depend on the path alone: the id of a picture, and what decides whether it is held out."""
    return int.from_bytes(hashlib.sha256(os.fsencode(path)).digest()[:8], "big") >> 1


def show(name: str) -> str:
    """The name as text that can be printed and stored, even if its bytes are no valid UTF-8."""
    return os.fsencode(name).decode("utf-8", errors="replace")


def some(names: list[str], limit: int = 5) -> str:
    """The first names of a list, for a message.

    >>> some(["a", "b", "c"], limit=2)
    'a, b and 1 more'
    """
    shown = ", ".join(show(name) for name in names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"


def _read_part(root: Path, part: str, is_test: bool, layout: Layout) -> None:
    direct: list[Found] = []
    deeper: list[Found] = []
    classes = _folders(root, part, layout)
    for coarse in classes:
        before = len(direct) + len(deeper)
        for inner in _pictures(root, _join(part, coarse), layout, frozenset()):
            path = _join(part, coarse, *inner)
            if len(inner) == 1:
                direct.append(Found(path, is_test, show(coarse), None))
            else:
                deeper.append(Found(path, is_test, show(coarse), f"{show(coarse)}/{show(inner[0])}"))
        if len(direct) + len(deeper) == before:
            layout.empty_classes.append(_join(part, coarse))
    if direct and deeper:
        raise DataError(
            f"some images lie directly in their class folder ({show(direct[0].path)}), others one level deeper "
            f"({show(deeper[0].path)}); use one depth: coarse/image, or coarse/fine/image"
        )
    layout.files += sorted(direct + deeper, key=lambda found: found.path)


def _pictures(
    root: Path, folder: str, layout: Layout, above: frozenset[tuple[int, int]]
) -> Iterator[tuple[str, ...]]:
    """Paths, as components below `folder`, of all pictures in it and its sub-folders.

    above: device and number of the folders on the way here, so that a link back to one of them ends.
    """
    status = (root / folder).stat()
    inside = above | {(status.st_dev, status.st_ino)}
    for entry in _entries(root, folder, layout):
        if entry.is_dir():
            below = entry.stat()
            if len(inside) < MAX_DEPTH and (below.st_dev, below.st_ino) not in inside:
                for inner in _pictures(root, _join(folder, entry.name), layout, inside):
                    yield (entry.name, *inner)
        elif Path(entry.name).suffix.lower() not in EXTENSIONS:
            layout.ignored_files += 1
        elif (
            not entry.is_file()
        ):  # a link that leads nowhere, a pipe, a socket: opening it might never return
            layout.unreadable.append((_join(folder, entry.name), "not a regular file"))
        else:
            yield (entry.name,)


def _folders(root: Path, folder: str, layout: Layout) -> list[str]:
    """Names of the visible sub-folders; files beside them belong to no class and are counted."""
    names = []
    for entry in _entries(root, folder, layout):
        if entry.is_dir():
            names.append(entry.name)
        else:
            layout.ignored_files += 1
    return names


def _entries(root: Path, folder: str, layout: Layout) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(root / folder) as entries:
            every = sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        if not folder:
            raise DataError(f"cannot read {show(str(root))}: {error.strerror or error}") from error
        layout.unreadable.append((folder, error.strerror or str(error)))
        return []
    visible = [entry for entry in every if not _is_hidden(entry.name)]
    layout.ignored_files += sum(_is_hidden(entry.name) and not entry.is_dir() for entry in every)
    return visible


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"


def _join(*parts: str) -> str:
    return "/".join(part for part in parts if part)
