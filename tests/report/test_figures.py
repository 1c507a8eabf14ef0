from __future__ import annotations

import io
import subprocess
import sys
import warnings
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from maskcon.report.figures import (
    embedding_map,
    learning_curves,
    loss_curves,
    png_bytes,
    save,
    svg_text,
)
from maskcon.report.gallery import GAP_PIXELS, HEAD_PIXELS, NEUTRAL, retrieval_grid, sprite_sheet
from maskcon.report.style import RIGHT, WRONG, class_look, escape

CURVES = {
    "MaskCon": [[(0, 0.1), (10, 0.4), (20, 0.5)], [(0, 0.1), (10, 0.5), (20, None)]],
    "A _very_ $long$ name <b> of a run": [[(0, 0.1), (10, 0.3)]],
    "SupFINE": [[(0, 0.1), (20, 0.7)]],
}


def a_map(n: int = 40) -> object:
    points = np.random.default_rng(0).normal(size=(n, 2))
    return embedding_map(points, np.arange(n) % 5, ["a", "b", "_c", "$d$", "e" * 90], title="map")


FIGURES = {
    "curves": lambda: learning_curves(CURVES, {"floor": 0.1, "ceiling": 0.8, "unknown": None}, title="Title"),
    "loss": lambda: loss_curves({"x": [(i, 5.0 - i / 900) for i in range(2000)]}),
    "map": a_map,
    "empty curves": lambda: learning_curves({"none": []}),
    "empty loss": lambda: loss_curves({"nan": [(1, float("nan")), (2, None)]}),
    "empty map": lambda: embedding_map(np.zeros((0, 2)), [], []),
    "one point": lambda: embedding_map(np.zeros((1, 2)), [0], ["only"]),
}


