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
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from maskcon._utils.download import Progress
from maskcon._utils.errors import CorruptFileError, DataError
from maskcon._utils.paths import has_file, has_folder
from maskcon.data.builtin.classes import count_notes, read_grouping
from maskcon.data.builtin.matlab import Value, read_mat
from maskcon.data.builtin.release import plain_path
from maskcon.data.dataset import Grouping, Variant
from maskcon.data.folder_layout import Found, Layout, path_hash, read_layout, show, some

COARSE_NAMES, FINE_NAMES = read_grouping("cars196").coarse_names, read_grouping("cars196").fine_names
# DEVIATES: the paper's counts have a seventh wagon, which can only be this one; the authors' code has it as a van
REFERENCE_VAN = "Ford E-Series Wagon Van 2012"
OFFICIAL_COUNTS = (8_144, 8_041)
FOLDERS = ("cars196", "stanford_cars", "")
WHERE_FROM = (
    "the first address (ai.stanford.edu) is gone; copies are on kaggle.com "
    "(for example cyizhuo/stanford-cars-by-classes-folder) and huggingface.co"
)


def grouping(variant: Variant = "paper") -> Grouping:
    """Return the body type of each model.

    The paper counts 7 wagons and 12 vans, the authors' code 6 and 13.

    >>> grouping().coarse_of[:6], grouping("paper").coarse_of.count(6), grouping("reference").coarse_of.count(6)
    ((2, 1, 1, 1, 1, 4), 7, 6)
    """
    classes = read_grouping("cars196")
    if variant == "paper":
        return classes
    van, place = COARSE_NAMES.index("Van"), FINE_NAMES.index(REFERENCE_VAN)
    return replace(classes, coarse_of=(*classes.coarse_of[:place], van, *classes.coarse_of[place + 1 :]))


def cars_listing(
    root: Path,
    *,
    variant: Variant = "paper",
    download: bool = False,
    progress: Progress | None = None,  # noqa: ARG001 - nothing to fetch
) -> Layout:
    """Read the annotations or folder names; opens no image.

    variant: see `grouping`; download: there is no address left to fetch it from; says so if the set is not here.
    """
    place = _find(root)
    if place.lacking:
        raise DataError(_absence(root, place, download))
    parts: Parts = {False: [], True: []}
    notes = _read_folders(place, parts) if place.kind == "folders" else _read_annotated(place, parts)
    notes += count_notes("Stanford Cars", (len(parts[False]), len(parts[True])), OFFICIAL_COUNTS)
    classes = grouping(variant)
    if variant == "reference":
        notes.append(f"{REFERENCE_VAN!r} is a van, as in the authors' code; the paper counts a wagon")
    return Layout(
        name="cars196",
        kind="cars196",
        root=place.folder,
        where=f"Stanford Cars: {place.folder}",
        expected="",
        grouping=classes,
        family="cars",
        has_parts=True,
        files=[
            Found(
                path,
                is_test,
                COARSE_NAMES[classes.coarse_of[fine]],
                FINE_NAMES[fine],
                index=path_hash(official),
            )
            for is_test, images in parts.items()
            for path, fine, official in images
        ],
        notes=notes,
    )


def missing(root: Path) -> tuple[str, ...]:
    """List what the most complete layout lacks, one line each."""
    place = _find(root)
    if place.lacking and not place.found:
        return (f"Stanford Cars, to be put into {root / FOLDERS[0]}; {WHERE_FROM}",)
    return tuple(f"{name} in {place.folder}" for name in place.lacking)


Kind = Literal["pair", "whole", "folders"]
Parts = dict[
    bool, list[tuple[str, int, str]]
]  # is it to test on? -> path, class, and the path that its id is of


@dataclass(frozen=True)
class _Place:
    """A folder seen as one of the layouts: what of it is there, and what is lacking."""

    kind: Kind
    folder: Path
    found: dict[str, Path] = field(default_factory=dict)
    lacking: tuple[str, ...] = ()


def _find(root: Path) -> _Place:
    """Find the first complete layout, else the one that lacks least."""
    places = list(_places(root))
    complete = [place for place in places if not place.lacking]
    return complete[0] if complete else min(places, key=lambda place: (not place.found, len(place.lacking)))


def _places(root: Path) -> Iterator[_Place]:
    pair = ("cars_train_annos.mat", "cars_test_annos_withlabels.mat", "cars_train", "cars_test")
    for base in (root / name for name in FOLDERS):
        yield _seen_as("pair", base, pair)
        yield _seen_as("whole", base, ("cars_annos.mat", "car_ims"))
        for inner in ("", "car_data", "car_data/car_data"):
            yield _seen_as("folders", base / inner, ("train", "test"))


def _seen_as(kind: Kind, base: Path, names: tuple[str, ...]) -> _Place:
    found: dict[str, Path] = {}
    for name in names:
        if name.endswith(".mat"):
            there = [path for path in (base / name, base / "devkit" / name) if has_file(path)]
        elif kind == "folders":
            there = [base / name] if _has_models(base / name) else []
        else:  # copies unpacked into a folder of their own name leave cars_train/cars_train/
            there = [path for path in (base / name / name, base / name) if has_folder(path)]
        if there:
            found[name] = there[0]
    return _Place(kind, base, found, tuple(name for name in names if name not in found))


