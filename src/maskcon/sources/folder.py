"""A folder of one's own pictures: a sub-folder a coarse class, in it pictures, or sub-folders of fine classes.

flowers/daisy/1.jpg                    coarse labels only; about a fifth of the pictures is held out to score on
flowers/daisy/oxeye/1.jpg              coarse and fine labels
flowers/train/daisy/1.jpg, flowers/test/daisy/oxeye/2.jpg     own parts; fine labels to score with
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from maskcon.errors import DataError, UsageError
from maskcon.sources.canvas import checked_side
from maskcon.sources.contract import Dataset, ImageSet
from maskcon.sources.decode import Header
from maskcon.sources.headers import read_headers
from maskcon.sources.layout import Found, Layout, path_hash, read_layout, show, some
from maskcon.sources.pack import Packed, PackJob, Progress, pack, usual_cache

HELD_OUT_FRACTION = 0.2
SMALL_SIDE = 64  # pictures up to this size get the views made for CIFAR, larger ones those for photographs
CROP_BELOW_BYTES = 2 << 30


def load_folder(
    path: Path,
    *,
    image_size: int | None = None,
    strict: bool = False,
    held_out: float = HELD_OUT_FRACTION,
    progress: Progress | None = None,
    cache: Path | None = None,
) -> Dataset:
    """Read a folder of pictures; ids are hashes of the relative paths, so adding files changes no other id.

    image_size: side of the canvas; larger pictures are shrunk to fit. None: the largest side, at most 256.
    strict: a picture that cannot be read is an error; otherwise it is left out, with a line in `notes`.
    held_out: share kept for testing where there is no test folder, chosen by a hash of each path.
    progress: called as progress(files done, files in all) while decoding.
    """
    plan = plan_folder(path, image_size=image_size, strict=strict, held_out=held_out, cache=cache)
    return plan.dataset(pack(plan.job, progress))


@dataclass(frozen=True)
class FolderPlan:
    """The pictures of a folder, looked at but not decoded: those to train on, then those to test on."""

    path: Path
    layout: Layout
    files: list[Found]
    failures: Mapping[str, str]
    strict: bool
    held_out: float
    job: PackJob

    @property
    def picture_count(self) -> int:
        return len(self.files) + len(self.failures)

    def dataset(self, packed: Packed) -> Dataset:
        failures = {**self.failures, **{self.files[row].path: why for row, why in packed.failures.items()}}
        _stop_if_strict(self.strict, failures)
        kept = [self.files[row] for row in packed.kept.tolist()]
        _check_enough(self.path, self.layout, kept, failures)
        return _assemble(self.path, kept, packed, _notes(self.layout, kept, failures, self.held_out))


def plan_folder(
    path: Path,
    *,
    image_size: int | None = None,
    strict: bool = False,
    held_out: float = HELD_OUT_FRACTION,
    cache: Path | None = None,
) -> FolderPlan:
    """Find the pictures and read how large they are; see `load_folder`."""
    limit = checked_side(image_size)
    if not 0.0 < held_out < 1.0:
        raise UsageError(f"the held-out share must lie between 0 and 1 (exclusive), got {held_out}")
    layout = read_layout(path)
    failures = dict(layout.unreadable)
    cache = cache if cache is not None else usual_cache()
    files, headers = _with_headers(path, layout, failures, cache)
    _stop_if_strict(strict, failures)
    if not layout.has_parts:
        files, headers = _held_out_last(files, headers, held_out)
    _check_enough(path, layout, files, failures)  # before anything is decoded
    job = PackJob(
        name="folder" if held_out == HELD_OUT_FRACTION else f"folder-held-{held_out:g}",
        root=path,
        paths=tuple(found.path for found in files),
        side=min(limit, max(header.longest_side for header in headers)),
        channels=1 if all(header.is_grey for header in headers) else 3,
        cache=cache,
    )
    return FolderPlan(path, layout, files, failures, strict, held_out, job)


def _with_headers(
    path: Path, layout: Layout, failures: dict[str, str], cache: Path | None
) -> tuple[list[Found], list[Header]]:
    read = read_headers(path, [found.path for found in layout.files], cache)
    files, headers = [], []
    for found, header in zip(layout.files, read, strict=True):
        if isinstance(header, str):
            failures[found.path] = header
        else:
            files.append(found)
            headers.append(header)
    return files, headers


def _stop_if_strict(strict: bool, failures: Mapping[str, str]) -> None:
    if strict and failures:
        path, why = next(iter(failures.items()))
        raise DataError(
            f"{show(path)} cannot be read ({why}); {len(failures)} such files in all. "
            "Repair or remove them, or go on without them by leaving strict off"
        )


def _held_out_last(
    files: list[Found], headers: list[Header], fraction: float
) -> tuple[list[Found], list[Header]]:
    """Mark about this share as test, by path, and put it last; every class keeps a picture to train on."""
    threshold = int(fraction * 2**63)
    is_test = [path_hash(found.path) < threshold for found in files]
    rows_of: dict[str, list[int]] = {}
    for row, found in enumerate(files):
        rows_of.setdefault(found.fine or found.coarse, []).append(row)
    by_hash = {
        name: sorted(rows, key=lambda row: path_hash(files[row].path)) for name, rows in rows_of.items()
    }
    for rows in by_hash.values():
        if all(is_test[row] for row in rows):
            is_test[rows[-1]] = False
    if files and not any(is_test):
        largest = max(by_hash.values(), key=len)
        is_test[largest[0]] = len(largest) > 1
    order = sorted(
        range(len(files)), key=lambda row: is_test[row]
    )  # stable: paths stay sorted within each part
    moved = [Found(files[row].path, is_test[row], files[row].coarse, files[row].fine) for row in order]
    return moved, [headers[row] for row in order]


def _check_enough(path: Path, layout: Layout, kept: Sequence[Found], failures: Mapping[str, str]) -> None:
    where = show(str(path))
    shape = f"{where}/CLASS/picture.jpg"
    if not layout.files and not failures:
        raise DataError(
            f"no image found in the sub-folders of {where} ({layout.ignored_files} other files); expected {shape}"
        )
    if not kept:
        first, why = next(iter(failures.items()))
        raise DataError(
            f"none of the {len(failures)} images in {where} can be read; the first: {show(first)} ({why})"
        )
    if len(kept) < 2:
        raise DataError(f"{where} holds a single image; at least 2 are needed, and hundreds to learn from")
    classes = sorted({found.coarse for found in kept if not found.is_test})
    if not classes:
        raise DataError(f"the training part of {where} holds no readable image")
    if len(classes) < 2:
        raise DataError(
            f"{where} holds only one class to train on ({show(classes[0])}); "
            f"at least 2 sub-folders of images are needed ({shape})"
        )


def _assemble(path: Path, kept: list[Found], packed: Packed, notes: list[str]) -> Dataset:
    coarse_folders = sorted({found.coarse for found in kept})
    coarse_number = {folder: number for number, folder in enumerate(coarse_folders)}
    coarse_of = {found.fine: coarse_number[found.coarse] for found in kept if found.fine is not None}
    fine_folders = sorted(coarse_of)
    fine_number = {folder: number for number, folder in enumerate(fine_folders)}
    images, sizes = _trimmed(packed)
    train_count = sum(not found.is_test for found in kept)
    _check_ids(kept)
    parts = [
        _part(kept[rows], images[rows], None if sizes is None else sizes[rows], coarse_number, fine_number)
        for rows in (slice(0, train_count), slice(train_count, None))
    ]
    return Dataset(
        name=show(path.resolve().name) or "folder",
        train=parts[0],
        test=parts[1],
        coarse_names=tuple(show(folder) for folder in coarse_folders),
        fine_names=tuple(show(folder) for folder in fine_folders) or None,
        family="cifar" if max(images.shape[2:]) <= SMALL_SIDE else "photos",
        coarse_of_fine=tuple(coarse_of[folder] for folder in fine_folders) or None,
        notes=tuple(notes),
    )


def _part(
    files: list[Found],
    images: NDArray[np.uint8],
    sizes: NDArray[np.int32] | None,
    coarse_number: dict[str, int],
    fine_number: dict[str, int],
) -> ImageSet:
    fine = [fine_number[found.fine] for found in files if found.fine is not None]
    return ImageSet(
        images=images,
        coarse=np.array([coarse_number[found.coarse] for found in files], dtype=np.int64),
        fine=np.array(fine, dtype=np.int64) if fine else None,
        index=np.array([path_hash(found.path) for found in files], dtype=np.int64),
        sizes=sizes,
        paths=tuple(found.path for found in files),
    )


def _trimmed(packed: Packed) -> tuple[NDArray[np.uint8], NDArray[np.int32] | None]:
    """Where all pictures have one size, a canvas of just that size, and no sizes to carry along."""
    height, width = (int(side) for side in packed.sizes[0])
    if (packed.sizes != packed.sizes[0]).any():
        return packed.images, packed.sizes
    if packed.images.shape[2:] == (height, width):
        return packed.images, None
    if packed.images.nbytes > CROP_BELOW_BYTES:  # a copy would not fit; the sizes say the same
        return packed.images, packed.sizes
    return np.ascontiguousarray(packed.images[:, :, :height, :width]), None


def _check_ids(files: Sequence[Found]) -> None:
    path_of: dict[int, str] = {}
    for found in files:
        other = path_of.setdefault(path_hash(found.path), found.path)
        if other != found.path:
            raise DataError(f"{show(found.path)} and {show(other)} get the same id; rename one of them")


def _notes(layout: Layout, kept: Sequence[Found], failures: Mapping[str, str], held_out: float) -> list[str]:
    notes = list(layout.notes)
    if failures:
        named = [f"{show(path)} ({why})" for path, why in failures.items()]
        notes.append(f"{len(failures)} images could not be read and were left out: {some(named)}")
    if layout.ignored_files:
        notes.append(f"{layout.ignored_files} other files (hidden, not images, or in no class) were ignored")
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
        notes.append(
            f"no test folder: {count} of {len(kept)} images (about {held_out:.0%}) are held out, chosen by path"
        )
    return notes
