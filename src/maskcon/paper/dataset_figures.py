"""Figures of appendix A, drawn from the datasets alone: images per product of SOP, the models of Cars196."""

from __future__ import annotations

import contextlib
import textwrap
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.paths import data_root
from maskcon.data.builtin import cars196, sop
from maskcon.data.decoding import UndecodableError, decode, decompression_bombs_refused
from maskcon.data.folder_layout import Layout
from maskcon.paper.runs import Drawn, Setup
from maskcon.report.style import (
    COLOURS,
    COLUMN_INCHES,
    PALE,
    SMALL_POINTS,
    SMALLEST_POINTS,
    as_pixels,
    figure_style,
    hide_axes,
    new_figure,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPER_COUNTS = (5_035, 50_646, 1_498, 17_976)  # appendix A: products and images of split 1, then of split 2
EXAMPLE_SIDE = 160  # pixels of an image on the sheet of cars
SHEET_INCHES, TILES_ACROSS = 11.0, 14
NAME_LETTERS, NAME_POINTS = 21, 4.2


def draw_sop(setup: Setup) -> Drawn:
    """Draw how many images the products of SOP have, counted in the dataset's own list."""
    folder = sop.RELEASE.get(_root(setup), download=setup.machine.download)
    images = sop.read_info(folder / sop.INFO_FILE)
    products = Counter(len(rows) for rows in sop.by_product(images).values())  # images -> products
    split1 = {size: count for size, count in products.items() if size >= sop.SPLIT1_FEWEST}
    twelve = products[sop.SPLIT2_IMAGES]
    totals = sum(split1.values()), sum(size * count for size, count in split1.items()), twelve, 12 * twelve
    counts, paper = ([f"{number:,}" for number in numbers] for numbers in (totals, PAPER_COUNTS))
    same = "as the paper says" if totals == PAPER_COUNTS else f"the paper says {', '.join(paper)}"
    text = (
        f"8 images or more: {counts[0]} products, {counts[1]} images; exactly 12: {counts[2]} products, "
        f"{counts[3]} images ({same})"
    )
    numbers = {"products_by_images": dict(sorted(products.items()))}
    return setup.write(
        size_histogram(products, caption=f"{sum(products.values()):,} products. {text}."), numbers
    ), text


@figure_style()
def size_histogram(products: Mapping[int, int], *, caption: str = "") -> Figure:
    """Draw the number of products by how many images they have; `products`: images -> products."""
    figure = new_figure(COLUMN_INCHES, 2.5, caption)
    axes = figure.add_subplot(
        title="Stanford Online Products", xlabel="images of a product", ylabel="products"
    )
    axes.grid(False, axis="x")
    parts = {
        "not used": ([size for size in products if size < sop.SPLIT1_FEWEST], COLOURS[6], ""),
        "in split 1": (
            [s for s in products if s >= sop.SPLIT1_FEWEST and s != sop.SPLIT2_IMAGES],
            COLOURS[5],
            "//",
        ),
        "in splits 1 and 2": ([size for size in products if size == sop.SPLIT2_IMAGES], COLOURS[1], "xx"),
    }
    for label, (sizes, colour, hatch) in parts.items():
        counts = [products[size] for size in sizes]
        bars = axes.bar(sizes, counts, label=label, color=colour, hatch=hatch, edgecolor="white", linewidth=0)
        axes.bar_label(bars, fmt="{:,.0f}", padding=2, fontsize=SMALLEST_POINTS - 1)
    axes.set_xticks(range(min(products), max(products) + 1))
    axes.tick_params(labelsize=SMALL_POINTS)
    figure.legend(fontsize=SMALLEST_POINTS, loc="outside upper right", ncols=3)
    return figure


def draw_cars(setup: Setup) -> Drawn:
    """Draw one image of each model of Cars196, with its coarse class."""
    images = example_images(cars196.cars_listing(_root(setup), download=setup.machine.download))
    models, names, coarse_of = cars196.FINE_NAMES, cars196.COARSE_NAMES, cars196.grouping().coarse_of
    counts = ", ".join(f"{name} {coarse_of.count(coarse)}" for coarse, name in enumerate(names))
    caption = (
        f"The first training image of each of {len(models)} models, captioned model / coarse class. {counts}."
    )
    numbers = {
        "coarse_class_of_model": dict(zip(models, (names[coarse] for coarse in coarse_of), strict=True))
    }
    return setup.write(example_sheet(images, caption=caption), numbers), counts


def example_images(listing: Layout, side: int = EXAMPLE_SIDE) -> dict[int, NDArray[np.uint8]]:
    """Decode the first readable training image of each fine class, shrunk to fit side x side; [3, H, W]."""
    found: dict[int, NDArray[np.uint8]] = {}
    with decompression_bombs_refused():
        for listed in sorted(listing.files, key=lambda listed: listed.path):
            fine = cars196.FINE_NAMES.index(listed.fine or "")
            if fine not in found and not listed.is_test:
                with contextlib.suppress(UndecodableError):  # the next image is tried
                    found[fine] = decode(listing.root / listed.path, side, 3)
    return found


@figure_style()
def example_sheet(images: Mapping[int, NDArray[np.uint8]], *, caption: str = "") -> Figure:
    """Draw an image [C, H, W] of each model, framed in the colour of its coarse class; without one, say so."""
    coarse_of = cars196.grouping().coarse_of
    ordered = sorted(range(len(coarse_of)), key=lambda fine: (coarse_of[fine], fine))
    rows = -(-len(ordered) // TILES_ACROSS)
    figure = new_figure(SHEET_INCHES, rows * SHEET_INCHES / TILES_ACROSS, caption)
    for place, fine in enumerate(ordered, start=1):
        axes = figure.add_subplot(rows, TILES_ACROSS, place)
        hide_axes(axes)
        if fine in images:
            axes.imshow(as_pixels(images[fine]), interpolation="antialiased")
        else:
            axes.text(0.5, 0.5, "no image", ha="center", va="center", size=NAME_POINTS, color=PALE)
        axes.spines[:].set(visible=True, color=COLOURS[coarse_of[fine] % len(COLOURS)], linewidth=1.6)
        name = textwrap.fill(cars196.FINE_NAMES[fine], NAME_LETTERS)
        axes.set_xlabel(f"{name}\n/ {cars196.COARSE_NAMES[coarse_of[fine]]}", size=NAME_POINTS, labelpad=1.5)
    return figure


def _root(setup: Setup) -> Path:
    return data_root(None if setup.machine.data_root is None else Path(setup.machine.data_root))
