"""The data sets known by name, with what a person wants to know before choosing one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from maskcon.download import Progress
from maskcon.locations import data_root
from maskcon.sources import cifar, fashion_mnist
from maskcon.sources.cifar import Variant
from maskcon.sources.contract import Dataset
from maskcon.sources.embedded import load_embedded


class Loader(Protocol):
    def __call__(
        self, root: Path, *, variant: Variant, download: bool, progress: Progress | None
    ) -> Dataset: ...


@dataclass(frozen=True)
class SourceInfo:
    """One named data set. classes: (coarse, fine); counts: (train, test); available: present on this machine."""

    name: str
    title: str
    summary: str
    classes: tuple[int, int]
    counts: tuple[int, int]
    image: str
    licence: str
    origin_url: str
    how_to_get: str
    available: bool = False


@dataclass(frozen=True)
class Source:
    """How to load a named data set and how to tell whether it is here, beside what there is to say about it."""

    info: SourceInfo
    load: Loader
    is_available: Callable[[Path], bool]


def catalogue(root: Path | None = None) -> list[SourceInfo]:
    """What can be given to `load` by name.

    >>> [info.name for info in catalogue() if info.name == "embedded" and info.available]
    ['embedded']
    """
    folder = data_root(root)
    return [replace(source.info, available=source.is_available(folder)) for source in SOURCES.values()]


def _embedded(root: Path, *, variant: Variant, download: bool, progress: Progress | None) -> Dataset:  # noqa: ARG001
    return load_embedded()


def _fashion(root: Path, *, variant: Variant, download: bool, progress: Progress | None) -> Dataset:  # noqa: ARG001
    return fashion_mnist.load_fashion_mnist(root, download=download, progress=progress)


def _cifar10(root: Path, *, variant: Variant, download: bool, progress: Progress | None) -> Dataset:  # noqa: ARG001
    return cifar.load_cifar10(root, download=download, progress=progress)


def _cifar100(root: Path, *, variant: Variant, download: bool, progress: Progress | None) -> Dataset:  # noqa: ARG001
    return cifar.load_cifar100(root, download=download, progress=progress)


def _toy_good(root: Path, *, variant: Variant, download: bool, progress: Progress | None) -> Dataset:
    return cifar.load_toy("good", root, variant=variant, download=download, progress=progress)


def _toy_bad(root: Path, *, variant: Variant, download: bool, progress: Progress | None) -> Dataset:
    return cifar.load_toy("bad", root, variant=variant, download=download, progress=progress)


def _has_cifar10(root: Path) -> bool:
    return cifar.is_available(cifar.CIFAR10, root)


CIFAR_PAGE = "https://cave.cs.toronto.edu/kriz/cifar.html"
CIFAR_LICENCE = "none stated; for research, cite Krizhevsky (2009)"
CIFAR10_HOW = f"--download (170 MB), or put {cifar.CIFAR10.archive} into the data folder"
FASHION_PAGE = "https://github.com/zalandoresearch/fashion-mnist"

SOURCES: dict[str, Source] = {
    source.info.name: source
    for source in (
        Source(
            SourceInfo(
                name="embedded",
                title="Clothes (part of the package)",
                summary="8,000 Fashion-MNIST items turned, scaled and shifted on backgrounds of their own",
                classes=(4, 10),
                counts=(6_000, 2_000),
                image="32x32 grey",
                licence="MIT (Zalando SE)",
                origin_url=FASHION_PAGE,
                how_to_get="comes with maskcon",
            ),
            load=_embedded,
            is_available=lambda _: True,
        ),
        Source(
            SourceInfo(
                name="fashion-mnist",
                title="Fashion-MNIST",
                summary="all items of Fashion-MNIST in four coarse groups",
                classes=(4, 10),
                counts=(60_000, 10_000),
                image="32x32 grey",
                licence="MIT (Zalando SE)",
                origin_url=FASHION_PAGE,
                how_to_get="--download (31 MB), or Debian's package dataset-fashion-mnist",
            ),
            load=_fashion,
            is_available=lambda root: fashion_mnist.find_folder(root) is not None,
        ),
        Source(
            SourceInfo(
                name="cifartoy-good",
                title="CIFARtoy, good split",
                summary="the paper's toy set: 8 classes of CIFAR-10 as vehicles and animals",
                classes=(2, 8),
                counts=(40_000, 8_000),
                image="32x32 colour",
                licence=CIFAR_LICENCE,
                origin_url=CIFAR_PAGE,
                how_to_get=CIFAR10_HOW,
            ),
            load=_toy_good,
            is_available=_has_cifar10,
        ),
        Source(
            SourceInfo(
                name="cifartoy-bad",
                title="CIFARtoy, bad split",
                summary="the same 8 classes in two mixed groups (which differ by variant: paper or reference)",
                classes=(2, 8),
                counts=(40_000, 8_000),
                image="32x32 colour",
                licence=CIFAR_LICENCE,
                origin_url=CIFAR_PAGE,
                how_to_get=CIFAR10_HOW,
            ),
            load=_toy_bad,
            is_available=_has_cifar10,
        ),
        Source(
            SourceInfo(
                name="cifar10",
                title="CIFAR-10",
                summary="all 10 classes, as animals and vehicles",
                classes=(2, 10),
                counts=(50_000, 10_000),
                image="32x32 colour",
                licence=CIFAR_LICENCE,
                origin_url=CIFAR_PAGE,
                how_to_get=CIFAR10_HOW,
            ),
            load=_cifar10,
            is_available=_has_cifar10,
        ),
        Source(
            SourceInfo(
                name="cifar100",
                title="CIFAR-100",
                summary="100 classes in the 20 coarse ones of the set itself, as in the paper",
                classes=(20, 100),
                counts=(50_000, 10_000),
                image="32x32 colour",
                licence=CIFAR_LICENCE,
                origin_url=CIFAR_PAGE,
                how_to_get=f"--download (169 MB), or put {cifar.CIFAR100.archive} into the data folder",
            ),
            load=_cifar100,
            is_available=lambda root: cifar.is_available(cifar.CIFAR100, root),
        ),
    )
}
