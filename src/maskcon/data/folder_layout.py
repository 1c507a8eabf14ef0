"""List the labelled images of a folder with one sub-folder per class.

flowers/daisy/1.jpg                    coarse labels only; about a fifth of the images is held out to score on
flowers/daisy/oxeye/1.jpg              coarse and fine labels
flowers/train/daisy/1.jpg, flowers/test/daisy/oxeye/2.jpg     train and test parts; fine labels to score with
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Protocol

from maskcon._utils.errors import DataError, stop_at_breakdown
from maskcon._utils.paths import resolved
from maskcon._utils.text import printable
from maskcon.data.dataset import Grouping
from maskcon.data.decoding import EXTENSIONS, FOREIGN_EXTENSIONS

TRAIN_NAMES = ("train", "training")
TEST_NAMES = ("test", "testing", "val", "valid", "validation")  # the first that exists is used
MAX_DEPTH = 16  # of folders, counted from the given one
Identity = tuple[int, int]  # device and inode of a folder, to recognise a link back to it


@dataclass(frozen=True, slots=True)
class Found:
    """One image file: path from the root with `/`, part, class folders (as on disk).

    key: decides whether it is held out; None: the hash of its path, see `splits`
    index: its id; None: the hash of its path
    """

    path: str
    is_test: bool
    coarse: str
    fine: str | None
    key: int | None = None
    index: int | None = None

    @property
    def id(self) -> int:
        return path_hash(self.path) if self.index is None else self.index

    @property
    def split_key(self) -> int:
        return path_hash(self.path) if self.key is None else self.key


class Contents(Protocol):
    """Images stored inside other files, by the paths that stand for them."""

    @property
    def key(self) -> str:
        """Identify the content; changes when any image does."""
        ...

    def read(self, path: str) -> bytes:
        """Return an image file's content, or raise `UndecodableError`; thread-safe."""
        ...


@dataclass
class Layout:
    """The images of a source before they are opened, and texts for messages.

    The source is a folder, a manifest, a named or a Hugging Face dataset.

    name: of the dataset; root: the folder that paths start from; where: the source, as `show` gives it
    expected: what a valid source holds; test_part: what a part to test on is called
    kind: distinguishes packs of one folder; contents: reads images that are not files of their own
    grouping, family: of a named dataset, whose classes have numbers of their own
    files: train before test
    loose_images: number of the ignored files that are images beside the class folders, in no class
    unreadable: path, reason
    """

    name: str
    root: Path
    where: str
    expected: str
    test_part: str = "test folder"
    kind: str = "folder"
    contents: Contents | None = None
    grouping: Grouping | None = None
    family: str | None = None
    files: list[Found] = field(default_factory=list)
    has_parts: bool = False
    empty_classes: list[str] = field(default_factory=list)
    ignored_files: int = 0
    loose_images: int = 0
    unreadable: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def open(self, path: str) -> Path | BytesIO:
        """Return what `decode` takes for the image at this path."""
        return self.root / path if self.contents is None else BytesIO(self.contents.read(path))


def read_layout(root: Path) -> Layout:
    """Find the images below `root`: [train|test/]coarse/[fine/]image."""
    _check_folder(root, "give a folder with one sub-folder of images per class")
    layout = _empty(root)
    folders = _folders(root, "", layout)
    train, tests = _parts(folders)
    if train is None:
        layout = _empty(root)  # _read_part counts the files beside the folders itself
        _read_part(root, "", False, layout)
        return layout
    _read_part(root, train, False, layout)
    if tests:
        layout.has_parts = True
        _read_part(root, tests[0], True, layout)
        spare = [name for name in folders if name not in (train, tests[0])]
        if spare:
            layout.notes.append(f"not used beside {train!r} and {tests[0]!r}: {some(spare)}")
    return layout


def _empty(root: Path) -> Layout:
    where = show(str(root))
    expected = f"{where}/CLASS/image.jpg, with one sub-folder per class"
    return Layout(show(resolved(root).name) or "folder", root, where, expected)


def _parts(folders: Collection[str]) -> tuple[str | None, list[str]]:
    """Find the top-level train and test folders; none if they are classes.

    A folder called train beside other folders is a class (images of trains), unless another is called test.
    """
    by_name = {name.lower(): name for name in folders}
    train = next((by_name[name] for name in TRAIN_NAMES if name in by_name), None)
    tests = [by_name[name] for name in TEST_NAMES if name in by_name]
    is_part = train is not None and (bool(tests) or len(folders) == 1)
    return (train, tests) if is_part else (None, [])


def read_any_depth(root: Path) -> Layout:
    """Find every image below `root` at any depth, for embedding.

    The first-level folder (the second below train and test folders) is the coarse label; "" without one.
    """
    _check_folder(root, "give a folder of images")
    layout = _empty(root)
    every = sorted(_images(root, "", layout, frozenset({_identity(root)})), key=lambda inner: _join(*inner))
    train, tests = _parts({inner[0] for inner in every if len(inner) > 1})
    parts = () if train is None else (train, *tests)
    for inner in every:
        below = inner[1:] if inner[0] in parts else inner
        layout.files.append(Found(_join(*inner), False, below[0] if len(below) > 1 else "", None))
    return layout


def path_hash(path: str) -> int:
    """Hash a path to 63 bits: the id of an image, which also decides its split."""
    return int.from_bytes(hashlib.sha256(os.fsencode(path)).digest()[:8], "big") >> 1


def show(name: str) -> str:
    """Write a name as printable text on one line, even if it is not valid UTF-8.

    >>> show("a\\nb"), show(os.fsdecode(b"caf\\xe9"))
    ('a\\\\nb', 'caf\\\\xe9')
    """
    text = os.fsencode(name).decode("utf-8", errors="backslashreplace")
    return printable(text)


