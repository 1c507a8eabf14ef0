"""The dataset contract: images as uint8 array, coarse and, if known, fine labels.

Letters in shapes: N images, C channels, H and W the canvas.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.errors import DataError, UsageError

Variant = Literal["paper", "reference"]  # labels as in the paper's text or as in its authors' code

MOST_IMAGES, MOST_VALUES = 1024, 1 << 22  # processed at a time: at most 32 MB as float64
SMALLEST_DEVIATION = 1 / 255  # dividing uniform images by their deviation must not blow up
HASH_CHUNK_BYTES = 1 << 24  # hashed at a time, since a memory map may be larger than memory


@dataclass(frozen=True)
class Grouping:
    """Map each fine class to its coarse class, in the dataset's order of classes.

    >>> Grouping(("animal", "vehicle"), ("cat", "dog", "ship"), (0, 0, 1)).sizes
    (2, 1)
    """

    coarse_names: tuple[str, ...]
    fine_names: tuple[str, ...]
    coarse_of: tuple[int, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Count the fine classes of each coarse class."""
        return tuple(self.coarse_of.count(coarse) for coarse in range(len(self.coarse_names)))

    def image_set(
        self, images: NDArray[np.uint8], fine: NDArray[np.int64], index: NDArray[np.int64]
    ) -> ImageSet:
        """Make a part of these images; the coarse labels follow from the fine ones."""
        coarse = np.array(self.coarse_of, dtype=np.int64)[fine]
        return ImageSet(images, coarse, fine, index)

    def dataset(
        self, name: str, family: str, train: ImageSet, test: ImageSet, *, notes: tuple[str, ...] = ()
    ) -> Dataset:
        """Make a dataset of these classes."""
        return Dataset(name, train, test, self.coarse_names, self.fine_names, family, self.coarse_of, notes)


@dataclass(frozen=True, eq=False)
class ImageSet:
    """One part (train or test) of a dataset.

    images: [N, C, H, W] uint8, C 1 or 3; may be a memory map
    coarse: [N] int64, the labels that training may use
    fine:   [N] int64 or None; used to score, and by the upper bound that trains on fine labels
    index:  [N] int64, a stable id of each sample, unique within the set
    sizes:  [N, 2] int32 valid (height, width) in the top-left corner of the canvas; None: the whole canvas
    paths:  relative paths, for sources made of files

    >>> part = ImageSet(np.zeros((4, 1, 8, 8), np.uint8), np.array([0, 0, 1, 1]), None, np.arange(4))
    >>> len(part), part.subset(np.array([1, 3])).index.tolist()
    (4, [1, 3])
    """

    images: NDArray[np.uint8]
    coarse: NDArray[np.int64]
    fine: NDArray[np.int64] | None
    index: NDArray[np.int64]
    sizes: NDArray[np.int32] | None = None
    paths: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.images.dtype != np.uint8 or self.images.ndim != 4 or self.images.shape[1] not in (1, 3):
            raise DataError(
                f"images must be uint8 [N, C, H, W] with C 1 or 3, got {self.images.dtype} {self.images.shape}"
            )
        count = len(self.images)
        for name, labels in (("coarse", self.coarse), ("fine", self.fine), ("index", self.index)):
            if labels is not None and (labels.dtype != np.int64 or labels.shape != (count,)):
                raise DataError(f"{name} must be int64 [{count}], got {labels.dtype} {labels.shape}")
        if len(np.unique(self.index)) != count:
            raise DataError(f"index must be unique: {count} images have {len(np.unique(self.index))} ids")
        if self.paths is not None and len(self.paths) != count:
            raise DataError(f"paths must name each of the {count} images, got {len(self.paths)}")
        self._check_sizes()

    def _check_sizes(self) -> None:
        if self.sizes is None:
            return
        count, _, height, width = self.images.shape
        if self.sizes.dtype != np.int32 or self.sizes.shape != (count, 2):
            raise DataError(f"sizes must be int32 [{count}, 2], got {self.sizes.dtype} {self.sizes.shape}")
        if count and (self.sizes.min() < 1 or (self.sizes > np.array([height, width])).any()):
            raise DataError(f"sizes must lie between 1 and the canvas {height} x {width}")

    def __len__(self) -> int:
        return len(self.images)

    def subset(self, rows: NDArray[np.int64] | Sequence[int]) -> ImageSet:
        """Select rows in the given order with their ids; copies the images."""
        chosen = np.asarray(rows, dtype=np.int64)
        return ImageSet(
            images=np.asarray(self.images[chosen]),
            coarse=self.coarse[chosen],
            fine=None if self.fine is None else self.fine[chosen],
            index=self.index[chosen],
            sizes=None if self.sizes is None else self.sizes[chosen],
            paths=None if self.paths is None else tuple(self.paths[row] for row in chosen.tolist()),
        )

    def images_fingerprint(self) -> str:
        """Hash images and their sizes (sha256, hex), independent of labels."""
        digest = hashlib.sha256()
        for array in (self.images, self.sizes):
            _hash_array(digest, array)
        return digest.hexdigest()

    def image(self, row: int) -> NDArray[np.uint8]:
        """Return one image [C, H, W] without the empty rest of its canvas.

        >>> sizes = np.array([[2, 3]], np.int32)
        >>> ImageSet(np.zeros((1, 3, 8, 8), np.uint8), *[np.zeros(1, np.int64)] * 3, sizes).image(0).shape
        (3, 2, 3)
        """
        image = np.asarray(self.images[row])
        if self.sizes is None:
            return image
        height, width = self.sizes[row].tolist()
        return image[:, :height, :width]

    @property
    def finest(self) -> NDArray[np.int64]:
        """Return fine labels [N] where known, else coarse ones, to balance a choice."""
        return self.coarse if self.fine is None else self.fine


