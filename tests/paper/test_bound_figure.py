"""The figure of d_z over tau: what it marks, what it says, and that it can be read."""

from __future__ import annotations

import csv
import io
import math
import warnings

import numpy as np
import pytest
from PIL import Image

from maskcon._utils.errors import UsageError
from maskcon.paper.bound import BestTaus, BoundRow, best_taus, bound_panels, csv_text
from maskcon.report.figures import png_bytes, svg_text

CURVE = {0.0: (0.70, 9.0), 0.01: (0.60, 8.0), 0.1: (0.20, 5.0), 0.5: (0.10, 6.0), math.inf: (0.15, 12.0)}
ROWS = [
    *(BoundRow("maskcon", 0.8, tau, *both) for tau, both in CURVE.items()),
    BoundRow("grafit", 0.8, None, 0.18, 10.0),
    BoundRow("supcon", None, None, 0.15, 12.0),
    BoundRow("selfcon", None, None, 0.97, 9.5),
]
RECALLS = {0.01: [0.40, 0.44], 0.1: [0.50, 0.52], 0.5: [0.45, 0.49]}
OWN = {0.01: [0.58, 0.57], 0.1: [0.22, 0.21], 0.5: [0.12, 0.11]}


def test_the_best_taus_are_the_smallest_d_z_and_the_largest_mean_recall():
    assert best_taus(ROWS, RECALLS, OWN) == BestTaus(0.5, 0.1, 0.5, 0.1)
    assert best_taus(ROWS) == BestTaus(0.5, 0.1, None, None)


def test_with_runs_d_z_chooses_among_their_taus_only():
    assert best_taus(ROWS, {0.01: [0.4], 0.1: [0.3]}).by_d_z == 0.1
    assert best_taus(ROWS, {0.01: [0.4]}).by_d_z == 0.5  # a single run leaves nothing to choose among


def test_ties_go_to_the_smaller_tau():
    rows = [BoundRow("maskcon", 1.0, tau, 0.5, 2.0) for tau in (0.2, 0.1)]
    assert best_taus(rows, {0.2: [0.4], 0.1: [0.4]}) == BestTaus(0.1, 0.1, None, 0.1)


@pytest.mark.parametrize(
    ("taus", "words"),
    [
        ((0.1, 0.1, None), "all of these"),
        ((0.1, 0.5, None), "the first alone"),
        ((0.5, 0.1, None), "the second alone"),
        ((0.5, 0.2, None), "none of these"),
        ((0.5, 0.2, 0.1), "the third alone"),
        ((0.1, 0.2, 0.1), "the first and the third alone"),
        ((0.1, 0.1, 0.1), "all of these"),
        ((0.5, 0.2, 0.3), "none of these"),
    ],
)
def test_the_sentence_says_which_of_them_choose_what_recall_chooses(taus, words):
    assert BestTaus(*taus, 0.1).sentence().endswith(f"by recall@1: 0.1, the choice of {words}")


def test_the_sentence_names_every_best_tau():
    text = BestTaus(math.inf, 0.2, 0.5, 0.05).sentence()
    assert text.startswith(
        "best tau by d_z: inf, in units of the own key 0.2, of each run on its own keys 0.5;"
    )
    assert best_taus(ROWS).sentence() == "best tau by d_z: 0.5, in units of the own key 0.1"


def stars(axes):
    return [(line.get_xdata()[0], line.get_ydata()[0]) for line in axes.lines if line.get_marker() == "*"]


def test_the_figure_shows_the_curves_the_lines_and_the_stars_where_they_belong():
    upper, middle, lower = bound_panels(ROWS, RECALLS, OWN).axes
    assert [label.get_text() for label in lower.get_xticklabels()] == ["0", "0.01", "0.1", "0.5", "∞"]
    for number, (axes, others) in enumerate([(upper, {0.18, 0.97}), (middle, {10.0, 9.5})]):
        assert axes.lines[0].get_xydata().tolist() == [[i, b[number]] for i, b in enumerate(CURVE.values())]
        assert {line.get_ydata()[0] for line in axes.lines if list(line.get_xdata()) == [0, 1]} == others
        assert {text.get_text() for text in axes.texts} == {"MaskCon", "Grafit, w = 0.8", "SelfCon"}
    assert [stars(upper), stars(middle)] == [[(3, 0.10)], [(2, 5.0)]]
    assert stars(lower) == [(2, pytest.approx(51.0))]
    rings = [line for line in upper.lines if line.get_markerfacecolor() == "none"]
    assert sorted(line.get_xdata()[0] for line in rings) == [1, 2, 3]
    assert [text.get_text() for text in lower.texts] == ["smallest d_z"]


