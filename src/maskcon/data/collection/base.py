"""What can be asked of the pictures of any source.

Letters in shapes: M pictures that could be read, C channels, H and W the canvas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from maskcon.data.folder_layout import show

BLOCK_BYTES = 64 << 20  # of decoded pictures at a time


class Stamp(NamedTuple):
    """By which a picture is taken to be unchanged without being read: a file's size and time.

    A picture that is no file has the number of its bytes, and in place of a time a number made of its content.
    """

    size: int
    mtime_ns: int


@dataclass(frozen=True, eq=False)
class Block:
    """Some pictures on a common canvas.

    images: uint8 [M, C, H, W]; sizes: [M, 2] valid (height, width), None where all of the canvas is
    rows: [M] which of the source's pictures they are; failures: row -> why there is no picture
    """

    images: NDArray[np.uint8]
    sizes: NDArray[np.int32] | None
    rows: list[int]
    failures: dict[int, str]


class Pictures(Protocol):
    """Pictures in the order of their source; the number of each is its row.

    source: what they can be gathered from again, from any directory
    root: the folder that paths start from; "" where the pictures are no files
    empty: in words, that the source holds no picture
    """

    source: str
    root: str
    empty: str
    notes: tuple[str, ...]  # what a user should know of the source

    @property
    def paths(self) -> Sequence[str]:
        """With `/`, each once; bytes that are no UTF-8 as Python's file functions give them."""
        ...

    @property
    def coarse(self) -> Sequence[str | None]:
        """Labels; None where nobody said."""
        ...

    @property
    def stamps(self) -> Sequence[Stamp]: ...

    @property
    def unreadable(self) -> Mapping[str, str]:
        """Known to be so before any was read, and not among `paths`: path -> why."""
        ...

    @property
    def image_bytes(self) -> int:
        """Of one picture on its canvas."""
        ...

    def digests(self, rows: Sequence[int]) -> list[str | None]:
        """sha256 (hex) of the content of these; None where it cannot be read."""
        ...

    def read(self, rows: Sequence[int]) -> Block:
        """The pictures themselves."""
        ...


def at_once(pictures: Pictures, limit: int) -> int:
    """How many to read at a time: at most `limit`, and fewer of large ones, so that memory stays bounded."""
    return max(1, min(limit, BLOCK_BYTES // pictures.image_bytes))


def none_readable(pictures: Pictures, failures: Mapping[str, str]) -> str:
    """In words, that there is no picture, or none that can be read; failures: path -> why, of all of them."""
    if not failures:
        return pictures.empty
    first, why = next(iter(failures.items()))
    told = f"{show(first)} ({show(why)})"
    source = show(pictures.source)
    if len(failures) == 1:
        return f"the one picture of {source} cannot be read: {told}"
    return f"none of the {len(failures):,} pictures of {source} can be read; the first: {told}"
