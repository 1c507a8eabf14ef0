"""The figures of the paper, from small arrays: what is drawn, where, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from maskcon.paper.figures import Classes, Query, map_panels, retrieval_sheet, settings_heatmap
from maskcon.paper.relations import Batch, relation_panels
from maskcon.report.figures import png_bytes, svg_text
from maskcon.report.style import RIGHT, WRONG, figure_style, new_figure

RANDOM = np.random.default_rng(0)


def words_of(figure: Figure) -> list[str]:
    """Every text of a figure and its axes."""
    return [text.get_text() for text in figure.findobj(match=lambda artist: hasattr(artist, "get_text"))]


def titled(figure: Figure, title: str):
    """The axes with this title or label."""
    return next(a for a in figure.axes if title in (a.get_title(loc="left"), a.get_ylabel(), a.get_xlabel()))


def images(count: int, channels: int = 3, side: int = 8) -> np.ndarray:
    return RANDOM.integers(0, 256, (count, channels, side, side), dtype=np.uint8)


# Figure 1


def batch(count: int = 6) -> Batch:
    fine = np.array([3, 0, 2, 0, 3, 2])[:count]
    return Batch(images(count, 1), fine // 2, fine, ["shirt", "-", "boot", "shoe"])


def test_relations_are_sorted_by_coarse_then_fine_label():
    weights = RANDOM.uniform(0.1, 1, (6, 6))
    figure = relation_panels({"truth": weights, "M\nw = 1": weights}, batch())
    shown = titled(figure, "M\nw = 1").images[0].get_array()
    order = [1, 3, 2, 5, 0, 4]  # fine labels 0 0 2 2 3 3
    expected = (weights / np.diagonal(weights)[:, None])[np.ix_(order, order)]
    assert np.allclose(shown, expected)
    labels = titled(figure, "truth").get_yticklabels()
    assert [label.get_text() for label in labels] == ["shirt", "boot", "shoe"]


def test_lines_part_coarse_classes_darker_than_fine_ones():
    figure = relation_panels({"truth": np.eye(6)}, batch())
    lines = titled(figure, "truth").lines
    widths = {float(line.get_xdata()[0]): line.get_linewidth() for line in lines if line.get_xdata()[0] > 1}
    assert set(widths) == {1.5, 3.5}
    assert widths[1.5] > widths[3.5]  # 0 0 | 2 2 : 3 3


# Figure 2


def test_each_number_stands_in_its_cell_and_the_best_is_framed():
    percent = np.array([[40.0, 40.0, 40.0], [51.2, 55.5, math.nan]])
    figure = settings_heatmap({"Ours": percent}, (0.0, 0.5), (0.0, 0.1, math.inf))
    axes = figure.axes[0]
    cells = {text.get_position(): text.get_text() for text in axes.texts}
    assert {cells[column, 0] for column in range(3)} == {"40.0"}
    assert cells[0, 1] == "51.2"
    assert cells[1, 1] == "55.5"
    assert cells[2, 1] == "–"  # noqa: RUF001 (the dash of an empty cell)
    frame = next(patch for patch in axes.patches if isinstance(patch, Rectangle) and not patch.get_fill())
    assert (round(frame.get_x()), round(frame.get_y())) == (1, 1)
    assert {"∞\nGrafit", "SelfCon  0", "0.1", "w", "τ"} <= set(words_of(figure))


def test_letters_stay_readable_on_every_cell():
    """WCAG's contrast of at least 3 between a number and the colour of its cell, over the whole range."""

    def luminance(colour: object) -> float:
        parts = [
            part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(colour)
        ]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    percent = np.linspace(0, 100, 60).reshape(10, 6)
    axes = settings_heatmap({"g": percent}, np.linspace(0.1, 1, 10), range(6)).axes[0]
    faces = axes.images[0].to_rgba(percent)[..., :3]
    for text in axes.texts:
        light, dark = sorted(
            (luminance(text.get_color()), luminance(faces[text.get_position()[::-1]])), reverse=True
        )
        assert (light + 0.05) / (dark + 0.05) >= 3, text.get_text()