def test_a_caption_stands_below_all_panels():
    plain, told = (
        bound_panels(ROWS, RECALLS),
        bound_panels(ROWS, RECALLS, caption="STAND-IN: " + "words " * 60),
    )
    first, *_, last = told.texts
    assert first.get_text().startswith("STAND-IN: words")
    assert last.get_position()[1] > 0
    name = told.axes[-1].xaxis.label
    told.draw_without_rendering()
    below = name.get_window_extent().y0 / told.bbox.height
    assert below > first.get_position()[1]
    sizes = [
        axes.get_position().height * figure.get_size_inches()[1]
        for figure, axes in ((plain, plain.axes[0]), (told, told.axes[0]))
    ]
    assert sizes[0] == pytest.approx(sizes[1])  # the caption takes nothing from the panels


def test_the_recall_panel_names_what_d_z_would_have_chosen_instead():
    def said(recalls):
        return [text.get_text() for text in bound_panels(ROWS, recalls).axes[-1].texts]

    assert said({0.1: [0.3], 0.5: [0.4]}) == ["smallest d_z, own key = 1"]
    assert said({0.01: [0.5], 0.1: [0.4], 0.5: [0.3]}) == ["smallest d_z", "smallest d_z, own key = 1"]
    assert said({0.0: [0.5], 0.01: [0.4]}) == ["smallest d_z and d_z, own key = 1"]
    assert said({0.0: [0.4], 0.01: [0.5]}) == []


@pytest.mark.parametrize(
    ("recalls", "own"),
    [({}, {}), (RECALLS, {}), (RECALLS, OWN), ({0.3: [0.5]}, {0.3: [0.4]})],
    ids=["alone", "recalls", "all", "a tau off the curve"],
)
def test_each_figure_is_a_readable_png_and_svg_and_repeats_to_the_byte(recalls, own):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        png = png_bytes(bound_panels(ROWS, recalls, own))
        text = svg_text(bound_panels(ROWS, recalls, own))
    with Image.open(io.BytesIO(png)) as picture:
        assert min(picture.size) > 500
        assert len(np.unique(np.asarray(picture.convert("L")))) > 5
    assert len(bound_panels(ROWS, recalls, own).axes) == (3 if recalls else 2)
    assert text == svg_text(bound_panels(ROWS, recalls, own))


def test_the_table_holds_what_the_figure_shows():
    lines = list(csv.DictReader(io.StringIO(csv_text(ROWS, RECALLS, OWN))))
    assert [line["method"] for line in lines] == ["maskcon"] * 5 + ["grafit", "supcon", "selfcon"]
    by_tau = {line["tau"]: line for line in lines[:5]}
    assert list(by_tau) == ["0", "0.01", "0.1", "0.5", "inf"]
    assert float(by_tau["0.1"]["recall_at_1"]) == pytest.approx(0.51)
    assert float(by_tau["0.1"]["recall_at_1_sd"]) == pytest.approx(0.014142, abs=1e-6)
    assert float(by_tau["0.1"]["d_z_of_runs"]) == pytest.approx(0.215)
    assert by_tau["0.1"]["runs"] == "2"
    assert by_tau["inf"]["recall_at_1"] == lines[-1]["recall_at_1"] == ""
    assert (float(lines[-1]["d_z"]), float(lines[-1]["d_z_own_key_1"])) == (0.97, 9.5)


def test_rows_without_maskcon_cannot_be_drawn():
    with pytest.raises(UsageError, match="no row of MaskCon"):
        bound_panels(ROWS[-2:])