def some(names: list[str], limit: int = 5) -> str:
    """List the first names, for a message.

    >>> some(["a", "b", "c"], limit=2)
    'a, b and 1 more'
    """
    shown = ", ".join(show(name) for name in names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"


@dataclass
class FineLabels:
    """The coarse class of each fine label, and the place where it first occurred."""

    coarse_of: dict[str, tuple[str, str]] = field(default_factory=dict)

    def conflict(self, fine: str, coarse: str, place: str) -> str | None:
        """Add a fine label; return a complaint if it has another coarse class already.

        >>> labels = FineLabels()
        >>> labels.conflict("poodle", "dog", "line 2")
        >>> labels.conflict("poodle", "cat", "line 3").partition(";")[0]
        "fine label 'poodle' lies in coarse class 'cat', but in 'dog' at line 2"
        """
        other, first = self.coarse_of.setdefault(fine, (coarse, place))
        if other == coarse:
            return None
        return (
            f"fine label {show(fine)!r} lies in coarse class {show(coarse)!r}, but in {show(other)!r} at {first}; "
            "a fine label belongs to one coarse class"
        )


def _check_folder(root: Path, advice: str) -> None:
    try:
        reason = None if root.is_dir() else "is not a folder" if root.exists() else "does not exist"
    except OSError as error:
        raise _unreadable(root, error) from error
    if reason is not None:
        raise DataError(f"{show(str(root))} {reason}; {advice}")


def _read_part(root: Path, part: str, is_test: bool, layout: Layout) -> None:
    direct: list[Found] = []
    deeper: list[Found] = []
    above = frozenset(_identity(root / folder) for folder in ("", part))
    for coarse, identity in _folders(root, part, layout).items():
        if identity in above:
            continue  # a link back to the root or the part is not a class
        before = len(direct) + len(deeper)
        for inner in _images(root, _join(part, coarse), layout, above | {identity}):
            path = _join(part, coarse, *inner)
            if len(inner) == 1:
                direct.append(Found(path, is_test, coarse, None))
            else:
                deeper.append(Found(path, is_test, coarse, f"{coarse}/{inner[0]}"))
        if len(direct) + len(deeper) == before:
            layout.empty_classes.append(_join(part, coarse))
    if direct and deeper:
        raise DataError(
            f"some images lie directly in their class folder ({show(direct[0].path)}), others one level deeper "
            f"({show(deeper[0].path)}); use one depth: coarse/image, or coarse/fine/image"
        )
    layout.files += sorted(direct + deeper, key=lambda found: found.path)


def _images(
    root: Path, folder: str, layout: Layout, inside: frozenset[Identity]
) -> Iterator[tuple[str, ...]]:
    """Yield the images in `folder` and below, as path components.

    inside: the folders from the root to `folder`; links back to one of them are not followed
    """
    for entry, identity in _entries(root, folder, layout):
        if identity is not None:
            if identity in inside:
                continue
            if len(inside) >= MAX_DEPTH:
                layout.unreadable.append((_join(folder, entry.name), f"more than {MAX_DEPTH} folders deep"))
                continue
            for inner in _images(root, _join(folder, entry.name), layout, inside | {identity}):
                yield (entry.name, *inner)
            continue
        suffix = Path(entry.name).suffix.lower()
        if suffix in FOREIGN_EXTENSIONS:
            reason = f"{suffix} cannot be read; convert it to JPEG"
            layout.unreadable.append((_join(folder, entry.name), reason))
        elif suffix not in EXTENSIONS:
            layout.ignored_files += 1
        elif not entry.is_file():
            # a broken link, a pipe, a socket: opening it might never return
            layout.unreadable.append((_join(folder, entry.name), "not a regular file"))
        else:
            yield (entry.name,)


def _folders(root: Path, folder: str, layout: Layout) -> dict[str, Identity]:
    """List visible sub-folders by name; count the files beside them."""
    found = {}
    for entry, identity in _entries(root, folder, layout):
        if identity is not None:
            found[entry.name] = identity
        else:
            layout.ignored_files += 1
            layout.loose_images += Path(entry.name).suffix.lower() in EXTENSIONS
    return found


def _entries(root: Path, folder: str, layout: Layout) -> list[tuple[os.DirEntry[str], Identity | None]]:
    """List visible entries of a folder by name; sub-folders with their identity."""
    try:
        with os.scandir(root / folder) as entries:
            every = sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        if not folder:
            raise _unreadable(root, error) from error
        stop_at_breakdown(error, root / folder)
        layout.unreadable.append((folder, error.strerror or str(error)))
        return []
    visible = []
    for entry in every:
        try:
            identity = _identity(Path(entry.path)) if entry.is_dir() else None
        except OSError as error:  # a link to itself, or into a folder that may not be entered
            stop_at_breakdown(error, entry.path)
            layout.unreadable.append((_join(folder, entry.name), error.strerror or str(error)))
            continue
        if not entry.name.startswith(".") and entry.name != "__MACOSX":
            visible.append((entry, identity))
        elif identity is None:
            layout.ignored_files += 1
    return visible


def _unreadable(root: Path, error: OSError) -> DataError:
    return DataError(f"cannot read {show(str(root))}: {error.strerror or error}")


def _identity(folder: Path) -> Identity:
    status = folder.stat()  # an os.DirEntry has zeros on Windows
    return status.st_dev, status.st_ino


def _join(*parts: str) -> str:
    return "/".join(part for part in parts if part)
