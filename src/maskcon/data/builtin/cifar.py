"""CIFAR-10, CIFAR-100 and the paper's CIFARtoy, from the official Python files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.download import Progress
from maskcon._utils.errors import CorruptFileError
from maskcon.data.builtin.classes import count_notes, read_grouping
from maskcon.data.builtin.release import Release
from maskcon.data.dataset import Dataset, Grouping, ImageSet, Variant
from maskcon.data.safe_pickle import IMAGE_SHAPE, read_batch

SplitName = Literal["good", "bad"]

CIFAR10_NAMES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
OFFICIAL_TRAIN_COUNT = 50_000  # a test image's id is its row plus this
OFFICIAL_TEST_COUNT = 10_000
UNPACKED_LIMIT = 400_000_000  # both archives unpack to less than 190 MB

# the groups of CIFARtoy, by variant and split
TOY_GROUPS: dict[tuple[Variant, str], tuple[tuple[str, ...], tuple[str, ...]]] = {
    ("paper", "good"): (("airplane", "automobile", "ship", "truck"), ("bird", "cat", "dog", "horse")),
    ("reference", "good"): (("airplane", "automobile", "ship", "truck"), ("bird", "cat", "dog", "horse")),
    ("paper", "bad"): (("airplane", "automobile", "bird", "cat"), ("dog", "horse", "ship", "truck")),
    # DEVIATES: the authors' code groups otherwise than their text; only the variant `reference` follows it
    ("reference", "bad"): (("airplane", "automobile", "cat", "dog"), ("bird", "horse", "ship", "truck")),
}


def _release(title: str, folder: str, archive: str, md5: str, size: str, content: tuple[str, ...]) -> Release:
    # the present address of the authors' page, then the one that papers cite
    pages = ("https://cave.cs.toronto.edu/kriz/", "https://www.cs.toronto.edu/~kriz/")
    urls = tuple(page + archive for page in pages)
    return Release(title, folder, archive, md5, urls, size, content, max_bytes=UNPACKED_LIMIT)


CIFAR10 = _release(
    title="CIFAR-10",
    folder="cifar-10-batches-py",
    archive="cifar-10-python.tar.gz",
    md5="c58f30108f718f92721af3b95e74349a",
    size="170 MB",
    content=(*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"),
)
CIFAR100 = _release(
    title="CIFAR-100",
    folder="cifar-100-python",
    archive="cifar-100-python.tar.gz",
    md5="eb9058c3a382ffc7106e4002c42a8d85",
    size="169 MB",
    content=("train", "test"),
)


def cifar10_grouping() -> Grouping:
    """Group all ten classes as animals and vehicles; the paper has no such grouping."""
    animals = ("bird", "cat", "deer", "dog", "frog", "horse")
    vehicles = ("airplane", "automobile", "ship", "truck")
    return _grouped(("animals", "vehicles"), (animals, vehicles))


def toy_grouping(split: SplitName, variant: Variant = "paper") -> Grouping:
    """Group eight classes into CIFARtoy's two.

    The bad split differs between the paper and the authors' code.

    >>> toy_grouping("good").coarse_of
    (0, 0, 1, 1, 1, 1, 0, 0)
    """
    names = ("vehicles", "animals") if split == "good" else ("class A", "class B")
    return _grouped(names, TOY_GROUPS[variant, split])


def load_cifar(
    name: Literal["cifar10", "cifar100"],
    root: Path,
    *,
    variant: Variant = "paper",  # noqa: ARG001 - one grouping for both
    download: bool = False,
    progress: Progress | None = None,
) -> Dataset:
    """Load CIFAR-10 (animals, vehicles) or CIFAR-100 (20 coarse classes); [N, 3, 32, 32]."""
    if name == "cifar10":
        return _load(CIFAR10, name, cifar10_grouping(), root, download, progress)
    return _load(CIFAR100, name, read_grouping("cifar100"), root, download, progress)


def load_toy(
    split: SplitName,
    root: Path,
    *,
    variant: Variant = "paper",
    download: bool = False,
    progress: Progress | None = None,
) -> Dataset:
    """Load CIFARtoy: 8 classes of CIFAR-10 in 2 groups, see `toy_grouping`."""
    data = _load(CIFAR10, f"cifartoy-{split}", toy_grouping(split, variant), root, download, progress)
    if TOY_GROUPS[variant, split] == TOY_GROUPS["paper", split]:
        return data
    return replace(
        data, notes=(*data.notes, "grouped as in the authors' code, which differs from the paper's text")
    )


def _grouped(coarse_names: tuple[str, ...], groups: tuple[tuple[str, ...], ...]) -> Grouping:
    """Make a grouping of CIFAR-10's classes; classes of no group are left out."""
    group_of = {fine: number for number, group in enumerate(groups) for fine in group}
    kept = tuple(fine for fine in CIFAR10_NAMES if fine in group_of)
    return Grouping(coarse_names, kept, tuple(group_of[fine] for fine in kept))


