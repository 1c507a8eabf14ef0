"""The side of a view for a frozen backbone, when nobody names one."""

from __future__ import annotations

from pathlib import Path

from maskcon.config.choices import FROZEN_SIZES, size_for
from maskcon.data import picture_plan
from maskcon.data.dataset import Variant
from maskcon.data.headers import usual_side


def chosen_size(
    source: str, *, root: Path | None = None, variant: Variant = "paper", download: bool = False
) -> int:
    """The side for pictures that are decoded to a size of our choice, by the headers of some of them.

    Arguments as for `maskcon.data.load`.
    """
    plan = picture_plan(source, root=root, variant=variant, download=download)
    side = None if plan is None else usual_side(plan)
    return FROZEN_SIZES[0] if side is None else size_for(side)
