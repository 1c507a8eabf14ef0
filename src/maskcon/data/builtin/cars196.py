"""`cars196`: Stanford Cars, 196 models in 8 body types; 8,144 images to train on and 8,041 to test.

Read from cars196/ or stanford_cars/ in the data folder, or from that folder itself, in one of these layouts:

cars_train/, cars_test/ + cars_train_annos.mat, cars_test_annos_withlabels.mat     the set as first published
car_ims/ + cars_annos.mat                                                          its second edition
train/<model>/, test/<model>/, also below car_data/ or car_data/car_data/          what copies hand out now

The .mat files may lie in devkit/. The first complete layout is used. Images are taken whole, as in the authors'
code: the boxes around the cars, which the annotations give as well, are not used.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from maskcon._utils.download import Progress
from maskcon._utils.errors import CorruptFileError, DataError
from maskcon._utils.paths import has_file, has_folder
from maskcon.data.builtin.car_annotations import (
    CLASS_OF_KEY,
    COARSE_NAMES,
    FINE_NAMES,
    Annotation,
    check_meta,
    coarse_of,
    name_key,
    read_annotations,
)
from maskcon.data.dataset import Variant
from maskcon.data.folder_layout import path_hash, read_layout, show, some
from maskcon.data.image_list import Listed, Listing

__all__ = ["COARSE_NAMES", "FINE_NAMES", "cars_listing", "coarse_of", "missing"]

OFFICIAL_COUNTS = (8_144, 8_041)
FOLDERS = ("cars196", "stanford_cars", "")
WHERE_FROM = (
    "the first address (ai.stanford.edu) is gone; copies are on kaggle.com "
    "(for example cyizhuo/stanford-cars-by-classes-folder) and huggingface.co"
)


def cars_listing(
    root: Path,
    *,
    variant: Variant = "paper",
    download: bool = False,
    progress: Progress | None = None,  # noqa: ARG001 - nothing to fetch
) -> Listing:
    """Read the annotations or folder names; opens no image.

    variant: 7 wagons and 12 vans as the paper counts them, or 6 and 13 as its authors' code has it.
    download: there is no address left to fetch it from; says so if the set is not here.
    """
    place = _find(root)
    if place.lacking:
        raise DataError(_absence(root, place, download))
    train, test, notes = _READERS[place.kind](place)
    counts = (len(train), len(test))
    if counts != OFFICIAL_COUNTS:
        notes.append(
            f"{counts[0]} + {counts[1]} images are listed; the official Stanford Cars has "
            f"{OFFICIAL_COUNTS[0]} + {OFFICIAL_COUNTS[1]}"
        )
    if variant == "reference":
        notes.append(
            "'Ford E-Series Wagon Van 2012' is a van, as in the authors' code; the paper counts a wagon"
        )
    return Listing(
        name="cars196",
        title="Stanford Cars",
        folder=place.folder,
        family="cars",
        coarse_names=COARSE_NAMES,
        fine_names=FINE_NAMES,
        coarse_of_fine=coarse_of(variant),
        train=tuple(train),
        test=tuple(test),
        notes=tuple(notes),
    )


def missing(root: Path) -> tuple[str, ...]:
    """What is not here, one line each, of the layout that is nearest to being complete; empty if one is complete."""
    place = _find(root)
    if place.lacking and not place.found:
        return (f"Stanford Cars, to be put into {root / FOLDERS[0]}; {WHERE_FROM}",)
    return tuple(f"{name} in {place.folder}" for name in place.lacking)


Kind = Literal["pair", "whole", "folders"]
Parts = tuple[list[Listed], list[Listed], list[str]]  # train, test, notes


@dataclass(frozen=True)
class _Place:
    """A folder seen as one of the layouts: what of it is there, and what is lacking."""

    kind: Kind
    folder: Path
    found: dict[str, Path] = field(default_factory=dict)
    lacking: tuple[str, ...] = ()


def _find(root: Path) -> _Place:
    """The first complete layout; if there is none, the one of which least is lacking, whole absences last."""
    places = list(_places(root))
    complete = [place for place in places if not place.lacking]
    return complete[0] if complete else min(places, key=lambda place: (not place.found, len(place.lacking)))


def _places(root: Path) -> Iterator[_Place]:
    for name in FOLDERS:
        base = root / name
        yield _seen_as(
            "pair",
            base,
            ("cars_train_annos.mat", "cars_test_annos_withlabels.mat"),
            ("cars_train", "cars_test"),
        )
        yield _seen_as("whole", base, ("cars_annos.mat",), ("car_ims",))
        for inner in ("", "car_data", "car_data/car_data"):
            yield _seen_as("folders", base / inner, (), ("train", "test"))


def _seen_as(kind: Kind, base: Path, files: tuple[str, ...], folders: tuple[str, ...]) -> _Place:
    candidates = {name: (base / name, base / "devkit" / name) for name in files}
    for name in folders:
        # copies unpacked into a folder of their own name leave cars_train/cars_train/
        candidates[name] = (base / name if kind == "folders" else base / name / name, base / name)
    found: dict[str, Path] = {}
    for name, paths in candidates.items():
        for path in paths:
            there = has_file(path) if name in files else has_folder(path)
            if there and (kind != "folders" or _has_models(path)):
                found.setdefault(name, path)
    return _Place(kind, base, found, tuple(name for name in candidates if name not in found))


def _has_models(folder: Path) -> bool:
    """Does a sub-folder have a model's name? Any dataset may have a folder called train."""
    try:
        return any(name_key(path.name) in CLASS_OF_KEY for path in folder.iterdir())
    except OSError:
        return False