def _has_models(folder: Path) -> bool:
    """Tell whether a sub-folder has a model's name, as in no other dataset."""
    try:
        return any(_name_key(path.name) in CLASS_OF_KEY for path in folder.iterdir())
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


def _read_annotated(place: _Place, parts: Parts) -> list[str]:
    for path in (place.folder / "cars_meta.mat", place.folder / "devkit" / "cars_meta.mat"):
        if has_file(path):
            _check_class_names(path, read_mat(path, ("class_names",)).get("class_names"))
    for source in (name for name in place.found if name.endswith(".mat")):
        for name, fine, flag in _annotations(place.found[source], second_edition=place.kind == "whole"):
            is_test = source.startswith("cars_test") if flag is None else flag
            folder = "car_ims" if place.kind == "whole" else "cars_test" if is_test else "cars_train"
            inner = place.found[folder].relative_to(place.folder).as_posix()
            # the id stays if the set lies one folder deeper
            parts[is_test].append((f"{inner}/{name}", fine, f"{folder}/{name}"))
    return []


def _annotations(path: Path, *, second_edition: bool) -> Iterator[tuple[str, int, bool | None]]:
    """Yield file name, class from 0 and test flag (None if absent) per image."""
    content = read_mat(path, ("annotations", "class_names"))
    if "class_names" in content:
        _check_class_names(path, content["class_names"])
    table = content.get("annotations")
    structs = [row for row in table if isinstance(row, dict)] if isinstance(table, list) else []
    if not structs or len(structs) != len(table or ()):
        raise CorruptFileError(f"{path}: 'annotations' should be a struct array with one row per image")
    path_field, folder = ("relative_im_path", "car_ims/") if second_edition else ("fname", "")
    seen: set[str] = set()
    for number, row in enumerate(structs, start=1):
        where = f"{path}: annotation {number}"
        file = row.get(path_field)
        if not isinstance(file, str) or not plain_path(file, 2 if second_edition else 1):
            raise CorruptFileError(f"{where}: {path_field!r} is no plain path of an image: {file!r}")
        if not file.startswith(folder):
            raise CorruptFileError(f"{where}: {file!r} does not lie in {folder}")
        if "class" not in row:
            raise CorruptFileError(
                f"{where} has no 'class'; the test annotations with labels are in cars_test_annos_withlabels.mat"
            )
        label = _whole(row["class"])
        if label is None or not 1 <= label <= len(FINE_NAMES):
            raise CorruptFileError(f"{where}: 'class' should lie in 1..{len(FINE_NAMES)}, got {row['class']}")
        flag = _whole(row.get("test")) if second_edition else None
        if second_edition and flag not in (0, 1):
            raise CorruptFileError(f"{where}: 'test' should be 0 or 1, got {row.get('test')}")
        if file in seen:
            raise CorruptFileError(f"{where}: {file!r} is annotated twice")
        seen.add(file)
        yield file.removeprefix(folder), label - 1, None if flag is None else bool(flag)


def _check_class_names(path: Path, names: Value | None) -> None:
    """Refuse another numbering of the classes; accept unknown spellings."""
    if not isinstance(names, list) or len(names) != len(FINE_NAMES):
        raise CorruptFileError(f"{path}: 'class_names' should hold {len(FINE_NAMES)} names")
    for place, given in enumerate(names):
        if not isinstance(given, str):
            raise CorruptFileError(f"{path}: name {place + 1} of 'class_names' is not text")
        if CLASS_OF_KEY.get(_name_key(given), place) != place:
            raise CorruptFileError(
                f"{path}: class {place + 1} is {given!r}, in Stanford Cars it is {FINE_NAMES[place]!r}"
            )


def _whole(value: Value | None) -> int | None:
    """Return the whole number in a 1 x 1 array, else None."""
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], int | float):
        number = float(value[0])
        return int(number) if number.is_integer() else None
    return None


def _read_folders(place: _Place, parts: Parts) -> list[str]:
    layout = read_layout(place.folder)
    folder_of: dict[tuple[bool, int], str] = {}
    for found in layout.files:
        if found.fine is not None:
            raise DataError(f"{show(found.path)} lies too deep; expected train/<model>/image.jpg")
        fine = CLASS_OF_KEY.get(_name_key(found.coarse))
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
        parts[found.is_test].append((found.path, fine, official))
    notes = list(layout.notes)
    seen = {fine for _, fine, _ in parts[False]}
    absent = [name for fine, name in enumerate(FINE_NAMES) if fine not in seen]
    if absent:
        notes.append(f"{len(absent)} models without an image to train on: {some(absent)}")
    if layout.unreadable:
        notes.append(f"not looked at: {some([f'{show(path)} ({why})' for path, why in layout.unreadable])}")
    if layout.ignored_files:
        notes.append(f"{layout.ignored_files} other files (hidden, not images, or in no class) were ignored")
    return notes


def _name_key(name: str) -> str:
    """Reduce a model name to letters and digits; copies differ in the rest.

    >>> _name_key("Ram C/V Cargo Van Minivan 2012") == _name_key("ram_c-v_cargo_van_minivan_2012")
    True
    """
    return re.sub(r"[^0-9a-z]", "", name.casefold())


CLASS_OF_KEY: Mapping[str, int] = {_name_key(name): label for label, name in enumerate(FINE_NAMES)}