@dataclass(frozen=True, eq=False)
class Dataset:
    """A dataset with a part to train on and a part to score on.

    family names the kind of images ("cifar", "products", "cars", "photos", "embedded"), which decides
    about the views; coarse_of_fine[f] is the coarse class of fine class f; notes say what a user should know,
    such as files that were skipped.
    """

    name: str
    train: ImageSet
    test: ImageSet
    coarse_names: tuple[str, ...]
    fine_names: tuple[str, ...] | None
    family: str
    coarse_of_fine: tuple[int, ...] | None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(self.train) == 0:
            raise DataError(f"dataset {self.name!r} has no training image")
        if self.train.images.shape[1:] != self.test.images.shape[1:]:
            raise DataError(
                f"dataset {self.name!r}: train images are {self.train.images.shape[1:]}, "
                f"test images {self.test.images.shape[1:]}; both need one channel count and canvas"
            )
        if self.coarse_of_fine is not None:
            if self.fine_names is None or len(self.coarse_of_fine) != len(self.fine_names):
                raise DataError(
                    f"dataset {self.name!r}: coarse_of_fine has {len(self.coarse_of_fine)} entries "
                    f"for {len(self.fine_names or ())} fine names"
                )
            groups = np.array(self.coarse_of_fine, dtype=np.int64)
            _check_range(f"dataset {self.name!r}: coarse_of_fine", groups, len(self.coarse_names))
        for part_name, part in (("train", self.train), ("test", self.test)):
            self._check_labels(part_name, part)

    def _check_labels(self, part_name: str, part: ImageSet) -> None:
        where = f"dataset {self.name!r}, {part_name}"
        _check_range(f"{where}: coarse", part.coarse, len(self.coarse_names))
        if part.fine is None:
            return
        if self.fine_names is None:
            raise DataError(f"{where}: fine labels are given without fine_names")
        _check_range(f"{where}: fine", part.fine, len(self.fine_names))
        if self.coarse_of_fine is not None:
            expected = np.array(self.coarse_of_fine, dtype=np.int64)[part.fine]
            wrong = np.flatnonzero(expected != part.coarse)
            if len(wrong):
                raise DataError(
                    f"{where}: row {wrong[0]} has coarse label {part.coarse[wrong[0]]}, but its fine label "
                    f"{part.fine[wrong[0]]} belongs to {expected[wrong[0]]}"
                )

    @cached_property
    def _digest(self) -> str:
        digest = hashlib.sha256()
        for part in (self.train, self.test):
            for array in (part.images, part.coarse, part.fine, part.index, part.sizes):
                _hash_array(digest, array)
        return digest.hexdigest()

    @cached_property
    def image_names(self) -> tuple[Sequence[str], Sequence[str]]:
        """Name each image of both parts: by its path, or as train/ID and test/ID.

        The latter is used if there are no paths or they repeat.

        >>> part = ImageSet(np.zeros((2, 1, 8, 8), np.uint8), np.zeros(2, np.int64), None, np.array([7, 9]))
        >>> Dataset("toy", part, part, ("one",), None, "photos", None).image_names
        (['train/7', 'train/9'], ['test/7', 'test/9'])
        """
        train, test = self.train.paths or (), self.test.paths or ()
        if len({*train, *test}) == len(self.train) + len(self.test):
            return train, test
        return [f"train/{index}" for index in self.train.index.tolist()], [
            f"test/{index}" for index in self.test.index.tolist()
        ]

    def fingerprint(self) -> str:
        """Hash images, labels, ids and sizes of both parts (sha256, hex), once."""
        return self._digest

    def hold_out(
        self, fraction: float, seed: int = 0, *, train: int | None = None, test: int | None = None
    ) -> Dataset:
        """Hold out a stratified share of the train part as test part, to choose settings.

        The original test part is not used. Stratified by fine label where known, else by coarse label; a class
        of one image stays in train. train, test: limits as in `limited`, applied without copying the rest.
        """
        if not 0.0 < fraction < 1.0:
            raise UsageError(f"the held-out fraction must lie between 0 and 1 (exclusive), got {fraction}")
        labels = self.train.finest
        rank = _shuffled_rank(labels, seed)  # [N] place of each image in the shuffled order of its class
        class_size = np.bincount(labels)[labels]  # [N]
        wanted = np.clip(np.rint(class_size * fraction), 1, np.maximum(class_size - 1, 0))
        held = rank < wanted  # [N]
        if not held.any():
            raise DataError(f"nothing can be held out of {self.name!r}: every class has a single image")
        note = f"test is {fraction:g} of the training part, held out with seed {seed}"
        return replace(
            self,
            train=self.train.subset(_balanced(np.flatnonzero(~held), labels, train, seed)),
            test=self.train.subset(_balanced(np.flatnonzero(held), labels, test, seed)),
            notes=(*self.notes, note),
        )

    def limited(self, train: int | None, test: int | None, seed: int = 0) -> Dataset:
        """Keep at most `train` and `test` images, balanced over classes; None keeps all."""

        def part(whole: ImageSet, count: int | None) -> ImageSet:
            if count is None or count >= len(whole):
                return whole
            return whole.subset(_balanced(np.arange(len(whole)), whole.finest, count, seed))

        return replace(self, train=part(self.train, train), test=part(self.test, test))