def _absence(root: Path, place: _Place, download: bool) -> str:
    cannot = "cannot be downloaded by itself: " if download else ""
    if not place.found:
        return (
            f"Stanford Cars was not found in {root / FOLDERS[0]}; {cannot}{WHERE_FROM}. "
            "Put train/ and test/ (one sub-folder per model), or the images with their .mat annotations, there"
        )
    return (
        f"Stanford Cars in {place.folder} is not complete: {' and '.join(place.lacking)} not found beside "
        f"{some(sorted(place.found))}; {cannot}{WHERE_FROM}"
    )


def _read_pair(place: _Place) -> Parts:
    _check_meta_beside(place.folder)
    parts = []
    for part, source in (
        ("cars_train", "cars_train_annos.mat"),
        ("cars_test", "cars_test_annos_withlabels.mat"),
    ):
        rows = read_annotations(place.found[source], path_field="fname", depth=1, has_test=False)
        inner = place.found[part].relative_to(place.folder).as_posix()
        parts.append([_listed(row, f"{inner}/{row.path}", f"{part}/{row.path}") for row in rows])
    return parts[0], parts[1], []


def _read_whole(place: _Place) -> Parts:
    _check_meta_beside(place.folder)
    source = place.found["cars_annos.mat"]
    rows = read_annotations(source, path_field="relative_im_path", depth=2, has_test=True)
    inner = place.found["car_ims"].relative_to(place.folder).as_posix()
    parts: dict[bool, list[Listed]] = {False: [], True: []}
    for row in rows:
        folder, name = row.path.split("/")
        if folder != "car_ims":
            raise CorruptFileError(f"{source}: {row.path!r} does not lie in car_ims/")
        parts[bool(row.is_test)].append(_listed(row, f"{inner}/{name}", row.path))
    return parts[False], parts[True], []


def _listed(row: Annotation, path: str, official: str) -> Listed:
    return Listed(path, row.fine, path_hash(official))  # the id stays if the set lies one folder deeper


def _read_folders(place: _Place) -> Parts:
    layout = read_layout(place.folder)
    parts: dict[bool, list[Listed]] = {False: [], True: []}
    folder_of: dict[tuple[bool, int], str] = {}
    for found in layout.files:
        if found.fine is not None:
            raise DataError(f"{show(found.path)} lies too deep; expected train/<model>/image.jpg")
        fine = CLASS_OF_KEY.get(name_key(found.coarse))
        if fine is None:
            near = difflib.get_close_matches(found.coarse, FINE_NAMES, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise DataError(
                f"{place.folder}: {show(found.coarse)!r} is none of the {len(FINE_NAMES)} models of Stanford Cars{hint}"
            )
        first = folder_of.setdefault((found.is_test, fine), found.coarse)
        if first != found.coarse:
            raise DataError(
                f"{place.folder}: {show(first)!r} and {show(found.coarse)!r} are one model, {FINE_NAMES[fine]!r}; "
                "keep one of the two folders"
            )
        part = "test" if found.is_test else "train"
        official = f"{part}/{FINE_NAMES[fine]}/{found.path.rpartition('/')[2]}"
        parts[found.is_test].append(Listed(found.path, fine, path_hash(official)))
    notes = list(layout.notes)
    absent = [
        FINE_NAMES[fine] for fine in sorted(set(range(len(FINE_NAMES))) - {row.fine for row in parts[False]})
    ]
    if absent:
        notes.append(f"{len(absent)} models without an image to train on: {some(absent)}")
    if layout.unreadable:
        notes.append(f"not looked at: {some([f'{show(path)} ({why})' for path, why in layout.unreadable])}")
    if layout.ignored_files:
        notes.append(f"{layout.ignored_files} other files (hidden, not images, or in no class) were ignored")
    return parts[False], parts[True], notes


def _check_meta_beside(folder: Path) -> None:
    for path in (folder / "cars_meta.mat", folder / "devkit" / "cars_meta.mat"):
        if has_file(path):
            check_meta(path)


_READERS = {"pair": _read_pair, "whole": _read_whole, "folders": _read_folders}
