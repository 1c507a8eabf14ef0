"""Register the datasets known by name; datasets.toml describes each."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any, get_args

from maskcon._utils.errors import MaskconError, unknown
from maskcon._utils.paths import data_root
from maskcon.data.builtin import cars196, cifar, fashion_mnist, imagenet32, sop
from maskcon.data.dataset import Dataset, Grouping, Variant
from maskcon.data.folder_layout import Layout


@dataclass(frozen=True)
class WantedFile:
    """A file or folder that the data folder should hold; md5: one per release."""

    name: str
    md5: tuple[str, ...] = ()


@dataclass(frozen=True)
class SourceInfo:
    """Facts about a named dataset that help to choose one.

    classes: (coarse, fine); counts: (train, test); image: size and colour
    family: kind of images, which decides about the views
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


@dataclass(frozen=True)
class Source:
    """A named dataset: its description and its reader.

    missing: data folder -> what is not there, one line each
    grouping: data folder, variant -> the classes; without fine ones where these are unknown
    load: reads a dataset that comes as arrays; listing: lists the images of one that is decoded onto a canvas.
        Of the two exactly one is given; both take (data folder, variant=, download=, progress=).
    """

    info: SourceInfo
    missing: Callable[[Path], tuple[str, ...]]
    grouping: Callable[[Path, Variant], Grouping]
    load: Callable[..., Dataset] | None = None
    listing: Callable[..., Layout] | None = None


@dataclass(frozen=True)
class Description:
    """Description of one dataset and its state on this machine.

    missing: what is not in `folder`, one line each
    grouping: the classes; without fine ones where these are known only once the dataset is here
    """

    info: SourceInfo
    variant: Variant
    folder: Path
    missing: tuple[str, ...]
    grouping: Grouping


def _source(
    name: str,
    grouping: Callable[[Path, Variant], Grouping],
    missing: Callable[[Path], tuple[str, ...]],
    wanted: Mapping[str, tuple[str, ...]],
    **reader: Any,
) -> Source:
    entry: dict[str, Any] = dict(_INFO[name])
    classes, counts = tuple(entry.pop("classes")), tuple(entry.pop("counts"))
    files = tuple(WantedFile(file, md5) for file, md5 in wanted.items())
    return Source(
        SourceInfo(name=name, files=files, classes=classes, counts=counts, **entry),
        missing,
        grouping,
        **reader,
    )


def _cifar(name: cifar.Name) -> Source:
    release = cifar.CIFAR100 if name == "cifar100" else cifar.CIFAR10
    return _source(
        name,
        lambda _, variant: cifar.grouping(name, variant),
        release.missing,
        {release.archive: (release.md5,)},
        load=partial(cifar.load_cifar, name),
    )


def _sop(split: sop.SplitName) -> Source:
    def products(root: Path, variant: Variant) -> Grouping:
        """Read the products of a split, which only the dataset's own lists contain."""
        try:
            listed = (
                sop.sop_listing(split, root, variant=variant).grouping if sop.RELEASE.find(root) else None
            )
        except MaskconError:
            listed = None
        return listed or Grouping(sop.COARSE_NAMES, (), ())

    return _source(
        f"sop-{split}",
        products,
        sop.RELEASE.missing,
        {sop.RELEASE.archive: (sop.RELEASE.md5,)},
        listing=partial(sop.sop_listing, split),
    )


_INFO = tomllib.loads(files("maskcon.data.builtin").joinpath("datasets.toml").read_text(encoding="utf-8"))
_ALL: tuple[Source, ...] = (
    _source(
        "embedded",
        lambda *_: fashion_mnist.CLASSES,
        lambda _: (),
        {},
        load=lambda *_, **__: fashion_mnist.load_embedded(),
    ),
    _source(
        "fashion-mnist",
        lambda *_: fashion_mnist.CLASSES,
        fashion_mnist.missing,
        {f"{fashion_mnist.FOLDER}/{name}": (md5,) for name, md5 in fashion_mnist.MD5.items()},
        load=fashion_mnist.load_fashion_mnist,
    ),
    *(_cifar(name) for name in get_args(cifar.Name)),
    _source(
        "imagenet32",
        lambda *_: imagenet32.GROUPING,
        imagenet32.missing,
        imagenet32.KNOWN_MD5,
        load=imagenet32.load_imagenet32,
    ),
    *(_sop(split) for split in get_args(sop.SplitName)),
    _source(
        "cars196",
        lambda _, variant: cars196.grouping(variant),
        cars196.missing,
        {"cars196/train/<model>/": (), "cars196/test/<model>/": ()},
        listing=cars196.cars_listing,
    ),
)
SOURCES: dict[str, Source] = {source.info.name: source for source in _ALL}


def catalogue(root: Path | None = None) -> list[SourceInfo]:
    """List the datasets that `load` takes by name.

    >>> [info.name for info in catalogue() if info.name == "embedded" and info.available]
    ['embedded']
    """
    folder = data_root(root)
    return [replace(source.info, available=not source.missing(folder)) for source in SOURCES.values()]


def describe(name: str, root: Path | None = None, *, variant: Variant = "paper") -> Description:
    """Describe a dataset and its classes without loading images.

    >>> describe("cifartoy-good").grouping.coarse_of
    (0, 0, 1, 1, 1, 1, 0, 0)
    """
    source = SOURCES.get(name)
    if source is None:
        raise unknown("dataset", name, SOURCES)
    if variant not in get_args(Variant):
        raise unknown("variant", variant, get_args(Variant))
    folder = data_root(root)
    missing = source.missing(folder)
    info = replace(source.info, available=not missing)
    return Description(info, variant, folder, missing, source.grouping(folder, variant))
