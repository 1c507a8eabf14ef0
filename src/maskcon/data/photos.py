"""Make a dataset from images of many sizes: read headers, split and decode.

Folders, manifests, Hugging Face datasets and built-in datasets of photographs all arrive as a `Layout`.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.errors import DataError
from maskcon._utils.paths import has_file, has_folder
from maskcon._utils.text import counted
from maskcon.data.dataset import Dataset, Grouping, ImageSet
from maskcon.data.decoding import (
    Shape,
    UndecodableError,
    checked_side,
    decompression_bombs_refused,
    read_shape,
)
from maskcon.data.folder_layout import Found, Layout, read_layout, show, some
from maskcon.data.manifest import is_manifest, read_manifest
from maskcon.data.packing import ImagePlan, Packed, Progress, map_files, pack, usual_cache
from maskcon.data.splits import HELD_OUT_FRACTION, held_out

SMALL_SIDE = 64  # images up to this size get CIFAR's views, larger ones those of photographs
CROP_BELOW_BYTES = 2 << 30
MANY = 1000  # fewer headers are read without progress
SAMPLED = 64  # images whose headers give the usual size


def read_path(path: Path) -> Layout:
    """Find the images of a folder or a manifest."""
    return read_manifest(path) if not has_folder(path) and is_manifest(path) else read_layout(path)


def plan_photos(
    layout: Layout,
    *,
    image_size: int | None = None,
    strict: bool = False,
    cache: Path | None = None,
    looking: Progress | None = None,
) -> ImagePlan:
    """Read the sizes of the images and choose those to hold out.

    Ids are hashes of the relative paths, so that added files change no other id.

    Args:
        image_size: side of the canvas; larger images are shrunk to fit. None: the largest side, at most 256.
        strict: an image that cannot be read is an error; otherwise it is left out, with a line in `notes`.
        cache: folder for decoded images; by default the user's cache.
        looking: called as looking(headers read, images in total), if there are many.
    """
    limit = checked_side(image_size)
    failures = dict(layout.unreadable)
    if layout.grouping is None:
        shapes = []
        for found, read in zip(layout.files, read_headers(layout, looking), strict=True):
            if isinstance(read, str):
                failures[found.path] = read
            else:
                shapes.append(read)
    else:  # a named dataset has one canvas on every machine
        shapes = [Shape(limit, limit, "RGB", "")]
        paths = (found.path for found in layout.files)
        failures |= {path: "no such file" for path in paths if not has_file(layout.root / path)}
    files = [found for found in layout.files if found.path not in failures]
    _stop_if_strict(strict, failures)
    if not layout.has_parts:
        files = _held_out_last(files)
    _check_enough(layout, files, failures)  # before anything is decoded
    longest_side = max(shape.longest_side for shape in shapes)
    return ImagePlan(
        layout,
        tuple(files),
        side=min(limit, longest_side),
        channels=1 if all(shape.is_grey for shape in shapes) else 3,
        cache=cache if cache is not None else usual_cache(),
        failures=failures,
        longest_side=longest_side,
        is_strict=strict,
    )


def read_headers(layout: Layout, progress: Progress | None = None) -> list[Shape | str]:
    """Read each image's header, or why that fails; many images are reported on."""

    def work(row: int) -> Shape | str:
        try:
            return read_shape(layout.open(layout.files[row].path))
        except UndecodableError as error:
            return str(error)

    return map_files(work, len(layout.files), progress if len(layout.files) >= MANY else None)


