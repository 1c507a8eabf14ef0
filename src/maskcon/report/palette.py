"""Colours and marks that stay apart for every kind of colour vision, and in print without colour."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

INK = "#262626"  # text, axes; the page replaces it by its own text colour
PALE = "#8c8c8c"  # floor and ceiling lines, grid
RIGHT, WRONG = "#009e73", "#d55e00"

# Okabe and Ito's palette without black, which is kept for text; its yellow is darkened to be seen on white.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c8c8c", "#a89b00")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")

# One method keeps one look in every figure.
_METHOD_PLACE = {
    "MaskCon": 1,
    "Grafit": 0,
    "SupCon": 2,
    "SupCE": 3,
    "ASCL": 4,
    "SelfCon": 5,
    "NNCLR": 6,
    "CoIns": 7,
}


def series_looks(names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Colour and marker of each curve: known methods keep theirs, the others get what is left over.

    >>> series_looks(["mine", "Grafit"])["Grafit"]
    ('#0072b2', 'o')
    """
    looks: dict[str, tuple[str, str]] = {}
    others: list[str] = []
    for name in names:
        if name == "SupFINE":
            looks[name] = INK, "d"
        elif name in _METHOD_PLACE:
            place = _METHOD_PLACE[name]
            looks[name] = COLOURS[place], MARKERS[place]
        else:
            others.append(name)
    pairs = [class_look(position) for position in range(len(COLOURS) * len(MARKERS))]
    # Each colour with its own marker comes first; once all are in use, another marker tells curves apart.
    rest = [pair for pair in pairs if pair not in looks.values()]
    return looks | dict(zip(others, itertools.cycle(rest), strict=False))


def class_look(position: int) -> tuple[str, str]:
    """Colour and marker of a class: each colour with its own marker first, 64 pairs before one comes again."""
    count = len(COLOURS)
    return COLOURS[position % count], MARKERS[(position + position // count) % count]
