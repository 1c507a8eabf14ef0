"""CIFAR-10, CIFAR-100 and the paper's CIFARtoy, from the official Python files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.download import Progress, fetch
from maskcon._utils.errors import CorruptFileError, DataError
from maskcon._utils.paths import has_file, has_folder
from maskcon.data.archive import extract
from maskcon.data.builtin.batch_files import IMAGE_SHAPE, checked_labels, checked_pixels
from maskcon.data.builtin.classes import read_grouping
from maskcon.data.dataset import Dataset, Grouping, ImageSet, Variant
from maskcon.data.safe_pickle import load_pickle

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


@dataclass(frozen=True)
class _Release:
    """One of the two official archives."""

    title: str
    folder: str
    archive: str
    md5: str
    train_files: tuple[str, ...]
    test_file: str
    label_key: str

    @property
    def files(self) -> tuple[str, ...]:
        return (*self.train_files, self.test_file)

    @property
    def urls(self) -> tuple[str, ...]:
        """The present address of the authors' page, then the one that papers cite."""
        return (
            f"https://cave.cs.toronto.edu/kriz/{self.archive}",
            f"https://www.cs.toronto.edu/~kriz/{self.archive}",
        )


CIFAR10 = _Release(
    title="CIFAR-10",
    folder="cifar-10-batches-py",
    archive="cifar-10-python.tar.gz",
    md5="c58f30108f718f92721af3b95e74349a",
    train_files=tuple(f"data_batch_{number}" for number in range(1, 6)),
    test_file="test_batch",
    label_key="labels",
)
CIFAR100 = _Release(
    title="CIFAR-100",
    folder="cifar-100-python",
    archive="cifar-100-python.tar.gz",
    md5="eb9058c3a382ffc7106e4002c42a8d85",
    train_files=("train",),
    test_file="test",
    label_key="fine_labels",
)


def cifar10_grouping() -> Grouping:
    """All ten classes as animals and vehicles; ours, the paper has none."""
    animals = ("bird", "cat", "deer", "dog", "frog", "horse")
    vehicles = ("airplane", "automobile", "ship", "truck")
    return _grouped(("animals", "vehicles"), (animals, vehicles))


def toy_grouping(split: SplitName, variant: Variant = "paper") -> Grouping:
    """The eight classes of CIFARtoy in two groups; the bad split differs between paper and authors' code.

    >>> toy_grouping("good").coarse_of
    (0, 0, 1, 1, 1, 1, 0, 0)
    """
    names = ("vehicles", "animals") if split == "good" else ("class A", "class B")
    return _grouped(names, TOY_GROUPS[variant, split])


def cifar100_grouping() -> Grouping:
    """The 100 fine classes in the 20 coarse ones that the dataset defines."""
    return read_grouping("cifar100")


def load_cifar(
    name: Literal["cifar10", "cifar100"],
    root: Path,
    *,
    variant: Variant = "paper",  # noqa: ARG001 - one grouping for both
    download: bool = False,
    progress: Progress | None = None,
) -> Dataset:
    """CIFAR-10 as animals and vehicles, or CIFAR-100 in its own 20 coarse classes; [N, 3, 32, 32]."""
    if name == "cifar10":
        return _load(CIFAR10, name, cifar10_grouping(), root, download, progress)
    return _load(CIFAR100, name, cifar100_grouping(), root, download, progress)


def load_toy(
    split: SplitName,
    root: Path,
    *,
    variant: Variant = "paper",
    download: bool = False,
    progress: Progress | None = None,
) -> Dataset:
    """CIFARtoy: 8 classes of CIFAR-10 in 2 groups, see `toy_grouping`."""
    data = _load(CIFAR10, f"cifartoy-{split}", toy_grouping(split, variant), root, download, progress)
    if TOY_GROUPS[variant, split] == TOY_GROUPS["paper", split]:
        return data
    return replace(
        data, notes=(*data.notes, "grouped as in the authors' code, which differs from the paper's text")
    )


def missing(release: _Release, root: Path) -> tuple[str, ...]:
    """What is not here, one line each; empty if the release is here, unpacked or as its archive."""
    own = root / release.folder
    if _find_folder(release, root) is not None:
        return ()
    if has_folder(own):  # an archive is not unpacked over it
        return tuple(f"{name} in {own}" for name in _absent(release, own))
    if has_file(root / release.archive):
        return ()
    absent = _absent(release, root)
    if len(absent) < len(release.files):  # some of it is there
        return tuple(f"{name} in {root}" for name in absent)
    return (f"{release.archive} (from {release.urls[0]}) in {root}",)


def _grouped(coarse_names: tuple[str, ...], groups: tuple[tuple[str, ...], ...]) -> Grouping:
    """These groups of CIFAR-10's classes; classes of no group are left out."""
    group_of = {fine: number for number, group in enumerate(groups) for fine in group}
    kept = tuple(fine for fine in CIFAR10_NAMES if fine in group_of)
    return Grouping(coarse_names, kept, tuple(group_of[fine] for fine in kept))