def test_seeds_show_their_spread():
    means, spreads = np.array([[10.0, 20.0]]), np.array([[0.4, 0.6]])
    figure = settings_heatmap({"ours": means, "paper": means}, (1.0,), (0.0, 0.1), spreads)
    words = words_of(figure)
    assert (words.count("20.0\n± 0.6"), words.count("20.0")) == (1, 1)


# Figure 3


def test_a_map_has_a_colour_for_each_fine_class_and_a_marker_for_each_coarse_one():
    fine = np.arange(40) % 8
    classes = Classes(fine // 4, fine, ["low", "high"], [f"kind {n}" for n in range(8)])
    looks = classes.looks()
    assert len({colour for colour, _ in looks.values()}) == 8
    assert len({looks[kind][1] for kind in range(4)}) == 1
    assert looks[0][1] != looks[4][1]
    points = RANDOM.normal(size=(40, 2))
    figure = map_panels({"A": points, "B": -points}, classes, notes={"B": "R@1 12.3"}, caption="STAND-IN: x")
    assert {"A", "B", "R@1 12.3", "kind 0 / low", "kind 7 / high", "STAND-IN: x"} <= set(words_of(figure))
    drawn: dict[tuple[float, float], tuple[float, ...]] = {}
    for collection in titled(figure, "B").collections:
        for x, y in collection.get_offsets():
            drawn[round(float(x), 6), round(float(y), 6)] = tuple(collection.get_facecolors()[0][:3])
    assert len(drawn) == 40
    for (x, y), kind in zip(-points, fine.tolist(), strict=True):
        assert drawn[round(x, 6), round(y, 6)] == pytest.approx(to_rgb(looks[kind][0]))


def test_many_classes_still_differ_in_colour_or_marker_and_need_no_legend():
    fine = np.arange(60)
    classes = Classes(fine // 6, fine, [f"c{n}" for n in range(10)], [f"kind {n}" for n in range(60)])
    looks = classes.looks()
    assert all(
        looks[a] != looks[b] for a in range(60) for b in range(60) if a // 6 == b // 6 and a != b
    )  # within a coarse class
    figure = map_panels({"A": RANDOM.normal(size=(60, 2))}, classes)
    assert figure.legends == []


# Figure 4


def query(right: list[bool]) -> Query:
    near = list(images(len(right)))
    return Query(
        images(1)[0], "boot / footwear", {"SelfCon": (near, [False] * len(right)), "M": (near, right)}
    )


def test_right_and_wrong_neighbours_differ_in_colour_and_in_mark():
    right = [True, False, True]
    figure = retrieval_sheet([query(right)])
    strip = np.asarray(titled(figure, "M").images[0].get_array())
    tiles = [tile[:, :-10] for tile in np.split(strip, 3, axis=1)]  # each with a gap
    for shown, one in zip(tiles, right, strict=True):
        assert to_rgb(RIGHT if one else WRONG) == tuple(shown[0, 0] / 255)
    strokes = [(shown[-44:, -44:] > 240).all(axis=2) for shown in tiles]
    assert strokes[0].any()
    assert (strokes[0] == strokes[2]).all()
    assert (strokes[0] != strokes[1]).any()  # a tick and a cross, not the colour alone
    assert {"boot / footwear", "SelfCon", "M", "2 of 3", "0 of 3"} <= set(words_of(figure))


def test_neighbours_are_shown_nearest_first_and_never_stretched():
    wide = np.full((3, 4, 8), 7, np.uint8)
    near = [wide, np.full((3, 8, 8), 9, np.uint8)]
    axes = titled(retrieval_sheet([Query(wide, "q", {"M": (near, [True, True])})]), "M")
    assert axes.get_aspect() == 1
    first, second = np.split(np.asarray(axes.images[0].get_array()), 2, axis=1)
    rows, columns = np.nonzero((first == 7).all(axis=2))
    assert np.ptp(columns) + 1 == 2 * (np.ptp(rows) + 1)
    assert (second == 9).all(axis=2).any()


def test_a_caption_gets_room_and_a_dollar_stays_a_dollar():
    with figure_style():
        plain, long = new_figure(3.4, 1.0), new_figure(3.4, 1.0, "costs $5 and $6; " * 12)
    assert long.get_size_inches()[1] > plain.get_size_inches()[1] + 0.3
    assert svg_text(long).startswith("<?xml")
    assert png_bytes(long) == png_bytes(long)
