"""The figures that show what a data set is, and need no training: SOP's products, the coarse classes of Cars196."""

from __future__ import annotations

import contextlib
import csv
import io
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.download import Progress
from maskcon._utils.errors import DataError
from maskcon.data.builtin import cars196, sop
from maskcon.data.builtin.cars196 import FINE_NAMES
from maskcon.data.decoding import UndecodableError, decode, picture_bombs_refused
from maskcon.data.image_list import Listing
from maskcon.report.class_sheets import class_columns, example_sheet
from maskcon.report.figures import save
from maskcon.report.product_sizes import (
    PAPER_SPLIT1,
    PAPER_SPLIT2,
    SPLIT2_IMAGES,
    kind_of,
    paper_numbers,
    size_histogram,
)
from maskcon.training.checkpoint import write_atomically

EXAMPLE_SIDE = 160  # pixels of a picture on the sheet of cars


def make_facts(
    name: str,
    root: Path,
    folder: Path,
    *,
    scale: str,
    download: bool = False,
    progress: Progress | None = None,
) -> tuple[list[Path], str]:
    """Draw `sop-statistics` or `coarse-cars`; the files written, and one line of what is to be seen.

    Without the data set, scale `full` is an error that says what is missing; scale `cpu` draws what is known without
    it, and says so in the figure. With `download` it is fetched, telling `progress` the bytes so far and in all; one
    that cannot be fetched is an error.
    """
    absent = () if download else (sop if name == "sop-statistics" else cars196).missing(root)
    if absent and scale == "full":
        raise DataError(
            f"{name} at scale full needs the data set itself; missing: {'; '.join(absent)}; another folder: --data-root"
        )
    if name == "sop-statistics":
        return _sop(root, folder, absent, download, progress)
    return _cars(root, folder, absent, download)


def _sop(
    root: Path, folder: Path, absent: tuple[str, ...], download: bool, progress: Progress | None
) -> tuple[list[Path], str]:
    stem = folder / "sop-statistics"
    if absent:
        caption = (
            "The data set is not here, so nothing is counted: these are the paper's own numbers (appendix A). "
            "The number of products of each size, which its figure shows, is not in its text."
        )
        rows = [("8 or more", *PAPER_SPLIT1, "the paper"), ("12", *PAPER_SPLIT2, "the paper")]
        paths = save(paper_numbers(caption=caption), stem)
        said = f"SOP is not here; drawn are the paper's own numbers. Missing: {'; '.join(absent)}"
        return [*paths, _write(stem, ("images_of_a_product", "products", "images", "from"), rows)], said
    products = Counter(sop.product_sizes(root, download=download, progress=progress).values())
    split1 = {size: count for size, count in products.items() if kind_of(size) != "not used"}
    totals = [
        sum(split1.values()),
        sum(size * count for size, count in split1.items()),
        products[SPLIT2_IMAGES],
        SPLIT2_IMAGES * products[SPLIT2_IMAGES],
    ]
    told = (
        f"8 images or more: {totals[0]:,} products, {totals[1]:,} images; exactly 12: {totals[2]:,} products, "
        f"{totals[3]:,} images"
    )
    same = totals == [*PAPER_SPLIT1, *PAPER_SPLIT2]
    paper = "as the paper says" if same else (
        f"the paper says {PAPER_SPLIT1[0]:,}, {PAPER_SPLIT1[1]:,}, {PAPER_SPLIT2[0]:,}, {PAPER_SPLIT2[1]:,}"
    )  # fmt: skip
    caption = f"Counted in the data set's own list: {sum(products.values()):,} products. {told} ({paper})."
    counted = [(str(size), count, size * count, "counted") for size, count in sorted(products.items())]
    paths = save(size_histogram(products, caption=caption), stem)
    return [
        *paths,
        _write(stem, ("images_of_a_product", "products", "images", "from"), counted),
    ], f"{told} ({paper})"


def _cars(root: Path, folder: Path, absent: tuple[str, ...], download: bool) -> tuple[list[Path], str]:
    stem = folder / "coarse-cars"
    coarse_of, names = cars196.coarse_of("paper"), cars196.COARSE_NAMES
    counts = [coarse_of.count(coarse) for coarse in range(len(names))]
    told = ", ".join(f"{name} {count}" for name, count in zip(names, counts, strict=True))
    rows = [
        (number + 1, name, names[coarse_of[number]], coarse_of[number])
        for number, name in enumerate(FINE_NAMES)
    ]
    heads = ("class", "model", "coarse_class", "coarse")
    title = f"Stanford Cars: {len(FINE_NAMES)} models in {len(names)} coarse classes"
    if absent:
        caption = "Names and coarse classes (the paper's); the pictures of the data set are not here."
        paths = save(class_columns(FINE_NAMES, coarse_of, names, title=title, caption=caption), stem)
        said = f"Cars196 is not here; drawn are its names ({told}). Missing: {'; '.join(absent)}"
        return [*paths, _write(stem, heads, rows)], said
    pictures = example_pictures(cars196.cars_listing(root, download=download))
    caption = f"The first training picture of each model, captioned model / coarse class. Models: {told}."
    paths = save(example_sheet(pictures, FINE_NAMES, coarse_of, names, title=title, caption=caption), stem)
    return [*paths, _write(stem, heads, rows)], told


def example_pictures(listing: Listing, side: int = EXAMPLE_SIDE) -> dict[int, NDArray[np.uint8]]:
    """The first readable training picture of each fine class, shrunk to fit side x side; [3, H, W]."""
    found: dict[int, NDArray[np.uint8]] = {}
    with picture_bombs_refused():
        for listed in sorted(listing.train, key=lambda listed: listed.path):
            if listed.fine not in found:
                with contextlib.suppress(UndecodableError):  # the next one will do
                    found[listed.fine] = decode(listing.folder / listed.path, side, 3)
    return found


def _write(stem: Path, heads: Iterable[str], rows: Iterable[Iterable[object]]) -> Path:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(heads)
    writer.writerows(rows)
    path = stem.with_suffix(".csv")
    write_atomically(path, stream.getvalue().encode())
    return path
