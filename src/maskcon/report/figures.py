"""Figures of the report page: every function returns a matplotlib `Figure`.

No global state is touched: no pyplot, no backend switch, no default style. `save` writes the same bytes for the
same figure on the same machine.

    save(learning_curves({"MaskCon": [[(0, 0.1), (10, 0.4)], [(0, 0.1), (10, 0.5)]]}), "figures/curves")"""

from __future__ import annotations

import io
import math
import os
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from maskcon.report.style import (
    FONT_POINTS,
    INK,
    PALE,
    WIDTH_INCHES,
    class_look,
    escape,
    font_families,
    label_ends,
    new_axes,
    no_glyph_warnings,
    series_looks,
    show_empty,
    use_whole_numbers,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


Curve = Sequence[tuple[float, float | None]]  # (epoch or step, value)

MOST_CLASSES_IN_COLOUR = 24  # more fine classes than this are coloured by their coarse class
MOST_POINTS_IN_LINE = 600
PRINT_DPI = 200


def learning_curves(
    curves: Mapping[str, Sequence[Curve]],
    floor: float | None = None,
    ceiling: float | None = None,
    *,
    backbone: float | None = None,
    title: str = "",
) -> Figure:
    """Draw recall@1 (fractions) by epoch, one line per label; curves: one per seed.

    Several seeds give the mean and a band of ± one sample standard deviation. `floor` (raw pixels), `backbone` (a
    frozen one alone) and `ceiling` (fine labels) are horizontal lines.
    """
    figure, axes = new_axes(title, "epoch", "recall@1, %")
    ends: list[tuple[float, str, str]] = []
    looks = series_looks(curves)
    for name, seeds in curves.items():
        epochs, means, spreads = _over_seeds(seeds)
        if not epochs:
            continue
        colour, marker = looks[name]
        means, spreads = 100 * means, 100 * spreads
        axes.fill_between(epochs, means - spreads, means + spreads, color=colour, alpha=0.18, linewidth=0)
        look: dict[str, Any] = {"color": colour, "marker": marker, "ls": "--" if name == "SupFINE" else "-"}
        axes.plot(epochs, means, markevery=max(1, len(epochs) // 8), markersize=4, linewidth=1.6, **look)
        ends.append((float(means[-1]), name, colour))
    for value, name in ((floor, "raw pixels"), (backbone, "backbone alone"), (ceiling, "fine labels")):
        if value is not None:
            axes.axhline(100 * value, color=PALE, linewidth=1, linestyle=(0, (2, 2)))
            ends.append((100 * value, name, PALE))
    _finish_curves(axes, ends, "no evaluation yet")
    return figure


def loss_curves(curves: Mapping[str, Curve], *, title: str = "") -> Figure:
    """Draw the loss by step, one line per label; long runs are averaged in equal intervals. NaN leaves a gap."""
    figure, axes = new_axes(title, "step", "loss")
    ends: list[tuple[float, str, str]] = []
    looks = series_looks(curves)
    for name, curve in curves.items():
        steps, values = _thinned(curve)
        known = values[np.isfinite(values)]
        if not known.size:
            continue
        colour, _ = looks[name]
        axes.plot(
            steps, values, color=colour, linewidth=1.2, marker="o" if known.size == 1 else "", markersize=4
        )
        ends.append((float(known[-1]), name, colour))
    _finish_curves(axes, ends, "no step yet")
    return figure


def _finish_curves(axes: Axes, ends: Sequence[tuple[float, str, str]], empty: str) -> None:
    """Label whole epochs or steps and the curves' ends; `empty` is shown where there is no curve."""
    if not ends:
        show_empty(axes, empty)
    axes.margins(x=0.02)
    use_whole_numbers(axes)
    label_ends(axes, ends)


def embedding_map(
    points: NDArray[Any],
    labels: Sequence[int] | NDArray[Any],
    names: Sequence[str],
    *,
    coarse: Sequence[int] | NDArray[Any] | None = None,
    coarse_names: Sequence[str] | None = None,
    title: str = "",
) -> Figure:
    """Draw points [N, 2] by label [N], or by coarse label where there are too many labels."""
    positions = np.asarray(points, dtype=np.float64)
    kinds = np.asarray(labels, dtype=np.int64)
    if len(names) > MOST_CLASSES_IN_COLOUR and coarse is not None and coarse_names is not None:
        kinds, names = np.asarray(coarse, dtype=np.int64), coarse_names
    figure, axes = new_axes(title, "", "")
    figure.set_size_inches(WIDTH_INCHES, WIDTH_INCHES * 0.75)
    axes.set_axis_off()  # the axes of a map have no unit
    size = float(np.clip(3000 / max(1, len(positions)), 5, 36))
    found = np.unique(kinds).tolist()
    shown_names = [escape(str(names[kind])) if 0 <= kind < len(names) else f"class {kind}" for kind in found]
    for kind, name in zip(found, shown_names, strict=True):
        colour, marker = class_look(kind)
        x, y = positions[kinds == kind].T
        axes.scatter(x, y, s=size, c=colour, marker=marker, linewidths=0, alpha=0.85, label=name)
    if not found:
        show_empty(axes, "no points")
        return figure
    axes.set_aspect("equal", adjustable="datalim")
    if len(found) <= 2 * MOST_CLASSES_IN_COLOUR:
        columns = 1 + (len(found) - 1) // MOST_CLASSES_IN_COLOUR
        axes.legend(
            loc="center left",
            bbox_to_anchor=(1.0, 0.5),
            prop={"size": FONT_POINTS - 1, "family": font_families()},
            frameon=False,
            ncols=columns,
            labelcolor=INK,
            handletextpad=0.1,
            markerscale=math.sqrt(30 / size),
        )
    return figure


def save(figure: Figure, path_stem: str | os.PathLike[str]) -> list[Path]:
    """Write `<stem>.png` and `<stem>.svg`, without dates; returns the paths."""
    stem = Path(path_stem)
    stem.parent.mkdir(parents=True, exist_ok=True)
    png, svg = stem.with_name(stem.name + ".png"), stem.with_name(stem.name + ".svg")
    png.write_bytes(png_bytes(figure))
    svg.write_text(svg_text(figure), encoding="utf-8")
    return [png, svg]


def png_bytes(figure: Figure) -> bytes:
    """Encode a figure on white as PNG."""
    stream = io.BytesIO()
    with no_glyph_warnings():
        figure.savefig(stream, format="png", dpi=PRINT_DPI, facecolor="white", metadata={"Software": None})
    return stream.getvalue()


def svg_text(figure: Figure) -> str:
    """Encode a figure as SVG without background. Text becomes paths, so every machine shows the same."""
    import matplotlib

    stream = io.StringIO()
    no_metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    # The salt makes the identifiers inside the file repeatable; the settings return to what they were.
    with matplotlib.rc_context({"svg.hashsalt": "maskcon", "svg.fonttype": "path"}), no_glyph_warnings():
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
