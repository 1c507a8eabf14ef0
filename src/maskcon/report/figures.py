"""Figures of the report page: every function that draws returns a matplotlib `Figure`.

No global state is changed: no pyplot, no backend switch, no default style. `save` writes the same bytes for the
same figure on the same machine.

    save(learning_curves({"MaskCon": [[(0, 0.1), (10, 0.4)], [(0, 0.1), (10, 0.5)]]}), "figures/curves")"""

from __future__ import annotations

import io
import math
import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.files import make_folder, write_atomically
from maskcon.report.style import (
    HEIGHT_INCHES,
    PALE,
    WIDTH_INCHES,
    class_look,
    escape,
    figure_style,
    hide_axes,
    new_figure,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


Curve = Sequence[tuple[float, float | None]]  # (epoch or step, value)

MOST_CLASSES_IN_COLOUR = 24  # more fine classes than this are coloured by their coarse class
MOST_POINTS_IN_LINE = 600
PRINT_DPI = 200


@dataclass(frozen=True)
class PageFigure:
    """A figure with its alternative text and a caption."""

    figure: Figure
    alt: str
    caption: str = ""


@figure_style()
def learning_curves(
    curves: Mapping[str, Sequence[Curve]],
    floors: Mapping[str, float | None] | None = None,
    *,
    title: str = "",
) -> Figure:
    """Draw recall@1 (fractions) by epoch: one line per label, from one curve per seed.

    Several seeds give the mean and a band of ± one sample standard deviation. `floors` are horizontal lines by name.
    """
    figure, axes = _new_axes(title, "epoch", "recall@1, %")
    for number, (name, seeds) in enumerate(curves.items()):
        epochs, means, spreads = _over_seeds(seeds)
        if not epochs:
            continue
        colour, marker = class_look(number)
        means, spreads = 100 * means, 100 * spreads
        axes.fill_between(epochs, means - spreads, means + spreads, color=colour, alpha=0.18, linewidth=0)
        every = max(1, len(epochs) // 8)
        axes.plot(
            epochs, means, color=colour, marker=marker, markevery=every, markersize=4, label=escape(name)
        )
    known = [(name, value) for name, value in (floors or {}).items() if value is not None]
    for (name, value), dashes in zip(known, (":", "-.", "--"), strict=False):
        axes.axhline(100 * value, color=PALE, linewidth=1, linestyle=dashes, label=name)
    _finish_curves(axes, "no evaluation yet")
    return figure


@figure_style()
def loss_curves(curves: Mapping[str, Curve], *, title: str = "") -> Figure:
    """Draw the loss by step, one line per label; long runs are averaged in equal intervals. NaN leaves a gap."""
    figure, axes = _new_axes(title, "step", "loss")
    for number, (name, curve) in enumerate(curves.items()):
        steps, values = _thinned(curve)
        known = np.isfinite(values).sum()
        if known:
            colour, marker = class_look(number)
            axes.plot(steps, values, color=colour, marker=marker if known == 1 else "", label=escape(name))
    _finish_curves(axes, "no step yet")
    return figure


def _new_axes(title: str, x_name: str, y_name: str) -> tuple[Figure, Axes]:
    figure = new_figure(WIDTH_INCHES, HEIGHT_INCHES)
    return figure, figure.add_subplot(title=escape(title), xlabel=x_name, ylabel=y_name)


def _finish_curves(axes: Axes, empty: str) -> None:
    """Put ticks at whole epochs or steps, and list the curves, the highest end first; `empty`: text without curves."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(nbins="auto", integer=True, min_n_ticks=1))
    if not axes.lines:
        axes.text(0.5, 0.5, empty, transform=axes.transAxes, ha="center", va="center", color=PALE)
        return

    def end(line: Any) -> float:
        heights = np.asarray(line.get_ydata(), dtype=np.float64)
        return float(heights[np.isfinite(heights)][-1])

    handles = sorted(axes.lines, key=end, reverse=True)
    axes.legend(handles=handles, loc="center left", bbox_to_anchor=(1.0, 0.5))


@figure_style()
def embedding_map(
    points: NDArray[Any],
    labels: Sequence[int] | NDArray[Any],
    names: Sequence[str],
    *,
    title: str = "",
) -> Figure:
    """Draw points [N, 2] by label [N]."""
    positions = np.asarray(points, dtype=np.float64)
    kinds = np.asarray(labels, dtype=np.int64)
    figure, axes = _new_axes(title, "", "")
    figure.set_size_inches(WIDTH_INCHES, WIDTH_INCHES * 0.75)
    hide_axes(axes)  # the axes of a map have no unit
    size = float(np.clip(3000 / max(1, len(positions)), 5, 36))
    found = np.unique(kinds).tolist()
    for kind in found:
        colour, marker = class_look(kind)
        name = escape(str(names[kind])) if 0 <= kind < len(names) else f"class {kind}"
        x, y = positions[kinds == kind].T
        axes.scatter(x, y, s=size, c=colour, marker=marker, linewidths=0, alpha=0.85, label=name)
    if not found:
        axes.text(0.5, 0.5, "no points", transform=axes.transAxes, ha="center", va="center", color=PALE)
        return figure
    axes.set_aspect("equal", adjustable="datalim")
    if len(found) <= 2 * MOST_CLASSES_IN_COLOUR:
        columns = 1 + (len(found) - 1) // MOST_CLASSES_IN_COLOUR
        scale = math.sqrt(30 / size)
        axes.legend(
            loc="center left", bbox_to_anchor=(1.0, 0.5), ncols=columns, markerscale=scale, handletextpad=0.1
        )
    return figure


def save(figure: Figure, path_stem: str | os.PathLike[str]) -> list[Path]:
    """Write `<stem>.png` and `<stem>.svg` atomically and without dates; return the paths."""
    stem = Path(path_stem)
    make_folder(stem.parent)
    png, svg = stem.with_name(stem.name + ".png"), stem.with_name(stem.name + ".svg")
    write_atomically(png, png_bytes(figure))
    write_atomically(svg, svg_text(figure).encode())
    return [png, svg]


@figure_style()
def png_bytes(figure: Figure) -> bytes:
    """Encode a figure on white as PNG."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=PRINT_DPI, facecolor="white", metadata={"Software": None})
    return stream.getvalue()


@figure_style()
def svg_text(figure: Figure) -> str:
    """Encode a figure as SVG without background. Text becomes paths, so that every machine shows the same."""
    stream = io.StringIO()
    no_metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(stream, format="svg", transparent=True, metadata=no_metadata)
    return stream.getvalue()


def _over_seeds(seeds: Sequence[Curve]) -> tuple[list[float], NDArray[np.float64], NDArray[np.float64]]:
    """Return epochs, means and sample standard deviations (0 for one seed) over the seeds that reached an epoch."""
    values: dict[float, list[float]] = {}
    for curve in seeds:
        for epoch, value in curve:
            if value is not None and math.isfinite(value):
                values.setdefault(float(epoch), []).append(float(value))
    epochs = sorted(values)
    means = np.array([statistics.fmean(values[epoch]) for epoch in epochs])
    spreads = np.array([statistics.stdev(values[e]) if len(values[e]) > 1 else 0.0 for e in epochs])
    return epochs, means, spreads


def _thinned(curve: Curve) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return at most MOST_POINTS_IN_LINE steps and values: equal intervals are averaged."""
    steps = np.array([step for step, _ in curve], dtype=np.float64)
    values = np.array([math.nan if value is None else value for _, value in curve], dtype=np.float64)
    values[~np.isfinite(values)] = math.nan
    stretch = -(-len(steps) // MOST_POINTS_IN_LINE) if len(steps) else 1
    if stretch == 1:
        return steps, values
    cuts = np.arange(0, len(steps), stretch)
    counts = np.add.reduceat(np.ones(len(steps)), cuts)
    return np.add.reduceat(steps, cuts) / counts, np.add.reduceat(values, cuts) / counts