def usual_side(plan: ImagePlan) -> float | None:
    """Estimate the median shorter side from a sample of images; None if unreadable."""
    count = len(plan.files)
    sides = []
    with decompression_bombs_refused():
        for row in sorted({place * count // SAMPLED for place in range(SAMPLED)} if count else ()):
            try:
                shape = read_shape(plan.open(row))
            except UndecodableError:
                continue
            sides.append(min(shape.width, shape.height))
    return float(statistics.median(sides)) if sides else None


def load_plan(plan: ImagePlan, image_size: int | None, progress: Progress | None = None) -> Dataset:
    """Decode the images onto a canvas of this side, at most the longest side."""
    limit = checked_side(image_size)
    side = limit if plan.longest_side is None else min(limit, plan.longest_side)
    return assemble(plan, pack(replace(plan, side=side), progress))


def labels_only(plan: ImagePlan, failures: Mapping[int, str] | None = None) -> Dataset:
    """Make the dataset of a plan with blank 1 x 1 images, for its labels and notes.

    failures: row of the plan's files -> why that image cannot be read, if known
    """
    failures = failures or {}
    shape = (len(plan.files) - len(failures), plan.channels, 1, 1)
    images = np.broadcast_to(np.zeros((1, plan.channels, 1, 1), dtype=np.uint8), shape)  # takes no memory
    return assemble(plan, Packed(images, np.ones((shape[0], 2), dtype=np.int32), failures))


def _stop_if_strict(strict: bool, failures: Mapping[str, str]) -> None:
    if strict and failures:
        path, why = next(iter(failures.items()))
        raise DataError(
            f"{show(path)} cannot be read ({why}); {counted(len(failures), 'such file')} in all. "
            "Repair, replace or remove them, or leave strict off to skip them"
        )


def _held_out_last(files: list[Found]) -> list[Found]:
    """Mark held-out files as test and put them last."""
    fine = [found.fine for found in files if found.fine is not None]
    is_test = held_out(
        [found.split_key for found in files],
        [found.coarse for found in files],
        fine if len(fine) == len(files) else None,
    )
    marked = [replace(found, is_test=held) for found, held in zip(files, is_test, strict=True)]
    return sorted(marked, key=lambda found: found.is_test)  # stable: the order within each part stays


def _check_enough(layout: Layout, kept: Sequence[Found], failures: Mapping[str, str]) -> None:
    where, expected = layout.where, layout.expected
    if layout.grouping is not None:  # a named dataset: both parts are needed
        for part, is_test in (("train", False), ("test", True)):
            if not any(found.is_test == is_test for found in kept):
                total, named = len(layout.files), [f"{path} ({why})" for path, why in failures.items()]
                lost = f"{len(named)} of {total} are missing or damaged: {some(named, limit=1)}"
                why = lost if named else f"all {total} listed are of the other"
                raise DataError(f"{where} holds no readable image of the {part} part; {why}")
        return
    if not layout.files and not failures:
        loose = counted(layout.loose_images, "image")
        others = counted(layout.ignored_files - layout.loose_images, "other file")
        beside = f"{loose} in no sub-folder, {others}" if layout.loose_images else others
        raise DataError(f"no image found in {where} ({beside}); expected {expected}")
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


def assemble(plan: ImagePlan, packed: Packed) -> Dataset:
    """Make the dataset of a plan from its decoded images."""
    layout = plan.layout
    lost = {**plan.failures, **{plan.files[row].path: why for row, why in packed.failures.items()}}
    _stop_if_strict(plan.is_strict, lost)
    kept = [plan.files[row] for row in packed.kept]
    _check_enough(layout, kept, lost)
    grouping = layout.grouping or _grouping(kept)
    coarse_number = {label: number for number, label in enumerate(grouping.coarse_names)}
    fine_number = {label: number for number, label in enumerate(grouping.fine_names)}
    images, sizes = packed.images, packed.sizes if layout.grouping else None
    if layout.grouping is None:
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
            index=np.array([found.id for found in files], dtype=np.int64),
            sizes=None if sizes is None else sizes[rows],
            paths=tuple(found.path for found in files),
        )

    return Dataset(
        name=layout.name,
        train=part(slice(0, train_count)),
        test=part(slice(train_count, None)),
        coarse_names=tuple(show(label) for label in grouping.coarse_names),
        fine_names=tuple(show(label) for label in grouping.fine_names) or None,
        family=layout.family or family_of(images),
        coarse_of_fine=grouping.coarse_of or None,
        notes=tuple(_notes(layout, kept, lost)),
    )


def _grouping(kept: Sequence[Found]) -> Grouping:
    """Number the present classes by their sorted names."""
    coarse_names = sorted({found.coarse for found in kept})
    coarse_of = {found.fine: found.coarse for found in kept if found.fine is not None}
    fine_names = sorted(coarse_of)
    numbers = tuple(coarse_names.index(coarse_of[name]) for name in fine_names)
    return Grouping(tuple(coarse_names), tuple(fine_names), numbers)


def family_of(images: NDArray[np.uint8]) -> str:
    """Return the kind of views for images [N, C, H, W]: "cifar" or "photos"."""
    return "cifar" if max(images.shape[2:]) <= SMALL_SIDE else "photos"


def trimmed(
    images: NDArray[np.uint8], sizes: NDArray[np.int32]
) -> tuple[NDArray[np.uint8], NDArray[np.int32] | None]:
    """Crop the canvas if all images have one size; sizes are then None."""
    height, width = (int(side) for side in sizes[0])
    if (sizes != sizes[0]).any():
        return images, sizes
    if images.shape[2:] == (height, width):
        return images, None
    if images.nbytes > CROP_BELOW_BYTES:  # a copy might not fit; the sizes hold the same information
        return images, sizes
    return np.ascontiguousarray(images[:, :, :height, :width]), None


def _check_ids(files: Sequence[Found]) -> None:
    path_of: dict[int, str] = {}
    for found in files:
        other = path_of.setdefault(found.id, found.path)
        if other != found.path:
            raise DataError(f"{show(found.path)} and {show(other)} get the same id; rename one of them")


def _notes(layout: Layout, kept: Sequence[Found], failures: Mapping[str, str]) -> list[str]:
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
    if layout.grouping is not None:
        return notes
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
            f"no {layout.test_part}: {count:,} of {counted(len(kept), 'image')} (about {HELD_OUT_FRACTION:.0%}) "
            f"{are} held out, each by its own hash, so that added images move no other"
        )
    return notes
