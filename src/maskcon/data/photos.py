"""Labelled images of many sizes, wherever they are named: looked at, split, decoded, and put together as a dataset.

A folder, a manifest and a Hugging Face dataset all come here as a `Layout`: what is to be read, under which labels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.errors import DataError
from maskcon._utils.text import counted
from maskcon.data.dataset import Dataset, ImageSet
from maskcon.data.decoding import Header, checked_side
from maskcon.data.folder_layout import Found, Layout, path_hash, show, some
from maskcon.data.headers import read_headers
from maskcon.data.packing import Contents, Packed, PackJob, PicturePlan, Progress, usual_cache
from maskcon.data.splits import HELD_OUT_FRACTION, check_fraction, held_out

SMALL_SIDE = 64  # images up to this size get the views made for CIFAR, larger ones those for photographs
CROP_BELOW_BYTES = 2 << 30


@dataclass(frozen=True)
class Origin:
    """Where the images come from, and how messages speak of it.

    name: of the dataset; where: a path or name, as `show` gives it; kind: distinguishes packs of one folder
    inside: where in it images are looked for; expected: what would have been found in a good one
    test_part: how to give a part to test on
    root: the folder that paths start from
    contents: reads images that are no files of their own
    """

    name: str
    where: str
    kind: str
    inside: str
    expected: str
    test_part: str
    root: Path
    contents: Contents | None = None


def plan_photos(
    origin: Origin,
    layout: Layout,
    *,
    image_size: int | None = None,
    strict: bool = False,
    fraction: float = HELD_OUT_FRACTION,
    cache: Path | None = None,
    looking: Progress | None = None,
) -> PicturePlan:
    """Read how large the images are and choose those to hold out; see `load_photos` for the arguments.

    looking: called as looking(images looked at, images in all), where they are many.
    """
    limit = checked_side(image_size)
    check_fraction(fraction)
    failures = dict(layout.unreadable)
    cache = cache if cache is not None else usual_cache()
    read = read_headers(origin.root, [found.path for found in layout.files], cache, origin.contents, looking)
    failures |= {
        found.path: why for found, why in zip(layout.files, read, strict=True) if isinstance(why, str)
    }
    files = [found for found in layout.files if found.path not in failures]
    headers = [header for header in read if isinstance(header, Header)]
    _stop_if_strict(strict, failures)
    if not layout.has_parts:
        files, headers = _held_out_last(files, headers, fraction)
    _check_enough(origin, layout, files, failures)  # before anything is decoded
    longest_side = max(header.longest_side for header in headers)
    job = PackJob(
        name=origin.kind if fraction == HELD_OUT_FRACTION else f"{origin.kind}-held-{fraction:g}",
        root=origin.root,
        paths=tuple(found.path for found in files),
        side=min(limit, longest_side),
        channels=1 if all(header.is_grey for header in headers) else 3,
        cache=cache,
        contents=origin.contents,
    )

    def dataset(packed: Packed) -> Dataset:
        lost = {**failures, **{files[row].path: why for row, why in packed.failures.items()}}
        _stop_if_strict(strict, lost)
        kept = [files[row] for row in packed.kept.tolist()]
        _check_enough(origin, layout, kept, lost)
        return _assemble(origin.name, kept, packed, _notes(origin, layout, kept, lost, fraction))

    return PicturePlan(job, failures, dataset, longest_side)


def _stop_if_strict(strict: bool, failures: Mapping[str, str]) -> None:
    if strict and failures:
        path, why = next(iter(failures.items()))
        raise DataError(
            f"{show(path)} cannot be read ({why}); {counted(len(failures), 'such file')} in all. "
            "Repair or remove them, or leave strict off to skip them"
        )


def _held_out_last(
    files: list[Found], headers: list[Header], fraction: float
) -> tuple[list[Found], list[Header]]:
    """Mark those held out as test, and put them last."""
    fine = [found.fine for found in files if found.fine is not None]
    is_test = held_out(
        [found.split_key for found in files],
        [found.coarse for found in files],
        fine if len(fine) == len(files) else None,
        fraction,
    )
    order = sorted(
        range(len(files)), key=lambda row: is_test[row]
    )  # stable: the order within each part stays
    return [replace(files[row], is_test=is_test[row]) for row in order], [headers[row] for row in order]


def _check_enough(origin: Origin, layout: Layout, kept: Sequence[Found], failures: Mapping[str, str]) -> None:
    where, expected = origin.where, origin.expected
    if not layout.files and not failures:
        loose = counted(layout.loose_images, "image")
        others = counted(layout.ignored_files - layout.loose_images, "other file")
        beside = f"{loose} in no sub-folder, {others}" if layout.loose_images else others
        raise DataError(f"no image found in {origin.inside} ({beside}); expected {expected}")
    if not kept:
        first, why = next(iter(failures.items()))
        raise DataError(
            f"none of the {counted(len(failures), 'image')} in {where} can be read; "
            f"the first: {show(first)} ({why})"
        )
    if len(kept) < 2:
        raise DataError(f"{where} holds a single image; at least 2 are needed, and hundreds to learn from")
    classes = sorted({found.coarse for found in kept if not found.is_test})
    if not classes:
        raise DataError(f"the training part of {where} holds no readable image")
    if len(classes) < 2:
        raise DataError(
            f"{where} holds only one class to train on ({show(classes[0])}); "
            f"at least 2 are needed; expected {expected}"
        )


def _assemble(name: str, kept: list[Found], packed: Packed, notes: list[str]) -> Dataset:
    coarse_labels = sorted({found.coarse for found in kept})
    coarse_number = {label: number for number, label in enumerate(coarse_labels)}
    coarse_of = {found.fine: coarse_number[found.coarse] for found in kept if found.fine is not None}
    fine_labels = sorted(coarse_of)
    fine_number = {label: number for number, label in enumerate(fine_labels)}
    images, sizes = trimmed(packed.images, packed.sizes)
    train_count = sum(not found.is_test for found in kept)
    _check_ids(kept)

    def part(rows: slice) -> ImageSet:
        files = kept[rows]
        fine = [fine_number[found.fine] for found in files if found.fine is not None]
        return ImageSet(
            images=images[rows],
            coarse=np.array([coarse_number[found.coarse] for found in files], dtype=np.int64),
            fine=np.array(fine, dtype=np.int64) if fine else None,
            index=np.array([path_hash(found.path) for found in files], dtype=np.int64),
            sizes=None if sizes is None else sizes[rows],
            paths=tuple(found.path for found in files),
        )

    return Dataset(
        name=name,
        train=part(slice(0, train_count)),
        test=part(slice(train_count, None)),
        coarse_names=tuple(show(label) for label in coarse_labels),
        fine_names=tuple(show(label) for label in fine_labels) or None,
        family=family_of(images),
        coarse_of_fine=tuple(coarse_of[label] for label in fine_labels) or None,
        notes=tuple(notes),
    )


def family_of(images: NDArray[np.uint8]) -> str:
    """The kind of views that images of this size take: [N, C, H, W] -> "cifar" or "photos"."""
    return "cifar" if max(images.shape[2:]) <= SMALL_SIDE else "photos"


def trimmed(
    images: NDArray[np.uint8], sizes: NDArray[np.int32]
) -> tuple[NDArray[np.uint8], NDArray[np.int32] | None]:
    """Where all images have one size, a canvas of just that size, and no sizes to carry along."""
    height, width = (int(side) for side in sizes[0])
    if (sizes != sizes[0]).any():
        return images, sizes
    if images.shape[2:] == (height, width):
        return images, None
    if images.nbytes > CROP_BELOW_BYTES:  # a copy would not fit; the sizes say the same
        return images, sizes
    return np.ascontiguousarray(images[:, :, :height, :width]), None


def _check_ids(files: Sequence[Found]) -> None:
    path_of: dict[int, str] = {}
    for found in files:
        other = path_of.setdefault(path_hash(found.path), found.path)
        if other != found.path:
            raise DataError(f"{show(found.path)} and {show(other)} get the same id; rename one of them")


def _notes(
    origin: Origin, layout: Layout, kept: Sequence[Found], failures: Mapping[str, str], fraction: float
) -> list[str]:
    notes = list(layout.notes)
    if failures:
        named = [f"{show(path)} ({why})" for path, why in failures.items()]
        were = "was" if len(failures) == 1 else "were"
        notes.append(
            f"{counted(len(failures), 'image')} could not be read and {were} left out: {some(named)}"
        )
    if layout.ignored_files:
        were = "was" if layout.ignored_files == 1 else "were"
        notes.append(
            f"{counted(layout.ignored_files, 'other file')} (hidden, no image, or in no class) {were} ignored"
        )
    if layout.empty_classes:
        notes.append(f"class folders without an image were ignored: {some(layout.empty_classes)}")
    train = Counter(found.coarse for found in kept if not found.is_test)
    single = sorted(name for name, count in Counter(found.coarse for found in kept).items() if count == 1)
    if single:
        notes.append(f"classes of a single image: {some(single)}")
    unseen = sorted({found.coarse for found in kept if found.is_test} - set(train))
    if unseen:
        notes.append(f"classes to test on without an image to train on: {some(unseen)}")
    if not layout.has_parts:
        count = sum(found.is_test for found in kept)
        are = "is" if count == 1 else "are"
        notes.append(
            f"no {origin.test_part}: {count:,} of {counted(len(kept), 'image')} (about {fraction:.0%}) {are} held "
            "out, each by its own hash, so that added images move no other"
        )
    return notes
