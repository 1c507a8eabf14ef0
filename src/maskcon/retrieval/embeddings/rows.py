"""The pictures of a source as rows of a table, which needs names that are text."""

from __future__ import annotations

import os
from collections.abc import Sequence

from maskcon.data.collection import Block, Pictures

Named = tuple[list[str], list[str | None], list[str]]  # paths, labels, stamps


class Rows:
    """Pictures by names that are valid text; of two with the same one, the second is left out.

    unreadable: path -> why, known before any was read
    """

    def __init__(self, pictures: Pictures) -> None:
        self.pictures = pictures
        self.paths: list[str] = []
        self.unreadable = {text(path): why for path, why in pictures.unreadable.items()}
        self._places: list[int] = []  # of each row its number in the source
        taken: set[str] = set()
        for place, path in enumerate(map(text, pictures.paths)):
            if path in taken:  # one has a byte that is no text, one has it written out
                self.unreadable[path] = "another file has this name, once written as text"
                continue
            taken.add(path)
            self.paths.append(path)
            self._places.append(place)
        stamps = pictures.stamps
        self.coarse = [_label(pictures.coarse[place]) for place in self._places]
        self.stamps = [f"{stamps[place].size};{stamps[place].mtime_ns}" for place in self._places]

    def __len__(self) -> int:
        return len(self.paths)

    def named(self, rows: Sequence[int]) -> Named:
        return (
            [self.paths[row] for row in rows],
            [self.coarse[row] for row in rows],
            [self.stamps[row] for row in rows],
        )

    def read(self, rows: Sequence[int]) -> Block:
        """These pictures; rows in the block are rows of this table."""
        row_of = {self._places[row]: row for row in rows}
        block = self.pictures.read(list(row_of))
        failures = {row_of[place]: why for place, why in block.failures.items()}
        return Block(block.images, block.sizes, [row_of[place] for place in block.rows], failures)


def text(name: str) -> str:
    """A file's name as valid text; bytes that are none become \\xNN.

    >>> text(os.fsdecode(b"caf\\xe9"))
    'caf\\\\xe9'
    """
    return os.fsencode(name).decode("utf-8", errors="backslashreplace")


def _label(coarse: str | None) -> str | None:
    return None if coarse is None else text(coarse)
