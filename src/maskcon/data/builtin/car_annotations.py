"""Classes and annotations of Stanford Cars: the models with their body types, and its MATLAB files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from maskcon._utils.errors import CorruptFileError
from maskcon.data.builtin.classes import read_grouping
from maskcon.data.builtin.matlab import Value, read_mat
from maskcon.data.dataset import Variant
from maskcon.data.image_list import plain_path

COARSE_NAMES, FINE_NAMES = read_grouping("cars196").coarse_names, read_grouping("cars196").fine_names
# DEVIATES: the paper's counts have a seventh wagon, which can only be this one; the authors' code has it as a van
REFERENCE_TYPES = {"Ford E-Series Wagon Van 2012": "Van"}


def coarse_of(variant: Variant = "paper") -> tuple[int, ...]:
    """List the body type of each model, by class number.

    >>> coarse_of()[:6], coarse_of("paper").count(6), coarse_of("reference").count(6)
    ((2, 1, 1, 1, 1, 4), 7, 6)
    """
    types = list(read_grouping("cars196").coarse_of)
    if variant == "reference":
        for model, body_type in REFERENCE_TYPES.items():
            types[FINE_NAMES.index(model)] = COARSE_NAMES.index(body_type)
    return tuple(types)


def name_key(name: str) -> str:
    """Reduce a model name to letters and digits, since copies of the dataset differ in case and signs.

    >>> name_key("Ram C/V Cargo Van Minivan 2012") == name_key("ram_c-v_cargo_van_minivan_2012")
    True
    """
    return re.sub(r"[^0-9a-z]", "", name.casefold())


CLASS_OF_KEY: Mapping[str, int] = {name_key(name): label for label, name in enumerate(FINE_NAMES)}


@dataclass(frozen=True)
class Annotation:
    """One image: the path as the file gives it, its class from 0, and whether it is to test on (where said)."""

    path: str
    fine: int
    is_test: bool | None


def read_annotations(path: Path, *, path_field: str, depth: int, has_test: bool) -> list[Annotation]:
    """The rows of the struct array `annotations`.

    path_field: the field that names the image ("fname", or "relative_im_path" in cars_annos.mat)
    depth: components of that path; has_test: whether a field `test` of 0 or 1 tells the part
    """
    content = read_mat(path, ("annotations", "class_names"))
    if "class_names" in content:
        _check_class_names(path, content["class_names"])
    table = content.get("annotations")
    structs = [row for row in table if isinstance(row, dict)] if isinstance(table, list) else []
    if not structs or len(structs) != len(table or ()):
        raise CorruptFileError(f"{path}: 'annotations' should be a struct array with one row per image")
    rows = []
    for number, row in enumerate(structs, start=1):
        where = f"{path}: annotation {number}"
        file = row.get(path_field)
        if not isinstance(file, str) or not plain_path(file, depth):
            raise CorruptFileError(f"{where}: {path_field!r} is no plain path of an image: {file!r}")
        if "class" not in row:
            raise CorruptFileError(
                f"{where} has no 'class'; the test annotations with labels are in cars_test_annos_withlabels.mat"
            )
        label = _whole(row["class"])
        if label is None or not 1 <= label <= len(FINE_NAMES):
            raise CorruptFileError(f"{where}: 'class' should lie in 1..{len(FINE_NAMES)}, got {row['class']}")
        flag = _whole(row.get("test")) if has_test else None
        if has_test and flag not in (0, 1):
            raise CorruptFileError(f"{where}: 'test' should be 0 or 1, got {row.get('test')}")
        rows.append(Annotation(file, label - 1, None if flag is None else bool(flag)))
    if len({row.path for row in rows}) != len(rows):
        raise CorruptFileError(f"{path}: an image is annotated twice")
    return rows


def check_meta(path: Path) -> None:
    """See that `class_names` of cars_meta.mat are those of the set, in its order."""
    content = read_mat(path, ("class_names",))
    if "class_names" not in content:
        raise CorruptFileError(f"{path}: 'class_names' is missing")
    _check_class_names(path, content["class_names"])


def _check_class_names(path: Path, names: Value) -> None:
    """A known name in a wrong place means another numbering; spellings unknown to us are let pass."""
    if not isinstance(names, list) or len(names) != len(FINE_NAMES):
        raise CorruptFileError(f"{path}: 'class_names' should hold {len(FINE_NAMES)} names")
    for place, given in enumerate(names):
        if not isinstance(given, str):
            raise CorruptFileError(f"{path}: name {place + 1} of 'class_names' is not text")
        if CLASS_OF_KEY.get(name_key(given), place) != place:
            raise CorruptFileError(
                f"{path}: class {place + 1} is {given!r}, in Stanford Cars it is {FINE_NAMES[place]!r}"
            )


def _whole(value: Value | None) -> int | None:
    """The whole number that a 1 x 1 array of any numeric type stands for."""
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], int | float):
        number = float(value[0])
        return int(number) if number.is_integer() else None
    return None
