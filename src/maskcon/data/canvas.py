"""The square that pictures of many sizes are stored on, and its side."""

from __future__ import annotations

from maskcon._utils.errors import UsageError

DEFAULT_SIDE = 256  # canvas_for(224), the views of the paper's large pictures
SIDE_RANGE = (8, 4096)
LARGEST_WITHOUT_MARGIN = 64


def canvas_for(image_size: int) -> int:
    """Side of the stored image for views of this size: small ones as they are, large ones with some margin.

    >>> canvas_for(224), canvas_for(32)
    (256, 32)
    """
    return image_size if image_size <= LARGEST_WITHOUT_MARGIN else round(image_size * 8 / 7)


def checked_side(image_size: int | None) -> int:
    """The side asked for, or the usual one; an impossible one is refused."""
    if image_size is None:
        return DEFAULT_SIDE
    if not SIDE_RANGE[0] <= image_size <= SIDE_RANGE[1]:
        raise UsageError(f"the image size must lie in {SIDE_RANGE[0]}..{SIDE_RANGE[1]}, got {image_size}")
    return image_size
