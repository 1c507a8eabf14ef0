"""CIFAR-10, CIFAR-100 and the paper's CIFARtoy, from the official Python files."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.download import Progress
from maskcon._utils.errors import CorruptFileError
from maskcon.data.builtin.classes import count_notes, read_grouping
from maskcon.data.builtin.release import Release
from maskcon.data.dataset import Dataset, Grouping, Variant
from maskcon.data.safe_pickle import IMAGE_SHAPE, read_batch

Name = Literal["cifartoy-good", "cifartoy-bad", "cifar10", "cifar100"]

CIFAR10_NAMES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
ANIMALS = ("bird", "cat", "deer", "dog", "frog", "horse")
VEHICLES = ("airplane", "automobile", "ship", "truck")
OFFICIAL_TRAIN_COUNT = 50_000  # a test image's id is its row plus this
OFFICIAL_TEST_COUNT = 10_000
UNPACKED_LIMIT = 400_000_000  # both archives unpack to less than 190 MB

# the groups of CIFARtoy, by variant and split
TOY_GROUPS: dict[tuple[Variant, str], tuple[tuple[str, ...], tuple[str, ...]]] = {
    ("paper", "good"): (("airplane", "automobile", "ship", "truck"), ("bird", "cat", "dog", "horse")),
    ("reference", "good"): (("airplane", "automobile", "ship", "truck"), ("bird", "cat", "dog", "horse")),
    ("paper", "bad"): (("airplane", "automobile", "bird", "cat"), ("dog", "horse", "ship", "truck")),
    # DEVIATES: the authors' code groups differently from the paper; only the variant `reference` follows it
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


def grouping(name: Name, variant: Variant = "paper") -> Grouping:
    """Return the classes of a dataset.

    The bad split of CIFARtoy differs between the paper and the authors' code.

    >>> grouping("cifartoy-good").coarse_of
    (0, 0, 1, 1, 1, 1, 0, 0)
    """
    if name == "cifar100":
        return read_grouping("cifar100")
    groups: tuple[tuple[str, ...], ...]
    if name == "cifar10":  # our own grouping: the paper has none
        coarse_names, groups = ("animals", "vehicles"), (ANIMALS, VEHICLES)
    else:
        split = name.removeprefix("cifartoy-")
        coarse_names = ("vehicles", "animals") if split == "good" else ("class A", "class B")
        groups = TOY_GROUPS[variant, split]
    group_of = {fine: number for number, group in enumerate(groups) for fine in group}
    fine_names = tuple(fine for fine in CIFAR10_NAMES if fine in group_of)  # others are left out
    return Grouping(coarse_names, fine_names, tuple(group_of[fine] for fine in fine_names))


def load_cifar(
    name: Name,
    root: Path,
    *,
    variant: Variant = "paper",
    download: bool = False,
    progress: Progress | None = None,
) -> Dataset:
    """Load CIFAR-10, CIFAR-100 or CIFARtoy (8 classes); images [N, 3, 32, 32]."""
    release = CIFAR100 if name == "cifar100" else CIFAR10
    folder = release.get(root, download=download, progress=progress)
    chosen = grouping(name, variant)
    own = chosen if name == "cifar100" else None
    new_label = {fine: label for label, fine in enumerate(chosen.fine_names)}
    classes = CIFAR10_NAMES if own is None else chosen.fine_names
    fine_of_label = np.array([new_label.get(fine, -1) for fine in classes], dtype=np.int64)  # -1: left out
    parts, counts = [], []
    for files, first_id in ((release.content[:-1], 0), (release.content[-1:], OFFICIAL_TRAIN_COUNT)):
        read = [_read_batch(folder / file, len(classes), own) for file in files]
        images = np.concatenate([pixels for pixels, _ in read])
        fine = fine_of_label[np.concatenate([labels for _, labels in read])]
        index = np.arange(len(fine), dtype=np.int64) + first_id
        counts.append(len(fine))
        if (fine < 0).any():
            images, fine, index = images[fine >= 0], fine[fine >= 0], index[fine >= 0]
        parts.append(chosen.image_set(images, fine, index))
    official = (OFFICIAL_TRAIN_COUNT, OFFICIAL_TEST_COUNT)
    notes = count_notes(release.title, (counts[0], counts[1]), official)
    if chosen != grouping(name, "paper"):
        notes = (*notes, "grouped as in the authors' code, which differs from the paper's text")
    return chosen.dataset(name, "cifar", *parts, notes=notes)


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
