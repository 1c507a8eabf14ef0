"""Choose images to hold out for scoring, if a source has no test part of its own.

An image's part follows from its own key (a hash of its path, or of its content), so that it stays there when others are
added. The one exception: if chance puts a whole class into one part, one of its images is moved to the other, and may
move back once the class has grown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from maskcon._utils.errors import UsageError

HELD_OUT_FRACTION = 0.2
KEY_BITS = 63  # of `folder_layout.path_hash`


def held_out(
    keys: Sequence[int],
    coarse: Sequence[str],
    fine: Sequence[str] | None,
    fraction: float = HELD_OUT_FRACTION,
) -> list[bool]:
    """Choose about `fraction` of N images to hold out, by their keys in 0..2**63-1.

    coarse, fine: the classes of each. Every coarse class keeps an image to train on, and one of two or more images also
    has one to score on. Every fine class keeps one to train on too, unless all fine classes of a coarse one are single
    images.

    >>> held_out([1, 2**62, 2**62 + 1], ["cat", "cat", "dog"], None)
    [True, False, False]
    >>> held_out([2**62, 2**62 + 1], ["cat", "cat"], None)  # neither by its key alone: the lower key is held out
    [True, False]
    """
    if not 0.0 < fraction < 1.0:
        raise UsageError(f"the held-out share must lie between 0 and 1 (exclusive), got {fraction}")
    threshold = int(fraction * 2**KEY_BITS)
    is_held = [key < threshold for key in keys]
    finest = coarse if fine is None else fine
    for rows in _rows_by_key(keys, finest):
        if all(is_held[row] for row in rows):
            is_held[rows[-1]] = False
    class_size = Counter(finest)
    for rows in _rows_by_key(keys, coarse):
        if len(rows) > 1 and not any(is_held[row] for row in rows):
            # preferably not the only image of a fine class, which would never be trained on
            spare = [row for row in rows if class_size[finest[row]] > 1]
            is_held[(spare or rows)[0]] = True
    return is_held


def _rows_by_key(keys: Sequence[int], classes: Sequence[str]) -> list[list[int]]:
    """List the rows of each class, lowest key first."""
    rows_of: dict[str, list[int]] = {}
    for row in sorted(range(len(keys)), key=keys.__getitem__):
        rows_of.setdefault(classes[row], []).append(row)
    return list(rows_of.values())
