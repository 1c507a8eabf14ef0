"""What is known of many images before they are decoded: size and kind by their headers, labels and parts."""

from __future__ import annotations

import contextlib
import json
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from maskcon.data.dataset import Dataset
from maskcon.data.decoding import Header, UndecodableError, picture_bombs_refused, read_header, read_shape
from maskcon.data.packing import (
    SCRATCH,
    Contents,
    Packed,
    PicturePlan,
    Progress,
    contents_key,
    map_files,
    opened,
    place_key,
)

REMEMBER_FROM = 1000  # fewer are read again in no time
FORMAT_VERSION = 1


def read_headers(
    root: Path,
    paths: Sequence[str],
    cache: Path | None,
    contents: Contents | None = None,
    progress: Progress | None = None,
) -> list[Header | str]:
    """The header of root/path for each path, or why it cannot be read; contents: where paths are no files.

    progress is called where they are many and not remembered.
    """
    if cache is None or len(paths) < REMEMBER_FROM:
        return _read_all(root, paths, contents, progress if len(paths) >= REMEMBER_FROM else None)
    file = cache / f"headers-{place_key(root)}.json"
    key = contents_key(root, paths, f"{FORMAT_VERSION};", contents)
    headers = _remembered(file, key, len(paths))
    if headers is None:
        headers = _read_all(root, paths, contents, progress)
        _remember(file, key, headers)
    return headers


def _read_all(
    root: Path, paths: Sequence[str], contents: Contents | None, progress: Progress | None
) -> list[Header | str]:
    def work(row: int) -> Header | str:
        try:
            return read_header(opened(root, paths[row], contents))
        except UndecodableError as error:
            return str(error)

    return map_files(work, len(paths), progress)


def _remembered(file: Path, key: str, count: int) -> list[Header | str] | None:
    try:
        stored = json.loads(file.read_text(encoding="utf-8"))
        if stored["key"] != key or len(stored["headers"]) != count:
            return None
        return [
            row if isinstance(row, str) else Header(int(row[0]), bool(row[1])) for row in stored["headers"]
        ]
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None  # not there, or damaged: read again


def _remember(file: Path, key: str, headers: Sequence[Header | str]) -> None:
    rows = [row if isinstance(row, str) else (row.longest_side, int(row.is_grey)) for row in headers]
    with contextlib.suppress(OSError):  # only a help: a cache that cannot be written to costs time, no more
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=SCRATCH, dir=file.parent) as scratch:
            written = Path(scratch) / file.name
            written.write_text(json.dumps({"key": key, "headers": rows}), encoding="utf-8")
            written.replace(file)


LOOKED_AT = 64  # images whose headers give the usual size


def labels_only(plan: PicturePlan, failures: Mapping[int, str] | None = None) -> Dataset:
    """The dataset that a plan would give, with labels, parts, paths and notes as in training, but blank 1 x 1 images.

    failures: place in the plan's paths -> why that image cannot be read, as far as is known.
    """
    failures = dict(failures or {})
    kept = np.array([row for row in range(len(plan.job.paths)) if row not in failures], dtype=np.int64)
    blank = np.zeros((1, plan.job.channels, 1, 1), dtype=np.uint8)
    images = np.broadcast_to(blank, (len(kept), *blank.shape[1:]))  # takes no memory
    return plan.dataset(Packed(images, np.ones((len(kept), 2), dtype=np.int32), kept, failures))


def usual_side(plan: PicturePlan) -> float | None:
    """The median of the shorter sides of some of the images, spread over all of them; None if none can be read."""
    paths = plan.job.paths
    spread = {place * len(paths) // LOOKED_AT for place in range(LOOKED_AT)} if paths else set()
    sides = []
    with picture_bombs_refused():
        for place in sorted(spread):
            try:
                shape = read_shape(opened(plan.job.root, paths[place], plan.job.contents))
            except UndecodableError:
                continue
            sides.append(min(shape.width, shape.height))
    return float(statistics.median(sides)) if sides else None
