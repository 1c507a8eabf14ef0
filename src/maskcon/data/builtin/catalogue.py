"""What a person wants to know about the data sets known by name, before choosing one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

from maskcon._utils.errors import unknown
from maskcon._utils.paths import data_root
from maskcon.data.builtin.registry import SOURCES
from maskcon.data.dataset import Grouping, Variant
from maskcon.data.source import SourceInfo


@dataclass(frozen=True)
class Description:
    """All about one data set on this machine.

    missing: what is not in `folder`, one line each
    grouping: the coarse class of every fine one; None where `why_no_grouping` says why it cannot be told
    """

    info: SourceInfo
    variant: Variant
    folder: Path
    missing: tuple[str, ...]
    coarse_names: tuple[str, ...]
    grouping: Grouping | None
    why_no_grouping: str | None


def catalogue(root: Path | None = None) -> list[SourceInfo]:
    """What can be given to `load` by name.

    >>> [info.name for info in catalogue() if info.name == "embedded" and info.available]
    ['embedded']
    """
    folder = data_root(root)
    return [replace(source.info, available=not source.missing(folder)) for source in SOURCES.values()]


def describe(name: str, root: Path | None = None, *, variant: Variant = "paper") -> Description:
    """The data set of this name, with its classes; loads no image.

    >>> describe("cifartoy-good").grouping.coarse_of
    (0, 0, 1, 1, 1, 1, 0, 0)
    """
    source = SOURCES.get(name)
    if source is None:
        raise unknown("data set", name, SOURCES)
    if variant not in get_args(Variant):
        raise unknown("variant", variant, get_args(Variant))
    folder = data_root(root)
    missing = source.missing(folder)
    found = source.grouping(folder, variant)
    return Description(
        info=replace(source.info, available=not missing),
        variant=variant,
        folder=folder,
        missing=missing,
        coarse_names=source.coarse_names,
        grouping=None if isinstance(found, str) else found,
        why_no_grouping=found if isinstance(found, str) else None,
    )
