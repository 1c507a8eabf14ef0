"""Match a kinds file to training images, for `maskcon train --fine kinds.csv`."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.errors import DataError
from maskcon._utils.text import counted
from maskcon.config.choices import FEWEST_TRAIN
from maskcon.data.dataset import Dataset
from maskcon.data.folder_layout import show
from maskcon.data.kinds_file import KindRow, read_kinds

UNNAMED, JUNK, NUMBERED = -1, -2, -3  # in `KnownNames.kinds`


@dataclass(frozen=True, eq=False)
class KnownNames:
    """The named kind of every training image.

    kinds: [N] int64, numbered in the order of first occurrence; `UNNAMED` if nothing is known,
        `NUMBERED` in a kind that was found and has no name yet, `JUNK` to leave out
    notes: what was read, and which rows of the file had no effect, one line each
    """

    kinds: NDArray[np.int64]
    notes: tuple[str, ...]

    @property
    def images(self) -> int:
        """Count the named images."""
        return int((self.kinds >= 0).sum())

    @property
    def count(self) -> int:
        """Count the named kinds."""
        return int(self.kinds.max()) + 1

    def fingerprint(self) -> str:
        """Hash which images share a name (sha256, hex), independent of the spelling."""
        return hashlib.sha256(self.kinds.astype("<i8").tobytes()).hexdigest()


def known_names(path: Path, data: Dataset) -> KnownNames:
    """Match the rows of a kinds file to training images by `Dataset.image_names`.

    A name belongs to its coarse class: the same name under two classes is two kinds. Rows without a name have no
    effect, unless they are junk.

    Raises:
        DataError: the file is wrong, names no training image, or leaves too few of them.
    """
    train, test = (_places(names) for names in data.image_names)
    chosen: dict[int, KindRow] = {}  # by row of the training images
    numbered: list[int] = []
    ignored: dict[str, list[str]] = {}  # by reason
    for row in read_kinds(path):
        place = train.get(row.path)
        if row.name is None and row.role != "junk":
            if row.kind and place is not None:
                numbered.append(place)
            continue
        label = None if place is None else data.coarse_names[data.train.coarse[place]]
        if place is not None and label == row.coarse:
            chosen[place] = row
            continue
        entry = f"line {row.line}: {show(row.path)}"
        if place is not None:
            reason = "with another coarse class than the image"
            entry += f" is {label!r}, not {row.coarse!r}"
        elif row.path in test:
            reason = "of test images, which are not trained on"
        else:
            reason = f"without an image in {data.name}"
        ignored.setdefault(reason, []).append(entry)
    kinds = np.full(len(data.train), UNNAMED, dtype=np.int64)
    kinds[numbered] = NUMBERED
    numbers: dict[tuple[str, str], int] = {}
    for place in sorted(chosen):
        row = chosen[place]
        # file systems and spreadsheets spell accents differently
        name = unicodedata.normalize("NFC", row.name or "")
        kinds[place] = numbers.setdefault((row.coarse, name), len(numbers)) if name else JUNK
    notes = [
        f"{counted(len(rows), 'row')} {reason}, the first in {rows[0]}" for reason, rows in ignored.items()
    ]
    if not numbers:
        why = "; ".join(notes) or "every kind is a number or empty, or junk"
        raise DataError(f"{path} names no training image of {data.name}: {why}")
    junk = int((kinds == JUNK).sum())
    if len(kinds) - junk < FEWEST_TRAIN:
        raise DataError(
            f"{path} leaves {len(kinds) - junk} of {counted(len(kinds), 'training image')}, the others are junk; "
            f"at least {FEWEST_TRAIN} are needed"
        )
    summary = (
        f"{path}: {counted(len(numbers), 'kind')} named, in {counted(len(chosen) - junk, 'training image')}"
    )
    left_out = f"; {counted(junk, 'junk image')} left out" if junk else ""
    return KnownNames(kinds, (summary + left_out, *(f"{path}: {note}" for note in notes)))


def _places(paths: Iterable[str]) -> dict[str, int]:
    """Map paths to rows, both verbatim and as printed."""
    places: dict[str, int] = {}
    for row, path in enumerate(paths):
        places |= {show(path): row, path: row}
    return places
