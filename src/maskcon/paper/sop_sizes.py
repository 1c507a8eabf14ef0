"""Appendix A: how many images the products of SOP have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from maskcon._utils.download import Progress
from maskcon._utils.errors import UsageError
from maskcon.data.builtin import sop
from maskcon.paper.runs import Drawn, as_csv, write_figure
from maskcon.report.style import COLOURS, COLUMN_INCHES, INK, SMALL_POINTS, SMALLEST_POINTS, Plate, style_axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# What appendix A says of the two splits: (products, images).
PAPER_SPLIT1 = (5_035, 50_646)  # eight images or more; 25,368 to train on and 25,278 to test on
PAPER_SPLIT2 = (1_498, 17_976)  # exactly twelve
SPLIT1_FEWEST, SPLIT2_IMAGES = 8, 12
LOOKS = {  # label -> colour, hatch
    "not used": (COLOURS[6], ""),
    "in split 1": (COLOURS[5], "//"),
    "in splits 1 and 2": (COLOURS[1], "xx"),
}


def kind_of(images: int) -> str:
    """Name the splits that use a product with so many images.

    >>> [kind_of(images) for images in (7, 8, 12)]
    ['not used', 'in split 1', 'in splits 1 and 2']
    """
    if images == SPLIT2_IMAGES:
        return "in splits 1 and 2"
    return "in split 1" if images >= SPLIT1_FEWEST else "not used"


def size_histogram(products: Mapping[int, int], *, caption: str = "") -> Figure:
    """Draw the number of products by how many images they have; `products`: images -> products."""
    if not products:
        raise UsageError("there is no product to count")
    plate = Plate(width=COLUMN_INCHES, height=2.5, caption=caption)
    axes = plate.axes(left=0.55, top=0.3, width=COLUMN_INCHES - 0.65, height=1.75, bare=False)
    style_axes(axes, "", "images of a product", "products")
    axes.grid(False, axis="x")
    seen: set[str] = set()
    for images, count in sorted(products.items()):
        kind = kind_of(images)
        colour, hatch = LOOKS[kind]
        axes.bar(
            images, count, width=0.8, color=colour, hatch=hatch, edgecolor="white", linewidth=0,
            label=None if kind in seen else kind,
        )  # fmt: skip
        seen.add(kind)
        axes.annotate(
            f"{count:,}", (images, count), xytext=(0, 2), textcoords="offset points", ha="center", va="bottom",
            fontsize=SMALLEST_POINTS - 1.0, color=INK,
        )  # fmt: skip
    axes.set_xticks(range(min(products), max(products) + 1))
    axes.tick_params(labelsize=SMALL_POINTS)
    axes.set_ylim(0, max(products.values()) * 1.32)
    axes.legend(fontsize=SMALLEST_POINTS, frameon=False, loc="upper right", labelcolor=INK, ncols=3,
                columnspacing=1.0, handletextpad=0.4)  # fmt: skip
    plate.write(0.06, 0.13, "Stanford Online Products", size=SMALL_POINTS + 1, weight="bold")
    return plate.figure


def paper_numbers(*, caption: str = "") -> Figure:
    """Draw the counts that the paper states of its two splits, as bars."""
    plate = Plate(width=COLUMN_INCHES, height=1.75, caption=caption)
    plate.write(0.06, 0.13, "SOP: the numbers that the paper states", size=SMALL_POINTS + 1, weight="bold")
    parts = (
        ("8 images or more\n(split 1)", PAPER_SPLIT1, LOOKS["in split 1"]),
        ("exactly 12 images\n(split 2)", PAPER_SPLIT2, LOOKS["in splits 1 and 2"]),
    )
    half = (COLUMN_INCHES - 0.98) / 2
    for column, what in enumerate(("products", "images")):
        axes = plate.axes(left=0.92 + column * half, top=0.5, width=half - 0.1, height=1.1)
        largest = max(counts[column] for _, counts, _ in parts)
        for row, (_, counts, (colour, hatch)) in enumerate(parts):
            axes.barh(
                row, counts[column], height=0.6, color=colour, hatch=hatch, edgecolor="white", linewidth=0
            )
            inside = counts[column] > 0.6 * largest
            axes.text(
                counts[column] * (0.5 if inside else 1) + (0 if inside else 0.04 * largest), row, f"{counts[column]:,}",
                ha="center" if inside else "left", va="center", fontsize=SMALL_POINTS, color=INK,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.2},
            )  # fmt: skip
        axes.set_xlim(0, largest)
        axes.set_ylim(1.5, -0.5)
        plate.write(0.92 + column * half, 0.4, what, weight="bold")
    for row, (label, _, _) in enumerate(parts):
        plate.write(0.87, 0.5 + 1.1 * (row + 0.5) / 2, label, size=SMALLEST_POINTS, ha="right")
    return plate.figure


def draw(
    root: Path, stem: Path, absent: Sequence[str], *, download: bool, progress: Progress | None
) -> Drawn:
    """Draw the sizes of SOP's products, or what the paper says of them where the dataset is absent."""
    header = ("images_of_a_product", "products", "images", "from")
    if absent:
        caption = (
            "The dataset is not here, so nothing is counted: these are the paper's own numbers (appendix A). "
            "The number of products of each size, which its figure shows, is not in its text."
        )
        rows = [("8 or more", *PAPER_SPLIT1, "the paper"), ("12", *PAPER_SPLIT2, "the paper")]
        text = f"SOP is not here; drawn are the paper's own numbers. Missing: {'; '.join(absent)}"
        return write_figure(paper_numbers(caption=caption), stem, "csv", as_csv(header, rows)), text
    products = Counter(sop.product_sizes(root, download=download, progress=progress).values())
    split1 = {size: count for size, count in products.items() if kind_of(size) != "not used"}
    totals = [
        sum(split1.values()),
        sum(size * count for size, count in split1.items()),
        products[SPLIT2_IMAGES],
        SPLIT2_IMAGES * products[SPLIT2_IMAGES],
    ]
    text = "8 images or more: {:,} products, {:,} images; exactly 12: {:,} products, {:,} images".format(
        *totals
    )
    published = [*PAPER_SPLIT1, *PAPER_SPLIT2]
    same = (
        "as the paper says"
        if totals == published
        else "the paper says {:,}, {:,}, {:,}, {:,}".format(*published)
    )
    caption = f"Counted in the dataset's own list: {sum(products.values()):,} products. {text} ({same})."
    rows = [(str(size), count, size * count, "counted") for size, count in sorted(products.items())]
    paths = write_figure(size_histogram(products, caption=caption), stem, "csv", as_csv(header, rows))
    return paths, f"{text} ({same})"
