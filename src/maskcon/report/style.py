"""The look that all figures share: colours, axes, text, and sheets of several panels.

Colours and markers stay distinguishable for every kind of colour vision, and in print without colour."""

from __future__ import annotations

import contextlib
import itertools
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.errors import UsageError
from maskcon.report.formats import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


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
    """Return colour and marker of each curve: known methods keep theirs, others get the remaining ones.

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
    """Return colour and marker of a class; 64 pairs before one repeats."""
    count = len(COLOURS)
    return COLOURS[position % count], MARKERS[(position + position // count) % count]


WIDTH_INCHES, HEIGHT_INCHES = 5.2, 3.4  # letters stay 9 pt in print and can be read on a phone
FONT_POINTS = 9
LONGEST_NAME = 24

# Scripts that matplotlib's own font lacks; those that are installed are used for names.
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


def new_axes(title: str, x_name: str, y_name: str) -> tuple[Figure, Axes]:
    """Create a figure with one set of axes; empty names take no space."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH_INCHES, HEIGHT_INCHES), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    style_axes(axes, title, x_name, y_name)
    return figure, axes


def style_axes(axes: Axes, title: str, x_name: str, y_name: str) -> None:
    """Style axes; for figures of several panels, which place their axes themselves."""
    axes.set_title(escape(title), fontsize=FONT_POINTS + 1, color=INK, loc="left", family=font_families())
    axes.set_xlabel(x_name, fontsize=FONT_POINTS, color=INK)
    axes.set_ylabel(y_name, fontsize=FONT_POINTS, color=INK)
    axes.tick_params(labelsize=FONT_POINTS, colors=INK, length=3)
    axes.grid(True, color=PALE, alpha=0.3, linewidth=0.6)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(INK)


def use_whole_numbers(axes: Axes) -> None:
    """Label whole epochs or steps only, however few there are."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(nbins="auto", integer=True, min_n_ticks=1))


def escape(name: str) -> str:
    """Escape text for matplotlib: a dollar sign starts a formula, a leading underscore hides a legend entry."""
    text = shorten(" ".join(name.split()), LONGEST_NAME).replace("$", r"\$")
    return "\N{ZERO WIDTH SPACE}" + text if text.startswith("_") else text


@contextlib.contextmanager
def no_glyph_warnings() -> Iterator[None]:
    """Silence the warning per missing glyph: a name in a script without an installed font shows boxes."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        yield


def font_families() -> list[str]:
    """List matplotlib's own font, then installed fonts for other scripts."""
    from matplotlib.font_manager import fontManager

    installed = set(fontManager.get_font_names())
    return ["DejaVu Sans", *(name for name in FALLBACK_FONTS if name in installed)]


def show_empty(axes: Axes, words: str) -> None:
    axes.text(
        0.5, 0.5, words, transform=axes.transAxes, ha="center", va="center", color=PALE, fontsize=FONT_POINTS
    )


def label_ends(axes: Axes, ends: Sequence[tuple[float, str, str]]) -> None:
    """Write names at the right ends of lines, moved apart where they would overlap, each with a thin leader."""
    if not ends:
        return
    low, high = axes.get_ylim()
    gap = 0.058  # of the height of the axes: one line of letters
    # From the line's end to the left edge of its name, whatever the box around the letters.
    leader = {
        "arrowstyle": "-",
        "linewidth": 1.6,
        "shrinkA": 2,
        "shrinkB": 0,
        "relpos": (0, 0.5),
        "patchA": None,
    }
    ordered = sorted(ends)
    wanted = [(value - low) / (high - low) for value, _, _ in ordered]
    for (_, name, colour), start, place in zip(ordered, wanted, _apart(wanted, gap), strict=True):
        axes.annotate(
            escape(name),
            xy=(1.0, start),
            xytext=(1.035, place),
            xycoords="axes fraction",
            textcoords="axes fraction",
            color=INK,
            fontsize=FONT_POINTS,
            family=font_families(),
            va="center",
            annotation_clip=False,
            arrowprops=leader | {"color": colour},
        )


def _apart(wanted: Sequence[float], gap: float) -> list[float]:
    """Return ascending places at least `gap` apart, near the wanted ones."""
    blocks: list[tuple[float, int]] = []  # (middle, how many)
    for place in wanted:
        middle, count = place, 1
        while blocks and blocks[-1][0] + gap * blocks[-1][1] / 2 > middle - gap * count / 2:
            other, many = blocks.pop()
            middle = (other * many + middle * count) / (many + count)
            count += many
        blocks.append((middle, count))
    return [middle + gap * (i - (count - 1) / 2) for middle, count in blocks for i in range(count)]


COLUMN_INCHES, PAGE_INCHES = 3.4, 6.9  # of a page with two columns: one of them, both
SMALL_POINTS, SMALLEST_POINTS = 7.5, 6.5
RASTER_DPI = 300  # of what is an image inside an SVG
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
            self.write(0.06, height + LINE_INCHES * (row + 0.75), line, size=SMALLEST_POINTS, color=colour)

    def axes(self, *, left: float, top: float, width: float, height: float, bare: bool = True) -> Axes:
        """Add axes at that place; bare: no ticks and no frame."""
        box = (left / self.width, 1 - (top + height) / self.height, width / self.width, height / self.height)
        axes = self.figure.add_axes(box)
        if bare:
            axes.set_xticks([])
            axes.set_yticks([])
            for spine in axes.spines.values():
                spine.set_visible(False)
        return axes

    def write(self, left: float, top: float, text: str, **look: Any) -> None:
        """Write text with its anchor (`ha`, `va`) at that place; no math markup."""
        look = {"size": SMALL_POINTS, "color": INK, "ha": "left", "va": "center", **look}
        self.figure.text(
            left / self.width,
            1 - top / self.height,
            text,
            parse_math=False,
            family=font_families(),
            **look,
        )


def as_pixels(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Convert an image [C, H, W] uint8 to [H, W, 3], grey to three equal channels."""
    if image.ndim != 3 or image.shape[0] not in (1, 3) or image.dtype != np.uint8 or 0 in image.shape:
        raise UsageError(
            f"images must be uint8 [C, H, W] with 1 or 3 channels, not {image.dtype} {list(image.shape)}"
        )
    channels = np.repeat(image, 3, axis=0) if image.shape[0] == 1 else image
    return np.ascontiguousarray(channels.transpose(1, 2, 0))


def shorten(text: str, letters: int) -> str:
    """Shorten text to a number of characters, ending in an ellipsis."""
    plain = printable(text)
    return plain if len(plain) <= letters else plain[: letters - 1] + "…"


def wrapped(text: str, letters: int, lines: int) -> list[str]:
    """Wrap text into at most so many lines; the last one is shortened.

    >>> wrapped("one two three four", 7, 2)
    ['one two', 'three …']
    """
    found = textwrap.wrap(text, letters) or [""]
    return (
        found
        if len(found) <= lines
        else [*found[: lines - 1], shorten(" ".join(found[lines - 1 :]), letters)]
    )
