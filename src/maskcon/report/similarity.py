"""How alike images are in an embedding: nearest neighbours against any two images, as a figure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from maskcon.report.axes import FONT_POINTS, make_room_at_left, new_axes, say_empty
from maskcon.report.palette import COLOURS, INK

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BINS = 60


def similarity_figure(
    nearest: NDArray[Any], pairs: NDArray[Any], same_class: NDArray[Any], *, title: str = ""
) -> Figure:
    """Distributions of cosines: of each image and its nearest [N], and of random pairs [P] by class.

    The farther the nearest neighbours stand from the other pairs, the more a ranking by similarity can tell.
    """
    figure, axes = new_axes(title, "cosine", "share of pairs, %")
    groups = (
        ("other coarse classes", pairs[~same_class], COLOURS[5], "-"),
        ("same coarse class", pairs[same_class], COLOURS[1], "--"),
        ("nearest neighbours", nearest, COLOURS[0], "-"),
    )
    known = [(name, values, colour, dash) for name, values, colour, dash in groups if len(values)]
    if not known:
        say_empty(axes, "too few images")
        return figure
    lowest = min(float(np.min(values)) for _, values, _, _ in known)
    edges = np.linspace(np.floor(10 * lowest) / 10, 1.0, BINS + 1) if lowest < 1 else np.linspace(0, 1, 11)
    for name, values, colour, dash in known:
        heights = 100 * np.histogram(values, edges)[0] / len(values)
        axes.stairs(heights, edges, color=colour, linewidth=1.6, linestyle=dash, label=name)
        axes.stairs(heights, edges, color=colour, fill=True, alpha=0.12, linewidth=0)
    axes.margins(x=0.01)
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=FONT_POINTS, labelcolor=INK, loc="best")
    make_room_at_left(axes)
    return figure
