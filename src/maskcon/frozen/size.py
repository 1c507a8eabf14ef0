"""The side of a view for a frozen backbone, when nobody names one."""

from __future__ import annotations

from pathlib import Path

from maskcon.sources import picture_plan
from maskcon.sources.contract import Variant
from maskcon.sources.looking import usual_side

SIZES = (96, 128, 160)  # more pixels tell more and cost their number; small images are enlarged to the first


def size_for(side: float) -> int:
    """The largest of `SIZES` that pictures of this side fill, at least the first.

    >>> size_for(32), size_for(130), size_for(2000)
    (96, 128, 160)
    """
    return max((size for size in SIZES if size <= side), default=SIZES[0])


def chosen_size(
    source: str, *, root: Path | None = None, variant: Variant = "paper", download: bool = False
) -> int:
    """The side for pictures that are decoded to a size of our choice, by the headers of some of them.

    Arguments as for `maskcon.sources.load`.
    """
    plan = picture_plan(source, root=root, variant=variant, download=download)
    side = None if plan is None else usual_side(plan)
    return SIZES[0] if side is None else size_for(side)
