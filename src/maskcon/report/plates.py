"""A sheet of several panels for print: sizes in inches, letters that stay readable, and a line below that says
what is shown.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.errors import UsageError
from maskcon.report.axes import font_families
from maskcon.report.palette import INK, WRONG

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMN_INCHES, PAGE_INCHES = 3.4, 6.9  # of a page with two columns: one of them, both
SMALL_POINTS, SMALLEST_POINTS = 7.5, 6.5
RASTER_DPI = 300  # of what is a picture inside an SVG
LINE_INCHES = 0.125  # from one line of a caption to the next
WARNING_WORDS = "STAND-IN"  # a caption that begins so is set in a warning colour


class Plate:
    """A figure whose parts are placed in inches from the top left corner, with room for a caption below.

    >>> plate = Plate(width=3.4, height=2.0, caption="one line")
    >>> axes = plate.axes(left=0.5, top=0.2, width=2.5, height=1.5)
    >>> [float(round(side, 2)) for side in plate.figure.get_size_inches()]
    [3.4, 2.25]
    """

    def __init__(self, *, width: float, height: float, caption: str = "") -> None:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        letters = int(width * 72 / (SMALLEST_POINTS * 0.545))  # that fit into a line
        lines = textwrap.wrap(caption, letters)
        self.width = width
        self.height = height + (LINE_INCHES * (len(lines) + 1) if lines else 0.0)
        self.figure: Figure = Figure(figsize=(self.width, self.height), dpi=RASTER_DPI)
        FigureCanvasAgg(self.figure)
        colour = WRONG if caption.startswith(WARNING_WORDS) else INK
        for row, line in enumerate(lines):
            self.words(0.06, height + LINE_INCHES * (row + 0.75), line, size=SMALLEST_POINTS, color=colour)

    def axes(self, *, left: float, top: float, width: float, height: float, bare: bool = True) -> Axes:
        """Axes at that place; bare: no ticks and no frame."""
        box = (left / self.width, 1 - (top + height) / self.height, width / self.width, height / self.height)
        axes = self.figure.add_axes(box)
        if bare:
            axes.set_xticks([])
            axes.set_yticks([])
            for spine in axes.spines.values():
                spine.set_visible(False)
        return axes

    def words(self, left: float, top: float, text: str, **look: Any) -> None:
        """Text whose anchor (`ha`, `va`) stands at that place. A dollar sign is a dollar sign."""
        look = {"size": SMALL_POINTS, "color": INK, "ha": "left", "va": "center", **look}
        self.figure.text(
            left / self.width,
            1 - top / self.height,
            text,
            parse_math=False,
            family=font_families(),
            **look,
        )


def as_picture(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """An image [C, H, W] uint8 as [H, W, 3], grey as three equal channels; what `imshow` draws."""
    if image.ndim != 3 or image.shape[0] not in (1, 3) or image.dtype != np.uint8 or 0 in image.shape:
        raise UsageError(
            f"images must be uint8 [C, H, W] with 1 or 3 channels, not {image.dtype} {list(image.shape)}"
        )
    channels = np.repeat(image, 3, axis=0) if image.shape[0] == 1 else image
    return np.ascontiguousarray(channels.transpose(1, 2, 0))


def shortened(text: str, letters: int) -> str:
    """At most so many letters, the last one an ellipsis where some had to go."""
    plain = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
    return plain if len(plain) <= letters else plain[: letters - 1] + "…"
