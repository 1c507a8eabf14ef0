"""What is known of a dataset by name, and how it is read: as arrays, or as images that are decoded once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from maskcon._utils.download import Progress
from maskcon.data.dataset import Dataset, Grouping, Variant
from maskcon.data.image_list import Listing


@dataclass(frozen=True)
class WantedFile:
    """A file or folder that the data folder should hold; md5: the checksums known, one for each release."""

    name: str
    md5: tuple[str, ...] = ()


@dataclass(frozen=True)
class SourceInfo:
    """One named dataset, as a person wants to know it before choosing one.

    classes: (coarse, fine); counts: (train, test); image: size and colour
    family: kind of images, by which fitting views are chosen
    class_order: how the fine classes are numbered
    download_mb: what --download fetches, None where it cannot
    available: present on this machine
    """

    name: str
    title: str
    summary: str
    classes: tuple[int, int]
    counts: tuple[int, int]
    image: str
    licence: str
    origin_url: str
    how_to_get: str
    family: str
    class_order: str
    citation: str
    files: tuple[WantedFile, ...] = ()
    download_mb: int | None = None
    available: bool = False


Result_co = TypeVar("Result_co", covariant=True)


class Reader(Protocol[Result_co]):
    """Read a named dataset, or its lists, from the data folder."""

    def __call__(
        self, root: Path, *, variant: Variant, download: bool, progress: Progress | None
    ) -> Result_co: ...


@dataclass(frozen=True)
class Source:
    """What there is to say about a named dataset, and how to look at it without loading it.

    missing: data folder -> what is not there, one line each
    grouping: data folder, variant -> the classes, or one line on why they are unknown
    """

    info: SourceInfo
    missing: Callable[[Path], tuple[str, ...]]
    coarse_names: tuple[str, ...]
    grouping: Callable[[Path, Variant], Grouping | str]


@dataclass(frozen=True)
class ArraySource(Source):
    """A dataset that comes as arrays; converted: into memory-mapped files, when it is first loaded."""

    load: Reader[Dataset]
    converted: bool = False


@dataclass(frozen=True)
class PictureSource(Source):
    """A dataset of images of many sizes, which are decoded onto a canvas."""

    listing: Reader[Listing]


@dataclass(frozen=True)
class Description:
    """All about one dataset on this machine.

    missing: what is not in `folder`, one line each
    grouping: the coarse class of every fine one; None where `why_no_grouping` says why it is unknown
    """

    info: SourceInfo
    variant: Variant
    folder: Path
    missing: tuple[str, ...]
    coarse_names: tuple[str, ...]
    grouping: Grouping | None
    why_no_grouping: str | None
