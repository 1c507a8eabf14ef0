"""Findings about a source before training on it: counts, sizes, duplicates, unreadable files."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.text import counted
from maskcon.config.choices import FEWEST_TEST, FEWEST_TRAIN, Choice
from maskcon.report.inspection.near_duplicates import confirmed, groups_of, near_pairs
from maskcon.report.inspection.scan import Read

FEW_IMAGES = 10  # of a class, to train on
UNEVEN = 10.0  # images of the largest class per image of the smallest


@dataclass(frozen=True)
class ClassCount:
    """A class, its coarse class (itself for a coarse one), and its number of images in each part."""

    name: str
    coarse: str
    train: int
    test: int


@dataclass(frozen=True)
class Twins:
    """A group of duplicates, identical or near: row, name, coarse label and part ("train", "test") of each image."""

    rows: tuple[int, ...]
    names: tuple[str, ...]
    labels: tuple[str, ...]
    parts: tuple[str, ...]

    @property
    def across_parts(self) -> bool:
        """Whether the group is in train and test, which makes scores too high."""
        return len(set(self.parts)) > 1

    @property
    def across_labels(self) -> bool:
        """Whether the group has different coarse labels, of which at most one is right."""
        return len(set(self.labels)) > 1


@dataclass(frozen=True)
class Sizes:
    """Smallest, median and largest of a number of pixels."""

    smallest: int
    median: float
    largest: int


@dataclass(frozen=True)
class Inspection:
    """All findings.

    twins: exact duplicates
    near_twins: near-duplicates
    plain: images of almost one colour
    """

    source: str
    name: str
    train: int
    test: int
    size_bytes: int
    coarse: tuple[ClassCount, ...]
    fine: tuple[ClassCount, ...]
    width: Sizes
    height: Sizes
    modes: Mapping[str, int]
    formats: Mapping[str, int]
    failures: Mapping[str, str]
    twins: tuple[Twins, ...]
    near_twins: tuple[Twins, ...]
    too_many_near: bool
    plain: tuple[str, ...]
    notes: tuple[str, ...]
    choices: tuple[Choice, ...] = ()

    @property
    def imbalance(self) -> float:
        """Divide the training images of the largest coarse class by those of the smallest non-empty one."""
        counts = [count.train for count in self.coarse if count.train]
        return max(counts) / min(counts) if counts else 1.0

    @property
    def warnings(self) -> tuple[str, ...]:
        """List what the user should fix, the worst first."""
        warnings = []
        if self.train < FEWEST_TRAIN or self.test < FEWEST_TEST:
            warnings.append(
                f"too few to train: at least {FEWEST_TRAIN} images to train on and {FEWEST_TEST} to test on are "
                "needed, and hundreds to learn from"
            )
        for what, groups in (("the same file", self.twins), ("nearly the same image", self.near_twins)):
            conflicts = [group for group in groups if group.across_labels]
            if conflicts:
                count = sum(len(group.rows) for group in conflicts)
                first = conflicts[0]
                shown = f"{first.names[0]} ({first.labels[0]})"
                other = next(place for place, label in enumerate(first.labels) if label != first.labels[0])
                warnings.append(
                    f"{what} under DIFFERENT coarse labels: {count} images in {counted(len(conflicts), 'group')}, "
                    f"such as {shown} and {first.names[other]} ({first.labels[other]}); keep the right one"
                )
            leaks = [group for group in groups if group.across_parts]
            if leaks:
                count = sum(group.parts.count("test") for group in leaks)
                warnings.append(
                    f"{what} in train AND test: {counted(count, 'test image')} with a duplicate in train, so scores "
                    "would be too high; remove one of each"
                )
            inside = sum(
                len(group.rows) - 1 for group in groups if not (group.across_labels or group.across_parts)
            )
            if inside:
                warnings.append(
                    f"{what} more than once in one class and part: {counted(inside, 'image')} too many"
                )
        if self.too_many_near:
            warnings.append("too many images look alike to compare all pairs")
        if self.failures:
            path, why = next(iter(self.failures.items()))
            warnings.append(
                f"{counted(len(self.failures), 'file')} cannot be read and would be left out, such as {path} ({why})"
            )
        small = [count for count in self.coarse if count.train < FEW_IMAGES]
        if small:
            named = ", ".join(f"{count.name} ({count.train})" for count in small[:5])
            more = f" and {len(small) - 5} more" if len(small) > 5 else ""
            warnings.append(f"coarse classes with fewer than {FEW_IMAGES} images to train on: {named}{more}")
        if self.imbalance >= UNEVEN:
            warnings.append(
                f"the largest coarse class has {self.imbalance:.0f} times the images of the smallest; "
                "the small ones have little influence"
            )
        if self.plain:
            warnings.append(
                f"almost one colour: {counted(len(self.plain), 'image')}, such as {self.plain[0]}"
            )
        return tuple(warnings)

    def as_json(self) -> dict[str, Any]:
        """Return plain values, for `--json`."""
        values = asdict(self) | {"imbalance": round(self.imbalance, 3), "warnings": list(self.warnings)}
        for key in ("twins", "near_twins"):
            values[key] = [
                asdict(group) | {"across_parts": group.across_parts, "across_labels": group.across_labels}
                for group in getattr(self, key)
            ]
        return values


def findings(source: str, read: Read, choices: Sequence[Choice] = ()) -> Inspection:
    """Collect the findings about what was read."""
    data, images = read.labels, read.images
    exact = _exact(read)
    near, too_many = _near(read, exact)
    shapes = [image.shape for image in images]
    names = read.names
    return Inspection(
        source=source,
        name=data.name,
        train=len(data.train),
        test=len(data.test),
        size_bytes=sum(image.size_bytes for image in images),
        coarse=_counts(data.coarse_names, data.coarse_names, data.train.coarse, data.test.coarse),
        fine=_fine_counts(read),
        width=_sizes([shape.width for shape in shapes]),
        height=_sizes([shape.height for shape in shapes]),
        modes=_common(shape.mode for shape in shapes),
        formats=_common(shape.format for shape in shapes),
        failures=read.failures,
        twins=_described(read, exact),
        near_twins=_described(read, near),
        too_many_near=too_many,
        plain=tuple(names[row] for row, image in enumerate(images) if image.hash is None),
        notes=data.notes,
        choices=tuple(choices),
    )


def _exact(read: Read) -> list[tuple[int, ...]]:
    rows_of: dict[bytes, list[int]] = {}
    for row, image in enumerate(read.images):
        rows_of.setdefault(image.checksum, []).append(row)
    return [tuple(rows) for rows in rows_of.values() if len(rows) > 1]


def _near(read: Read, exact: Sequence[tuple[int, ...]]) -> tuple[list[tuple[int, ...]], bool]:
    """Group near-duplicates; of exact duplicates only the first is compared, for all of them."""
    copies = {rows[0]: rows for rows in exact}
    left_out = {row for rows in exact for row in rows[1:]}
    rows = [row for row, image in enumerate(read.images) if image.hash is not None and row not in left_out]
    hashes = np.array([read.images[row].hash for row in rows], dtype=np.uint64)
    pairs, too_many = near_pairs(hashes)
    tiny = (
        np.stack([read.images[row].tiny for row in rows]) if rows else np.empty((0, 3, 1, 1), dtype=np.uint8)
    )
    groups = []
    for group in groups_of(confirmed(pairs, tiny)):
        members = {copy for place in group for copy in copies.get(rows[place], (rows[place],))}
        groups.append(tuple(sorted(members)))
    return groups, too_many


def _described(read: Read, groups: Sequence[tuple[int, ...]]) -> tuple[Twins, ...]:
    """Describe the groups, the worst first: across labels, then across parts, then large ones."""
    names, coarse = read.names, read.coarse
    described = [
        Twins(
            rows=rows,
            names=tuple(names[row] for row in rows),
            labels=tuple(read.labels.coarse_names[coarse[row]] for row in rows),
            parts=tuple("train" if row < len(read.labels.train) else "test" for row in rows),
        )
        for rows in groups
    ]
    return tuple(
        sorted(
            described, key=lambda twins: (not twins.across_labels, not twins.across_parts, -len(twins.rows))
        )
    )


def _fine_counts(read: Read) -> tuple[ClassCount, ...]:
    data = read.labels
    if data.fine_names is None:
        return ()
    parts = [np.empty(0, np.int64) if part.fine is None else part.fine for part in (data.train, data.test)]
    owners = (
        [""] * len(data.fine_names)
        if data.coarse_of_fine is None
        else [data.coarse_names[coarse] for coarse in data.coarse_of_fine]
    )
    return _counts(data.fine_names, owners, *parts)


def _counts(
    names: Sequence[str], owners: Sequence[str], train: NDArray[np.int64], test: NDArray[np.int64]
) -> tuple[ClassCount, ...]:
    in_train, in_test = (np.bincount(labels, minlength=len(names)).tolist() for labels in (train, test))
    return tuple(ClassCount(*values) for values in zip(names, owners, in_train, in_test, strict=True))


def _sizes(lengths: Sequence[int]) -> Sizes:
    return Sizes(min(lengths), float(statistics.median(lengths)), max(lengths))


def _common(names: Any) -> dict[str, int]:
    return dict(Counter(names).most_common())