def _load(
    release: Release, name: str, grouping: Grouping, root: Path, download: bool, progress: Progress | None
) -> Dataset:
    folder = release.get(root, download=download, progress=progress)
    classes = grouping.fine_names if name == "cifar100" else CIFAR10_NAMES
    group_of = dict(zip(grouping.fine_names, grouping.coarse_of, strict=True))
    coarse_by_label = np.array([group_of.get(fine, -1) for fine in classes], dtype=np.int64)  # -1: left out
    *train_files, test_file = (folder / file for file in release.content)
    own = grouping if name == "cifar100" else None
    train = _read_part(train_files, coarse_by_label, 0, own)
    test = _read_part([test_file], coarse_by_label, OFFICIAL_TRAIN_COUNT, own)
    parts = [_only_grouped(part, coarse_by_label) for part in (train, test)]
    notes = count_notes(release.title, (len(train), len(test)), (OFFICIAL_TRAIN_COUNT, OFFICIAL_TEST_COUNT))
    return grouping.dataset(name, "cifar", *parts, notes=notes)


def _only_grouped(part: ImageSet, coarse_by_label: NDArray[np.int64]) -> ImageSet:
    """Keep the images of classes that have a group, with their fine labels renumbered from 0."""
    if part.fine is None or (coarse_by_label >= 0).all():
        return part
    kept = part.subset(np.flatnonzero(part.coarse >= 0))
    new_label = np.cumsum(coarse_by_label >= 0) - 1
    return ImageSet(kept.images, kept.coarse, new_label[part.fine[part.coarse >= 0]], kept.index)


def _read_part(
    files: Sequence[Path], coarse_by_label: NDArray[np.int64], first_id: int, own: Grouping | None
) -> ImageSet:
    read = [_read_batch(path, len(coarse_by_label), own) for path in files]
    images = np.concatenate([images for images, _ in read])
    fine = np.concatenate([fine for _, fine in read])
    return ImageSet(images, coarse_by_label[fine], fine, np.arange(len(fine), dtype=np.int64) + first_id)


def _read_batch(
    path: Path, class_count: int, own: Grouping | None
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Read images [N, 3, 32, 32] and fine labels [N] of one file.

    own: the grouping, which CIFAR-100 stores as well.
    """
    if own is None:
        pixels, labels = read_batch(path, labels=range(class_count))
        fine = labels["labels"]
    else:
        coarse_range = range(len(own.coarse_names))
        pixels, labels = read_batch(path, fine_labels=range(class_count), coarse_labels=coarse_range)
        fine = labels["fine_labels"]
        if not np.array_equal(labels["coarse_labels"], np.array(own.coarse_of)[fine]):
            raise CorruptFileError(f"{path}: the coarse labels are not those of CIFAR-100")
    images = np.array(pixels, order="C")  # a copy: what was read is not writable
    return images.reshape(-1, *IMAGE_SHAPE), fine
