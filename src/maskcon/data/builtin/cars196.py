"""List `cars196`: Stanford Cars, 196 models in 8 body types.

There are 8,144 images to train on and 8,041 to test on. They are read from train/<model>/ and test/<model>/ in cars196/
or stanford_cars/ in the data folder, in car_data/ or car_data/car_data/ there, or in the data folder itself. Copies of
the set have this form; the annotations (.mat) of its first release are not read. Images are not cropped to the car, as
in the authors' code.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from maskcon._utils.download import Progress
from maskcon._utils.errors import DataError
from maskcon.data.builtin.classes import count_notes, read_grouping
from maskcon.data.dataset import Grouping, Variant
from maskcon.data.folder_layout import Found, Layout, path_hash, read_layout, show, some

COARSE_NAMES, FINE_NAMES = read_grouping("cars196").coarse_names, read_grouping("cars196").fine_names
# DEVIATES: the paper's counts have a seventh wagon, which can only be this one; the authors' code has it as a van
REFERENCE_VAN = "Ford E-Series Wagon Van 2012"
OFFICIAL_COUNTS = (8_144, 8_041)
FOLDERS = tuple(
    f"{base}/{inner}"
    for base in ("cars196", "stanford_cars", ".")
    for inner in (".", "car_data", "car_data/car_data")
)
PARTS = ("train", "test")
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
    """Read the names of folders and files; opens no image.

    variant: see `grouping`; download: only mentions that there is no address left to fetch from
    """
    folder, lacking = _find(root)
    if lacking:
        cannot = "cannot be downloaded by itself: " if download else ""
        if len(lacking) < len(PARTS):
            raise DataError(
                f"Stanford Cars in {folder} is not complete: {lacking[0]} not found; {cannot}{WHERE_FROM}"
            )
        raise DataError(
            f"Stanford Cars was not found in {root / 'cars196'}; {cannot}{WHERE_FROM}. "
            "Put train/ and test/ (one sub-folder per model) there"
        )
    layout = read_layout(folder)
    classes = grouping(variant)
    folder_of: dict[tuple[bool, int], str] = {}
    files: list[Found] = []
    for found in layout.files:
        fine = _class_of(folder, found)
        first = folder_of.setdefault((found.is_test, fine), found.coarse)
        if first != found.coarse:
            raise DataError(
                f"{folder}: {show(first)!r} and {show(found.coarse)!r} are one model, {FINE_NAMES[fine]!r}; "
                "keep one of the two folders"
            )
        official = f"{PARTS[found.is_test]}/{FINE_NAMES[fine]}/{found.path.rpartition('/')[2]}"
        coarse = COARSE_NAMES[classes.coarse_of[fine]]
        files.append(Found(found.path, found.is_test, coarse, FINE_NAMES[fine], index=path_hash(official)))
    counts = [sum(found.is_test == is_test for found in files) for is_test in (False, True)]
    seen = {found.fine for found in files if not found.is_test}
    absent = [name for name in FINE_NAMES if name not in seen]
    notes = [*layout.notes, *count_notes("Stanford Cars", (counts[0], counts[1]), OFFICIAL_COUNTS)]
    if absent:
        notes.append(f"{len(absent)} models without an image to train on: {some(absent)}")
    if variant == "reference":
        notes.append(f"{REFERENCE_VAN!r} is a van, as in the authors' code; the paper counts a wagon")
    return replace(
        layout,
        name="cars196",
        kind="cars196",
        where=f"Stanford Cars: {folder}",
        grouping=classes,
        family="cars",
        files=files,
        notes=notes,
    )


def missing(root: Path) -> tuple[str, ...]:
    """List what is not here, one line each."""
    folder, lacking = _find(root)
    if len(lacking) == len(PARTS):
        return (f"Stanford Cars, to be put into {root / 'cars196'}; {WHERE_FROM}",)
    return tuple(f"{name} in {folder}" for name in lacking)


def _find(root: Path) -> tuple[Path, list[str]]:
    """Find the first folder that lacks the fewest parts; return it and what it lacks."""
    found = [
        (root / name, [part for part in PARTS if not _has_models(root / name / part)]) for name in FOLDERS
    ]
    return min(found, key=lambda item: len(item[1]))


def _has_models(folder: Path) -> bool:
    """Tell whether a sub-folder has a model's name, as in no other dataset."""
    try:
        return any(_name_key(path.name) in CLASS_OF_KEY for path in folder.iterdir())
    except OSError:
        return False


def _class_of(folder: Path, found: Found) -> int:
    if found.fine is not None:
        raise DataError(f"{show(found.path)} lies too deep; expected train/<model>/image.jpg")
    fine = CLASS_OF_KEY.get(_name_key(found.coarse))
    if fine is None:
        near = difflib.get_close_matches(found.coarse, FINE_NAMES, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise DataError(
            f"{folder}: {show(found.coarse)!r} is none of the {len(FINE_NAMES)} models of Stanford Cars{hint}"
        )
    return fine


def _name_key(name: str) -> str:
    """Reduce a model name to letters and digits; copies differ in the rest.

    >>> _name_key("Ram C/V Cargo Van Minivan 2012") == _name_key("ram_c-v_cargo_van_minivan_2012")
    True
    """
    return re.sub(r"[^0-9a-z]", "", name.casefold())


CLASS_OF_KEY: Mapping[str, int] = {_name_key(name): label for label, name in enumerate(FINE_NAMES)}
