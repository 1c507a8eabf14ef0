"""Pictures that are files below a folder."""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from maskcon.data.collection.base import Block, Stamp
from maskcon.data.decoding import UndecodableError, decode
from maskcon.data.packing import map_files


class FilePictures:
    """See `Pictures`. A link to elsewhere is followed; a file that is not regular is not opened.

    named: path and coarse label ("" or None where there is none); of a path that comes twice the first counts
    canvas, channels: what pictures are decoded onto
    """

    def __init__(
        self,
        source: str,
        root: Path,
        named: Iterable[tuple[str, str | None]],
        *,
        canvas: int,
        channels: int,
        empty: str,
        unreadable: Mapping[str, str] | None = None,
        notes: tuple[str, ...] = (),
    ) -> None:
        self.source, self.root, self.empty, self.notes = source, str(root), empty, notes
        self.paths: list[str] = []
        self.coarse: list[str | None] = []
        self.stamps: list[Stamp] = []
        self.unreadable: dict[str, str] = dict(unreadable or {})
        self.image_bytes = channels * canvas**2
        self._folder, self._canvas, self._channels = root, canvas, channels
        labels: dict[str, str | None] = {}
        for path, coarse in named:
            labels.setdefault(path, coarse)
        for path, coarse in labels.items():
            found = self._looked_up(path)
            if isinstance(found, str):
                self.unreadable[path] = found
                continue
            self.paths.append(path)
            self.coarse.append(coarse or None)
            self.stamps.append(found)

    def _looked_up(self, path: str) -> Stamp | str:
        try:
            status = (self._folder / path).stat()
        except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
            return getattr(error, "strerror", None) or str(error)
        if not stat.S_ISREG(status.st_mode):
            return "not a regular file"  # opening a pipe might never return
        return Stamp(status.st_size, status.st_mtime_ns)

    def digests(self, rows: Sequence[int]) -> list[str | None]:
        def work(place: int) -> str | None:
            try:
                with (self._folder / self.paths[rows[place]]).open("rb") as file:
                    return hashlib.file_digest(file, "sha256").hexdigest()
            except OSError:
                return None

        return map_files(work, len(rows))

    def read(self, rows: Sequence[int]) -> Block:
        images = np.zeros((len(rows), self._channels, self._canvas, self._canvas), dtype=np.uint8)

        def work(place: int) -> tuple[int, int] | str:
            path = self.paths[rows[place]]
            try:
                pixels = decode(self._folder / path, self._canvas, self._channels)
            except UndecodableError as error:
                return str(error)
            if self._looked_up(path) != self.stamps[rows[place]]:
                return "changed while it was read"  # its stamp or digest may be of other bytes
            _, height, width = pixels.shape
            images[place, :, :height, :width] = pixels
            return height, width

        outcome = map_files(work, len(rows))
        kept = [place for place, found in enumerate(outcome) if not isinstance(found, str)]
        return Block(
            images=images if len(kept) == len(rows) else images[kept],
            sizes=np.array([outcome[place] for place in kept], dtype=np.int32).reshape(-1, 2),
            rows=[rows[place] for place in kept],
            failures={rows[place]: why for place, why in enumerate(outcome) if isinstance(why, str)},
        )
