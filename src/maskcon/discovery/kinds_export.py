"""Export kinds as folders COARSE/KIND/IMAGE, also a Hugging Face `imagefolder`.

The folder holds metadata.jsonl (file_name, path, coarse, kind, confidence, role) and a README.md by which
`datasets.load_dataset(FOLDER)` takes all images as one split, whatever their classes are called. A repeated export
brings it up to date: moved images are moved, unchanged files are not copied again, other files are not touched.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import unicodedata
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from PIL import Image

from maskcon._utils.errors import DataError, UsageError
from maskcon._utils.files import failpoint, make_folder, replacing, sync_folder, write_atomically
from maskcon._utils.text import counted
from maskcon.data.image_readers import ImageArrays, ImageFiles, Images
from maskcon.data.kinds_file import KindRow
from maskcon.discovery.kinds import Progress
from maskcon.discovery.session import text_path

METADATA, README, PLAN = "metadata.jsonl", "README.md", ".export-plan.jsonl"
NO_KIND = "no kind"
LONGEST = 100  # characters of a name, so that 255 bytes are enough in most scripts
# Names that Windows keeps for devices, with any ending.
RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)
FORBIDDEN = re.compile(r'[<>:"/\\|?*]')
CARD = """---
configs:
- config_name: default
  data_files:
  - split: train
    path: [metadata.jsonl, "*/*/*"]
---