@pytest.mark.parametrize("name", FIGURES)
def test_each_figure_is_a_readable_png_and_svg(name: str, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        png, svg = save(FIGURES[name](), tmp_path / "folder" / "run.v1")
    assert [png.name, svg.name] == ["run.v1.png", "run.v1.svg"]
    with Image.open(png) as picture:
        assert min(picture.size) > 500
        assert len(np.unique(np.asarray(picture.convert("L")))) > 5  # something is drawn
    assert ElementTree.parse(svg).getroot().tag.endswith("svg")


@pytest.mark.parametrize("name", ["curves", "map"])
def test_the_same_figure_gives_the_same_bytes(name: str, tmp_path: Path) -> None:
    first = [path.read_bytes() for path in save(FIGURES[name](), tmp_path / "a")]
    again = [path.read_bytes() for path in save(FIGURES[name](), tmp_path / "b")]
    assert first == again
    assert b"<dc:date>" not in first[1]


def test_bytes_do_not_depend_on_the_process(tmp_path: Path) -> None:
    program = (
        "import sys; from maskcon.report.figures import *; "
        "sys.stdout.write(svg_text(learning_curves({'x': [[(0, .1), (1, .2)]]})))"
    )
    outputs = {subprocess.run([sys.executable, "-c", program], capture_output=True).stdout for _ in range(2)}
    assert len(outputs) == 1
    assert outputs.pop().startswith(b"<?xml")


def test_importing_and_drawing_leave_matplotlib_as_it_was() -> None:
    program = (
        "import sys, maskcon.report.figures as f, maskcon.report.maps, maskcon.report.write\n"
        "assert 'matplotlib' not in sys.modules and 'sklearn' not in sys.modules and 'torch' not in sys.modules\n"
        # asking for the backend itself would load pyplot
        "import matplotlib; now = lambda: {k: v for k in matplotlib.rcParams if k != 'backend'\n"
        "                                  for v in [matplotlib.rcParams[k]]}\n"
        "before = now()\n"
        "f.png_bytes(f.learning_curves({'x': [[(0, .1)]]})); f.svg_text(f.loss_curves({'x': [(0, .1)]}))\n"
        "assert now() == before and 'matplotlib.pyplot' not in sys.modules\n"
        "assert 'torch' not in sys.modules\n"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_mean_line_and_band_follow_the_seeds() -> None:
    axes = learning_curves({"x": [[(0, 0.2), (1, 0.4)], [(0, 0.4), (1, 0.4)]]}).axes[0]
    np.testing.assert_allclose(axes.lines[0].get_ydata(), [30.0, 40.0])
    band = axes.collections[0].get_paths()[0].vertices
    spread = 100 * np.std([0.2, 0.4], ddof=1)
    assert band[:, 1].min() == pytest.approx(30 - spread)
    assert band[:, 1].max() == pytest.approx(40.0) or band[:, 1].max() == pytest.approx(30 + spread)


@pytest.mark.parametrize("draw", [learning_curves, loss_curves])
@pytest.mark.parametrize("last", [1, 2, 30])
def test_only_whole_epochs_and_steps_are_marked(last: int, draw: Any) -> None:
    curve = [(number, 0.2) for number in range(1, last + 1)]
    figure = draw({"x": [curve] if draw is learning_curves else curve})
    figure.draw_without_rendering()
    low, high = figure.axes[0].get_xlim()
    marked = [tick for tick in figure.axes[0].get_xticks() if low <= tick <= high]
    assert marked
    assert all(tick == round(tick) for tick in marked)


def test_long_losses_are_averaged_in_equal_stretches() -> None:
    axes = loss_curves({"x": [(i, float(i % 2)) for i in range(6000)]}).axes[0]
    assert len(axes.lines[0].get_ydata()) == 600
    np.testing.assert_allclose(axes.lines[0].get_ydata(), 0.5)


def test_a_single_step_is_seen() -> None:
    assert loss_curves({"x": [(3, 2.5)]}).axes[0].lines[0].get_marker() == "o"


@pytest.mark.parametrize("values", [(0.071, 0.279), (7.62461, 7.62462), (0.5, 1.0)])
def test_the_name_of_the_axis_fits_beside_its_numbers(values: tuple[float, float]) -> None:
    for draw in (learning_curves, loss_curves):
        curve = [(1, values[0]), (2, values[1])]
        figure = draw({"x": [curve] if draw is learning_curves else curve})
        figure.draw_without_rendering()
        assert figure.axes[0].yaxis.label.get_window_extent().x0 >= 0


def test_names_fit_into_the_figure() -> None:
    figure = learning_curves({"M" * 40: [[(0, 0.1), (1, 0.2)]], "ceiling of all": [[(0, 0.1), (1, 0.9)]]})
    figure.draw_without_rendering()
    assert figure.axes[0].get_legend().get_window_extent().x1 <= figure.bbox.x1


def test_classes_differ_in_shape_as_well_as_in_colour() -> None:
    looks = [class_look(position) for position in range(64)]
    assert len(set(looks)) == 64
    assert len({marker for _, marker in looks[:8]}) == len({colour for colour, _ in looks[:8]}) == 8


def test_names_cannot_start_a_formula_or_hide() -> None:
    assert not escape("_hidden").startswith("_")
    assert len(escape("x" * 100)) == 24
    save_bytes = png_bytes(learning_curves({r"$\undefined{": [[(0, 0.1), (1, 0.2)]]}))
    assert save_bytes.startswith(b"\x89PNG")


def some_images(n: int = 12, channels: int = 3, height: int = 8, width: int = 8) -> np.ndarray:
    levels = np.linspace(10, 250, n).astype(np.uint8)
    return np.broadcast_to(levels[:, None, None, None], (n, channels, height, width)).copy()


def colour_of(picture: Image.Image, x: int, y: int) -> str:
    return "#{:02x}{:02x}{:02x}".format(*picture.getpixel((x, y))[:3])


def test_retrieval_grid_shows_right_and_wrong_by_colour_and_by_shape() -> None:
    grid = retrieval_grid(some_images(), [0], [[1, 2]], np.array([[1, -1]]))
    step = 72 + 8 + GAP_PIXELS
    left = [step + GAP_PIXELS, 2 * step + GAP_PIXELS]
    assert colour_of(grid, left[0], HEAD_PIXELS) == RIGHT
    assert colour_of(grid, left[1], HEAD_PIXELS) == WRONG
    badges = []
    for x in left:
        box = grid.crop((x + 58, HEAD_PIXELS + 58, x + 80, HEAD_PIXELS + 80)).convert("L")
        badges.append(np.asarray(box) > 240)
    assert badges[0].any()
    assert badges[1].any()
    assert (badges[0] != badges[1]).any()  # the strokes differ, not the colour alone
    assert grid.getpixel((left[0] - 1, HEAD_PIXELS + 5))[3] == 0  # transparent: any page colour will do


def test_retrieval_grid_leaves_a_frame_plain_where_the_truth_is_unknown() -> None:
    step = 72 + 8 + GAP_PIXELS
    for marks in (None, np.array([[0, -1]])):
        grid = retrieval_grid(some_images(), [0], [[1, 2]], marks)
        assert colour_of(grid, step + GAP_PIXELS, HEAD_PIXELS) == NEUTRAL
        expected = NEUTRAL if marks is None else WRONG
        assert colour_of(grid, 2 * step + GAP_PIXELS, HEAD_PIXELS) == expected


def test_retrieval_grid_places_each_image() -> None:
    images = some_images(12, channels=1)
    grid = retrieval_grid(images, [5, 6], [[1, 2, 3], [4, 7, 8]], None)
    step = 72 + 8 + GAP_PIXELS
    for row, rows in enumerate([[5, 1, 2, 3], [6, 4, 7, 8]]):
        for column, index in enumerate(rows):
            x = column * step + (GAP_PIXELS if column else 0) + 40
            assert grid.getpixel((x, HEAD_PIXELS + row * step + 40))[:3] == (images[index, 0, 0, 0],) * 3


@pytest.mark.parametrize(("height", "width"), [(8, 8), (5, 11), (64, 40), (1, 1), (200, 300)])
def test_sprite_sheet_holds_every_image_at_its_place(height: int, width: int) -> None:
    images = some_images(7, 3, height, width)
    sheet, columns = sprite_sheet(images, 32)
    assert columns == 3
    assert sheet.size == (96, 96)
    for index in range(7):
        x, y = (index % 3) * 32 + 16, (index // 3) * 32 + 16
        assert sheet.getpixel((x, y)) == (images[index, 0, 0, 0],) * 3


def test_non_latin_names_draw_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = learning_curves({"猫と犬": [[(0, 0.1), (1, 0.2)]]}, title="قط")
        assert png_bytes(figure)
        assert "<svg" in svg_text(figure)
    assert Image.open(io.BytesIO(png_bytes(figure))).format == "PNG"
