"""Figure 3: t-SNE maps of the same images under several methods, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from maskcon.paper.runs import Drawn, Setup, as_csv
from maskcon.report.maps import map_2d
from maskcon.report.style import (
    COLOURS,
    MARKERS,
    PAGE_INCHES,
    SMALL_POINTS,
    figure_style,
    new_figure,
    shorten,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

IntArray = NDArray[np.integer[Any]]

COLUMNS = 3
LEGEND_COLUMNS = 4
MOST_IN_LEGEND = 40


@dataclass(frozen=True)
class Classes:
    """Labels [N] of the points and the names of their classes."""

    coarse: IntArray
    fine: IntArray
    coarse_names: Sequence[str]
    fine_names: Sequence[str]

    def looks(self) -> dict[int, tuple[str, str]]:
        """Return colour and marker of each fine class: a colour each, a marker per coarse class.

        Colours repeat after eight classes, then with the next marker.

        >>> two = Classes(np.array([0, 1, 1]), np.array([5, 2, 3]), "ab", "abcdef")
        >>> {fine: marker for fine, (_, marker) in two.looks().items()}
        {5: 'o', 2: 's', 3: 's'}
        """
        pairs = sorted(set(zip(self.coarse.tolist(), self.fine.tolist(), strict=True)))
        kinds = sorted({coarse for coarse, _ in pairs})
        count = len(COLOURS)
        return {
            fine: (COLOURS[place % count], MARKERS[(kinds.index(coarse) + place // count) % len(MARKERS)])
            for place, (coarse, fine) in enumerate(pairs)
        }


@figure_style()
def map_panels(
    maps: Mapping[str, NDArray[Any]],
    classes: Classes,
    *,
    notes: Mapping[str, str] | None = None,
    caption: str = "",
) -> Figure:
    """Draw one panel per map [N, 2], in the order given; `notes` stand right of a panel's title."""
    rows = -(-len(maps) // COLUMNS)
    looks = classes.looks()
    in_legend = len(looks) <= MOST_IN_LEGEND
    lines = -(-len(looks) // LEGEND_COLUMNS) if in_legend else 0
    figure = new_figure(PAGE_INCHES, rows * PAGE_INCHES / COLUMNS + 0.16 * lines + 0.2, caption)
    panels = np.ravel(figure.subplots(rows, COLUMNS, squeeze=False))
    for axes in panels[len(maps) :]:
        axes.remove()
    coarse_of = dict(zip(classes.fine.tolist(), classes.coarse.tolist(), strict=True))
    for (name, points), axes in zip(maps.items(), panels, strict=False):
        axes.set_title(name, size=SMALL_POINTS + 1, weight="bold")
        axes.set_title((notes or {}).get(name, ""), size=SMALL_POINTS, loc="right")
        axes.set(xticks=[], yticks=[], aspect="equal")
        axes.set_adjustable("datalim")
        size = float(np.clip(9000 / max(1, len(points)), 1.6, 14))
        for fine, (colour, marker) in looks.items():
            x, y = points[classes.fine == fine].T
            label = shorten(f"{classes.fine_names[fine]} / {classes.coarse_names[coarse_of[fine]]}", 30)
            axes.scatter(
                x, y, s=size, c=colour, marker=marker, linewidths=0, alpha=0.8, rasterized=True, label=label
            )
    if in_legend:
        handles = panels[0].collections
        figure.legend(
            handles=handles,
            loc="outside upper center",
            ncols=LEGEND_COLUMNS,
            fontsize=SMALL_POINTS,
            markerscale=2,
        )
    return figure


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