{images} in {kinds} of {classes}, found by `maskcon kinds`; `metadata.jsonl` names each.
"""


@dataclass(frozen=True)
class Exported:
    """The result of an export.

    Attributes:
        images: number in the folder now.
        written: number of these that this call copied or linked.
        removed: number of files of an earlier export that are out of date.
        left_out: path -> reason, for images that could not be read.
    """

    folder: Path
    images: int
    written: int
    removed: int
    left_out: dict[str, str]


def export_kinds(
    folder: Path,
    rows: Sequence[KindRow],
    images: Images,
    *,
    links: bool = False,
    progress: Progress | None = None,
) -> Exported:
    """Write images into folders by coarse class and kind; junk is left out.

    A kill leaves a folder without metadata.jsonl; the same call completes it.

    Args:
        rows: kinds of images, named as in `Session.embedded`.
        images: where they are; those of a dataset in memory are written as PNG.
        links: make symbolic links to the images in place of copies.
        progress: called as progress(images done, images).

    Raises:
        UsageError: the folder holds something else or lies among the images, or links are requested to images that
            are not files.
    """
    exported = [row for row in rows if row.role != "junk"]
    places = plan_places(exported, suffix=".png" if isinstance(images, ImageArrays) else None)
    if links and isinstance(images, ImageArrays):
        raise UsageError(f"images of {images.source} are no files to link to; export copies, without --links")
    before = _check_folder(folder, images)
    make_folder(folder)
    write_atomically(
        folder / PLAN, _lines({"file_name": name} for name in sorted(before | set(places.values())))
    )
    (folder / METADATA).unlink(missing_ok=True)
    row_of = {text_path(path): row for row, path in enumerate(images.paths)}
    written, left_out, folders = 0, {}, set()
    for number, row in enumerate(exported):
        if progress is not None:
            progress(number, len(exported))
        target = folder / places[row.path]
        if target.parent not in folders:
            _make_folders(folder, target.parent)
            folders.add(target.parent)
        try:
            if row.path not in row_of:
                raise DataError("not in its source any more")
            written += _put(images, row_of[row.path], target, links=links)
        except (OSError, DataError) as error:
            left_out[row.path] = getattr(error, "strerror", None) or str(error)
        failpoint("export-after-image")
    done = [row for row in exported if row.path not in left_out]
    stale = before - {places[row.path] for row in done}
    removed = sum(_remove(folder, name) for name in sorted(stale))
    write_atomically(folder / README, _card(done))
    write_atomically(folder / METADATA, _lines(_record(row, places[row.path]) for row in done))
    (folder / PLAN).unlink()
    if progress is not None:
        progress(len(exported), len(exported))
    return Exported(folder, len(done), written, removed, left_out)


def plan_places(rows: Iterable[KindRow], *, suffix: str | None = None) -> dict[str, str]:
    """Give every image a unique place COARSE/KIND/IMAGE that is safe on any system.

    Args:
        suffix: extension of all files, such as `.png`; None keeps each file's own.

    Returns:
        The place of each path, with `/`.
    """
    classes: dict[str, str] = {}
    kinds: dict[tuple[str, str], str] = {}
    used: dict[str, set[str]] = {}
    places = {}
    for row in rows:
        if row.coarse not in classes:
            classes[row.coarse] = _free(safe_name(row.coarse), used.setdefault("", set()))
        coarse = classes[row.coarse]
        if (row.coarse, row.kind) not in kinds:
            kind = safe_name(row.kind or NO_KIND)
            kinds[row.coarse, row.kind] = _free(kind, used.setdefault(coarse, set()))
        where = f"{coarse}/{kinds[row.coarse, row.kind]}"
        name = PurePosixPath(row.path).name
        if suffix is not None:
            name = f"{name.removesuffix(suffix)}{suffix}"
        places[row.path] = f"{where}/{_free(safe_name(name), used.setdefault(where, set()))}"
    return places


def safe_name(text: str) -> str:
    """Turn any text into the name of a file or folder.

    The name has no separators or control characters and is not hidden.

    >>> safe_name("red/green apple"), safe_name(".."), safe_name("CON.jpg"), safe_name("=1+1"), safe_name("Äpfel.jpg")
    ('red_green apple', '_', '_CON.jpg', '_=1+1', 'Äpfel.jpg')
    """
    text = unicodedata.normalize("NFC", text)
    text = "".join("_" if unicodedata.category(letter)[0] == "C" else letter for letter in text)
    text = FORBIDDEN.sub("_", text).strip(" .")
    stem, dot, ending = text.rpartition(".")
    if dot and len(ending) <= 10:
        text = f"{_cut(stem, LONGEST - len(ending) - 1)}.{ending}"
    text = _cut(text, LONGEST) or "_"
    return f"_{text}" if RESERVED.fullmatch(text) or text[0] in "=+-@'~" else text


def _cut(text: str, longest: int) -> str:
    """Cut a name to at most `longest` characters and 200 bytes."""
    text = text[:longest]
    while len(text.encode()) > 200:
        text = text[:-1]
    return text.rstrip(" .")


def _free(name: str, used: set[str]) -> str:
    """Number a name that is taken, ignoring case, before its extension."""
    stem, dot, ending = name.rpartition(".")
    number, found = 1, name
    while found.casefold() in used:
        number += 1
        found = f"{stem}-{number}.{ending}" if dot and stem else f"{name}-{number}"
    used.add(found.casefold())
    return found


def _check_folder(folder: Path, images: Images) -> set[str]:
    """Return the files of an earlier export; refuse folders with other content.

    A folder among the images is refused too.
    """
    source = Path(images.source)
    if (
        isinstance(images, ImageFiles)
        and source.is_dir()
        and folder.resolve().is_relative_to(source.resolve())
    ):
        raise UsageError(f"{folder} lies among the images in {source}; choose a folder beside it")
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file; give a folder to export to")
    known = [path for name in (METADATA, PLAN) if (path := folder / name).is_file()]
    if not known and folder.exists() and any(folder.iterdir()):
        raise UsageError(
            f"{folder} is not empty and was not written by an export of kinds; choose a new folder"
        )
    found: set[str] = set()
    for path in known:
        try:
            names = [json.loads(line)["file_name"] for line in path.read_text("utf-8").splitlines()]
        except (ValueError, KeyError, TypeError):
            raise UsageError(f"{path} is damaged; delete {folder} and export again") from None
        found |= {name for name in names if isinstance(name, str) and _is_place(name)}
    return found


def _is_place(name: str) -> bool:
    """Tell whether `plan_places` could give this place: nothing else is ever removed."""
    parts = name.split("/")
    return len(parts) == 3 and not any(FORBIDDEN.search(part) or part[:1] in ("", ".") for part in parts)


def _make_folders(folder: Path, inner: Path) -> None:
    """Create COARSE/KIND in the folder without following links."""
    for place in (inner.parent, inner):
        if place.is_symlink() or (place.exists() and not place.is_dir()):
            raise UsageError(f"{place} is in the way of the export to {folder}; remove it")
        make_folder(place)


def _put(images: Images, row: int, target: Path, *, links: bool) -> bool:
    """Copy or link one image unless it is there; return whether it was written."""
    if isinstance(images, ImageArrays):
        pixels = images.image(row).transpose(1, 2, 0)
        content = io.BytesIO()
        Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels).save(content, format="PNG")
        if target.is_file() and target.read_bytes() == content.getvalue():
            return False
        write_atomically(target, content.getvalue())
        return True
    source = (Path(images.root) / images.paths[row]).absolute()
    found = source.stat()
    if links:
        if target.is_symlink() and target.readlink() == source:
            return False
        temporary = target.with_name(f".{target.name}.tmp")
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(source)
        temporary.replace(target)
        sync_folder(target.parent)
        return True
    if target.is_file() and not target.is_symlink():
        there = target.stat()
        if (there.st_size, there.st_mtime_ns) == (found.st_size, found.st_mtime_ns):
            return False
    with source.open("rb") as old, replacing(target) as new:
        shutil.copyfileobj(old, new)
    os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns))
    return True


def _remove(folder: Path, name: str) -> bool:
    """Remove a file of an earlier export, and folders that it leaves empty."""
    target = folder / name
    if target.parent.is_symlink() or target.parent.parent.is_symlink():
        return False
    there = target.is_symlink() or target.is_file()
    target.unlink(missing_ok=True)
    for place in (target.parent, target.parent.parent):
        with suppress(OSError):
            place.rmdir()
    return there


def _record(row: KindRow, place: str) -> dict[str, Any]:
    record = {"file_name": place, "path": row.path, "coarse": row.coarse, "kind": row.kind}
    return record | {"confidence": row.confidence, "role": row.role}


def _lines(records: Iterable[dict[str, Any]]) -> bytes:
    return "".join(f"{json.dumps(record, ensure_ascii=False)}\n" for record in records).encode()


def _card(rows: Sequence[KindRow]) -> bytes:
    kinds = len({(row.coarse, row.kind) for row in rows})
    classes = len({row.coarse for row in rows})
    return CARD.format(
        images=counted(len(rows), "image"),
        kinds=counted(kinds, "kind"),
        classes=counted(classes, "coarse class", "coarse classes"),
    ).encode()