def _load(
    release: _Release, name: str, grouping: Grouping, root: Path, download: bool, progress: Progress | None
) -> Dataset:
    folder = _folder_of(release, root, download, progress)
    classes = CIFAR10_NAMES if release is CIFAR10 else grouping.fine_names
    group_of = dict(zip(grouping.fine_names, grouping.coarse_of, strict=True))
    coarse_by_label = np.array([group_of.get(fine, -1) for fine in classes], dtype=np.int64)  # -1: left out
    train = _read_part(release, folder, release.train_files, coarse_by_label, 0)
    test = _read_part(release, folder, (release.test_file,), coarse_by_label, OFFICIAL_TRAIN_COUNT)
    parts = [_only_grouped(part, coarse_by_label) for part in (train, test)]
    return grouping.dataset(name, "cifar", *parts, notes=_count_notes(release, train, test))


def _only_grouped(part: ImageSet, coarse_by_label: NDArray[np.int64]) -> ImageSet:
    """The images of classes that have a group, with their fine labels renumbered from 0."""
    if part.fine is None or (coarse_by_label >= 0).all():
        return part
    kept = part.subset(np.flatnonzero(part.coarse >= 0))
    new_label = np.cumsum(coarse_by_label >= 0) - 1
    return ImageSet(kept.images, kept.coarse, new_label[part.fine[part.coarse >= 0]], kept.index)


def _folder_of(release: _Release, root: Path, download: bool, progress: Progress | None) -> Path:
    """The unpacked folder, unpacking or downloading the archive if need be."""
    folder, own = _find_folder(release, root), root / release.folder
    if folder is not None:
        return folder
    if has_folder(own):
        _refuse_partial(release, own)
        return own  # another process unpacked it meanwhile
    if not download and not has_file(root / release.archive):
        absent = _absent(release, root)
        partial = f" whole (missing: {', '.join(absent)})" if len(absent) < len(release.files) else ""
        raise DataError(
            f"{release.title} was not found{partial} in {root}; download it with --download, "
            f"or put {release.archive} (from {release.urls[0]}) there"
        )
    archive = _fetch(release, root / release.archive, progress)
    try:
        return extract(archive, own, inside=release.folder, max_bytes=UNPACKED_LIMIT)
    except DataError:
        if not has_folder(own):
            raise
        _refuse_partial(release, own)
        return own  # as above


def _refuse_partial(release: _Release, folder: Path) -> None:
    absent = _absent(release, folder)
    if absent:
        raise DataError(
            f"{release.title} in {folder} is not complete: {', '.join(absent)} not found; take them from "
            f"{release.archive} ({release.urls[0]}), or delete the folder and try again"
        )


def _find_folder(release: _Release, root: Path) -> Path | None:
    return next((folder for folder in (root / release.folder, root) if not _absent(release, folder)), None)


def _absent(release: _Release, folder: Path) -> list[str]:
    return [name for name in release.files if not has_file(folder / name)]


def _fetch(release: _Release, target: Path, progress: Progress | None) -> Path:
    """The archive, from the first address that has it; one that is there is only checked."""
    failures = []
    for url in release.urls:
        try:
            return fetch(url, target, md5=release.md5, progress=progress)
        except DataError as error:  # not a wrong checksum: that is never tried elsewhere in silence
            failures.append(error)
    raise failures[0]


def _read_part(
    release: _Release, folder: Path, names: Sequence[str], coarse_by_label: NDArray[np.int64], first_id: int
) -> ImageSet:
    read = [_read_batch(folder / name, release, len(coarse_by_label)) for name in names]
    images = np.concatenate([images for images, _ in read])
    fine = np.concatenate([fine for _, fine in read])
    return ImageSet(images, coarse_by_label[fine], fine, np.arange(len(fine), dtype=np.int64) + first_id)


def _read_batch(
    path: Path, release: _Release, class_count: int
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images [N, 3, 32, 32] and fine labels [N] of one file."""
    batch = load_pickle(path)
    pixels = checked_pixels(path, batch)
    fine = checked_labels(path, batch, release.label_key, len(pixels), range(class_count))
    if release is CIFAR100:
        grouping = cifar100_grouping()
        coarse = checked_labels(path, batch, "coarse_labels", len(pixels), range(len(grouping.coarse_names)))
        if not np.array_equal(coarse, np.array(grouping.coarse_of)[fine]):
            raise CorruptFileError(f"{path}: the coarse labels are not those of CIFAR-100")
    images = np.array(pixels, order="C")  # a copy: what was read is not writable
    return images.reshape(-1, *IMAGE_SHAPE), fine


def _count_notes(release: _Release, train: ImageSet, test: ImageSet) -> tuple[str, ...]:
    if (len(train), len(test)) == (OFFICIAL_TRAIN_COUNT, OFFICIAL_TEST_COUNT):
        return ()
    return (
        f"{len(train)} + {len(test)} images were read; the official {release.title} has "
        f"{OFFICIAL_TRAIN_COUNT} + {OFFICIAL_TEST_COUNT}",
    )
