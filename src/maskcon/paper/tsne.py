"""Figure 3: t-SNE maps of the same images under several methods, side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from maskcon.paper.runs import Drawn, Setup, as_csv
from maskcon.report.maps import map_2d
from maskcon.report.style import COLOURS, INK, MARKERS, PAGE_INCHES, PALE, SMALL_POINTS, Plate, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

IntArray = NDArray[np.integer[Any]]

COLUMNS = 3
GAP_INCHES, TITLE_INCHES = 0.08, 0.2
LEGEND_INCHES = 0.145  # a line of it
LEGEND_COLUMNS = 5
MOST_IN_LEGEND = 40
FINE_COLOURS = (*COLOURS, "#1a1a1a", "#5e3c99")  # two more dark ones


@dataclass(frozen=True)
class Classes:
    """Labels [N] of the points and the names of their classes."""

    coarse: IntArray
    fine: IntArray
    coarse_names: Sequence[str]
    fine_names: Sequence[str]

    def looks(self) -> dict[int, tuple[str, str]]:
        """Return colour and marker of each fine class: a colour each, a marker per coarse class.

        Colours repeat after ten classes, then with the next marker.

        >>> two = Classes(np.array([0, 1, 1]), np.array([5, 2, 3]), "ab", "abcdef")
        >>> {fine: marker for fine, (_, marker) in two.looks().items()}
        {5: 'o', 2: 's', 3: 's'}
        """
        pairs = sorted(set(zip(self.coarse.tolist(), self.fine.tolist(), strict=True)))
        kinds = {coarse: place for place, coarse in enumerate(dict.fromkeys(coarse for coarse, _ in pairs))}
        count = len(FINE_COLOURS)
        return {
            fine: (
                FINE_COLOURS[place % count],
                MARKERS[(kinds[coarse] + place // count) % len(MARKERS)],
            )
            for place, (coarse, fine) in enumerate(pairs)
        }


def map_panels(
    maps: Mapping[str, NDArray[Any]],
    classes: Classes,
    *,
    notes: Mapping[str, str] | None = None,
    caption: str = "",
) -> Figure:
    """Draw one panel per map [N, 2], in the order given; `notes` stand right of a panel's title.

    Points are drawn in shuffled order, so that no class covers the others.
    """
    side = (PAGE_INCHES - (COLUMNS + 1) * GAP_INCHES) / COLUMNS
    rows = -(-len(maps) // COLUMNS)
    step = side + TITLE_INCHES + GAP_INCHES
    looks = classes.looks()
    coarse_of = dict(zip(classes.fine.tolist(), classes.coarse.tolist(), strict=True))
    groups: dict[int, list[int]] = {}
    for fine in looks:
        groups.setdefault(coarse_of[fine], []).append(fine)
    lines = _legend_lines(groups, len(looks))
    plate = Plate(width=PAGE_INCHES, height=rows * step + lines * LEGEND_INCHES + 0.1, caption=caption)
    for number, (name, points) in enumerate(maps.items()):
        row, column = divmod(number, COLUMNS)
        left = GAP_INCHES + column * (side + GAP_INCHES)
        axes = plate.axes(left=left, top=row * step + TITLE_INCHES, width=side, height=side)
        axes.set_gid(f"map-{name}")
        _points(axes, points, classes.fine, looks)
        plate.write(left, row * step + TITLE_INCHES / 2, name, size=SMALL_POINTS + 1, weight="bold")
        if notes and name in notes:
            plate.write(left + side, row * step + TITLE_INCHES / 2, notes[name], ha="right")
    if lines:
        _legend(plate, groups, looks, classes, rows * step + 0.06)
    return plate.figure


def _points(axes: Axes, points: NDArray[Any], fine: IntArray, looks: Mapping[int, tuple[str, str]]) -> None:
    """Draw all points of a panel; one call per marker, colours vary within it."""
    size = float(np.clip(9000 / max(1, len(points)), 1.6, 14))
    shuffled = np.random.default_rng(0).permutation(len(points))
    # Matplotlib draws one marker a call. Small calls in turn keep the shuffle across markers.
    for part in np.array_split(shuffled, min(40, max(1, len(shuffled)))):
        markers = np.array([looks[label][1] for label in fine[part].tolist()])
        for marker in sorted(set(markers.tolist())):
            rows = part[markers == marker]
            colours = [looks[label][0] for label in fine[rows].tolist()]
            x, y = points[rows].T
            axes.scatter(x, y, s=size, c=colours, marker=marker, linewidths=0, rasterized=True)
    low, high = points.min(axis=0), points.max(axis=0)
    half = float((high - low).max()) * 0.52 or 1.0
    middle = (low + high) / 2
    axes.set_xlim(middle[0] - half, middle[0] + half)
    axes.set_ylim(middle[1] - half, middle[1] + half)
    for spine in axes.spines.values():
        spine.set(visible=True, color=PALE, linewidth=0.6)


def _legend_lines(groups: Mapping[int, Sequence[int]], classes: int) -> int:
    """Count the lines of the legend: each coarse class starts a new one. 0 where classes are too many."""
    if classes > MOST_IN_LEGEND:
        return 0
    return sum(math.ceil(len(fines) / LEGEND_COLUMNS) for fines in groups.values())


def _legend(
    plate: Plate,
    groups: Mapping[int, Sequence[int]],
    looks: Mapping[int, tuple[str, str]],
    classes: Classes,
    top: float,
) -> None:
    name_inches = 1.15  # of the coarse class, at the left
    step = (PAGE_INCHES - name_inches - 2 * GAP_INCHES) / LEGEND_COLUMNS
    line = 0
    for coarse, fines in groups.items():
        plate.write(
            GAP_INCHES,
            top + LEGEND_INCHES * (line + 0.5),
            shorten(classes.coarse_names[coarse], 19),
            weight="bold",
        )
        for number, fine in enumerate(fines):
            row, column = divmod(number, LEGEND_COLUMNS)
            left = GAP_INCHES + name_inches + column * step
            middle = top + LEGEND_INCHES * (line + row + 0.5)
            colour, marker = looks[fine]
            swatch = plate.axes(left=left, top=middle - 0.05, width=0.1, height=0.1)
            swatch.plot(
                [0], [0], marker=marker, color=colour, markersize=4.5, markeredgewidth=0, clip_on=False
            )
            plate.write(left + 0.14, middle, shorten(classes.fine_names[fine], 19), color=INK)
        line += math.ceil(len(fines) / LEGEND_COLUMNS)


def draw(setup: Setup) -> Drawn:
    """Draw figure 3 from its runs."""
    runs = setup.open_methods()
    data, fine = setup.labelled_data(list(runs.values()))
    maps, notes = {}, {}
    for title, run in runs.items():
        maps[title] = map_2d(run.encode_set(data.test, device=setup.machine.device).numpy())
        notes[title] = f"R@1 {100 * run.recall[1]:.1f}"
    text = (
        f"t-SNE of the features of {len(fine):,} test images; one colour per fine class, one marker per coarse class. "
        f"R@1: recall@1 on them, %. {setup.settings()}"
    )
    classes = Classes(data.test.coarse, fine, data.coarse_names, data.fine_names or ())
    caption = setup.caption(next(iter(runs.values())), text)
    labels = np.stack([data.test.index, data.test.coarse, fine], axis=1).tolist()
    rows = [
        [title, *labels[row], f"{x:.3f}", f"{y:.3f}"]
        for title, points in maps.items()
        for row, (x, y) in enumerate(points.tolist())
    ]
    numbers = as_csv(["method", "sample", "coarse", "fine", "x", "y"], rows)
    paths = setup.write(map_panels(maps, classes, notes=notes, caption=caption), "csv", numbers)
    recalls = ", ".join(f"{title} {note.removeprefix('R@1 ')}" for title, note in notes.items())
    return paths, f"recall@1: {recalls}"