def _check_range(what: str, labels: NDArray[np.int64], count: int) -> None:
    if len(labels) and (labels.min() < 0 or labels.max() >= count):
        raise DataError(
            f"{what} labels must lie in 0..{count - 1} (one name each), got {labels.min()}..{labels.max()}"
        )


def _hash_array(digest: hashlib._Hash, array: NDArray[np.generic] | None) -> None:
    if array is None:
        digest.update(b"none;")
        return
    little = array.dtype.newbyteorder("<")  # so that every machine hashes the same bytes
    digest.update(f"{little.str}{array.shape};".encode())
    row_bytes = max(1, array.nbytes // max(1, len(array)))
    rows = max(1, HASH_CHUNK_BYTES // row_bytes)
    for start in range(0, len(array), rows):
        chunk = np.ascontiguousarray(array[start : start + rows], dtype=little)
        digest.update(chunk.tobytes())


def _shuffled_rank(labels: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """Rank each row within its class, [N], in an order shuffled by the seed."""
    shuffled = np.random.Generator(np.random.PCG64(seed)).permutation(len(labels))
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]  # rows grouped by class, shuffled inside
    class_start = np.concatenate([[0], np.cumsum(np.bincount(labels))])[labels[by_class]]
    rank = np.empty(len(labels), dtype=np.int64)
    rank[by_class] = np.arange(len(labels)) - class_start
    return rank


def _balanced(
    rows: NDArray[np.int64], labels: NDArray[np.int64], count: int | None, seed: int
) -> NDArray[np.int64]:
    """Choose at most `count` rows, balanced over classes; keep their order."""
    if count is None or count >= len(rows):
        return rows
    if count < 1:
        raise UsageError(f"a limit on images must be at least 1, got {count}")
    chosen_from = labels[rows]
    rank = _shuffled_rank(chosen_from, seed)
    # first every class's first image, then every class's second, and so on: counts differ by at most one
    order = np.lexsort((chosen_from, rank))
    return rows[np.sort(order[:count])]


def channel_statistics(part: ImageSet) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Compute mean and standard deviation per channel over valid pixels, on 0..1.

    >>> part = ImageSet(np.full((2, 1, 4, 4), 51, np.uint8), np.array([0, 1]), None, np.arange(2))
    >>> channel_statistics(part)
    ((0.2,), (0.00392156862745098,))
    """
    channels = part.images.shape[1]
    total, squares, pixels = np.zeros(channels), np.zeros(channels), 0
    count = max(1, min(MOST_IMAGES, MOST_VALUES // part.images[0].size))
    for start in range(0, len(part), count):
        images = np.asarray(part.images[start : start + count])
        sizes = None if part.sizes is None else part.sizes[start : start + count]
        valid = _valid(images, sizes)  # [n, 1, H, W]
        levels = images / 255.0 * valid
        total += levels.sum(axis=(0, 2, 3))
        squares += np.square(levels).sum(axis=(0, 2, 3))
        pixels += int(valid.sum())
    mean = total / pixels
    deviation = np.sqrt(np.maximum(squares / pixels - np.square(mean), SMALLEST_DEVIATION**2))
    return tuple(mean.round(6).tolist()), tuple(deviation.tolist())


def _valid(images: np.ndarray, sizes: np.ndarray | None) -> np.ndarray:
    count, _, height, width = images.shape
    if sizes is None:
        return np.ones((count, 1, height, width), dtype=bool)
    rows = np.arange(height)[None, :, None] < sizes[:, 0, None, None]  # [n, H, 1]
    columns = np.arange(width)[None, None, :] < sizes[:, 1, None, None]  # [n, 1, W]
    return np.asarray(rows & columns)[:, None]
