"""Size and kind of many pictures, read from their headers; remembered in the cache where they are many."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from maskcon.data.cache_folder import place_key
from maskcon.data.decoding import Header, UndecodableError, read_header
from maskcon.data.packing import SCRATCH, Contents, Progress, contents_key, map_files, opened

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
    if len(paths) < REMEMBER_FROM:
        return _read_all(root, paths, contents)
    if cache is None:
        return _read_all(root, paths, contents, progress)
    file = cache / f"headers-{place_key(root)}.json"
    key = contents_key(root, paths, f"{FORMAT_VERSION};", contents)
    headers = _remembered(file, key, len(paths))
    if headers is None:
        headers = _read_all(root, paths, contents, progress)
        _remember(file, key, headers)
    return headers


def _read_all(
    root: Path, paths: Sequence[str], contents: Contents | None, progress: Progress | None = None
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
        return None  # not there, or damaged: read anew


def _remember(file: Path, key: str, headers: Sequence[Header | str]) -> None:
    rows = [row if isinstance(row, str) else (row.longest_side, int(row.is_grey)) for row in headers]
    with contextlib.suppress(OSError):  # only a help: a cache that cannot be written to costs time, no more
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=SCRATCH, dir=file.parent) as scratch:
            written = Path(scratch) / file.name
            written.write_text(json.dumps({"key": key, "headers": rows}), encoding="utf-8")
            written.replace(file)
