"""The style of all figures: colours, fonts and captions, as matplotlib settings.

Colours and markers stay distinguishable for every kind of colour vision, and in print without colour."""

from __future__ import annotations

import contextlib
import textwrap
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.text import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


INK = "#262626"  # text, axes; the page replaces it by its own text colour
PALE = "#8c8c8c"  # floor and ceiling lines, grid
RIGHT, WRONG = "#009e73", "#d55e00"

# Okabe and Ito's palette without black, the colour of text; yellow is darkened to be visible on white.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c8c8c", "#a89b00")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")

WIDTH_INCHES, HEIGHT_INCHES = 5.2, 3.4  # letters stay 9 pt in print and can be read on a phone
COLUMN_INCHES, PAGE_INCHES = 3.4, 6.9  # of a page with two columns: one of them, both
FONT_POINTS, SMALL_POINTS, SMALLEST_POINTS = 9, 7.5, 6.5
RASTER_DPI = 300  # of what is an image inside an SVG
LINE_INCHES = 0.125  # height of a line of a caption
LONGEST_NAME = 24
WARNING_WORDS = "STAND-IN"  # a caption that starts with it gets a warning colour

# For scripts that matplotlib's own font lacks, if installed.
FALLBACK_FONTS = (
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "WenQuanYi Micro Hei",
    "PingFang SC",
    "Microsoft YaHei",
    "Noto Sans Arabic",
    "Noto Sans Devanagari",
    "Noto Sans Thai",
)


def class_look(position: int) -> tuple[str, str]:
    """Return colour and marker of a class or curve; 64 pairs before one repeats."""
    count = len(COLOURS)
    return COLOURS[position % count], MARKERS[(position + position // count) % count]


@contextlib.contextmanager
def figure_style() -> Iterator[None]:
    """Draw with our settings, then restore matplotlib's; also a decorator of functions that draw."""
    import matplotlib
    from matplotlib.font_manager import fontManager

    installed = set(fontManager.get_font_names())
    settings: dict[Any, Any] = {
        "font.family": ["DejaVu Sans", *(name for name in FALLBACK_FONTS if name in installed)],
        "font.size": FONT_POINTS,
        "text.parse_math": False,  # a dollar sign in a name starts no formula
        "axes.titlesize": FONT_POINTS + 1,
        "axes.titlelocation": "left",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.color": PALE,
        "grid.alpha": 0.3,
        "grid.linewidth": 0.6,
        "legend.frameon": False,
        "legend.fontsize": FONT_POINTS - 1,
        "svg.hashsalt": "maskcon",  # makes the identifiers inside a file repeatable
        "svg.fonttype": "path",
        **dict.fromkeys(
            ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK
        ),
    }
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        # A name in a script without an installed font shows boxes.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        yield


def new_figure(width: float, height: float, caption: str = "") -> Figure:
    """Create a figure of this size in inches, with room for a caption below."""
    from matplotlib.figure import Figure

    lines = textwrap.wrap(
        caption, int(width * 72 / (SMALLEST_POINTS * 0.545))
    )  # letters that fit into a line
    figure = Figure((width, height + LINE_INCHES * len(lines)), dpi=RASTER_DPI, layout="constrained")
    if lines:
        colour = WRONG if caption.startswith(WARNING_WORDS) else INK
        figure.supxlabel("\n".join(lines), x=0.01, ha="left", size=SMALLEST_POINTS, color=colour)
    return figure


def hide_axes(axes: Axes) -> None:
    """Show neither ticks nor frame, but keep title and labels."""
    axes.set(xticks=[], yticks=[])
    axes.grid(False)
    axes.spines[:].set_visible(False)


def escape(name: str) -> str:
    """Shorten a name for a figure; a leading underscore would hide it in a legend."""
    text = shorten(" ".join(name.split()), LONGEST_NAME)
    return "\N{ZERO WIDTH SPACE}" + text if text.startswith("_") else text


def as_pixels(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Convert an image [C, H, W] uint8 to [H, W, 3], grey to three equal channels."""
    channels = np.repeat(image, 3, axis=0) if image.shape[0] == 1 else image
    return np.ascontiguousarray(channels.transpose(1, 2, 0))


def shorten(text: str, letters: int) -> str:
    """Shorten text to a number of characters, ending in an ellipsis."""
    plain = printable(text)
    return plain if len(plain) <= letters else plain[: letters - 1] + "…"
