"""`sop-split1` and `sop-split2`: Stanford Online Products, photographs of things for sale in 12 categories.

Read from Stanford_Online_Products/ in the data folder (Ebay_info.txt and the twelve folders bicycle_final/ ...
toaster_final/), from the data folder itself if these lie there, or from Stanford_Online_Products.zip, which is
unpacked once.

The splits are made by rule (see `sop_lists`). If the authors' lists lie in sop_split1/ or sop_split2/, in the set's
folder, in the data folder or in coarse_labels/ there, they are checked against Ebay_info.txt and used instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Literal

from maskcon._utils.download import Progress
from maskcon._utils.errors import DataError
from maskcon._utils.paths import has_folder
from maskcon.data.builtin.release import Release
from maskcon.data.builtin.sop_lists import (
    COARSE_NAMES,
    ProductImage,
    Split,
    by_product,
    read_info,
    read_split,
    split1,
    split2,
)
from maskcon.data.dataset import Grouping, Variant
from maskcon.data.folder_layout import Found, Layout

SplitName = Literal["split1", "split2"]

FOLDER = "Stanford_Online_Products"
ARCHIVE = f"{FOLDER}.zip"
INFO_FILE = "Ebay_info.txt"
RELEASE = Release(
    title="Stanford Online Products",
    folder=FOLDER,
    archive=ARCHIVE,
    md5="7f73d41a2f44250d4779881525aea32e",
    urls=(f"http://ftp.cs.stanford.edu/cs/cvgl/{ARCHIVE}",),
    size="3.1 GB",
    content=(INFO_FILE, *(f"{name}_final" for name in COARSE_NAMES)),
    max_bytes=6 << 30,  # the archive has hardly any compression
    max_members=400_000,  # 120,053 images, and as many files again that some systems add
)

PAPER_COUNTS = {"split1": (25_368, 25_278), "split2": (14_980, 2_996)}
RULES = {
    "split1": "products of 8 or more images by class_id, the first half to train on (the authors' order)",
    "split2": "of each product of 12 images two to test on, drawn by a hash of their paths (not the authors' draw)",
}


def sop_listing(
    split: SplitName,
    root: Path,
    *,
    variant: Variant = "paper",  # noqa: ARG001 - text and code agree on this set
    download: bool = False,
    progress: Progress | None = None,
) -> Layout:
    """Read the lists of a split; opens no image.

    Unpacks (or downloads) the archive if necessary.

    Fine classes are the products, ids the image_id of Ebay_info.txt.
    split1: products of 8 or more images, half of the products to train on, the others to test.
    split2: products of 12 images, 10 of them to train on, 2 to test.
    """
    folder = RELEASE.get(root, download=download, progress=progress)
    images = read_info(folder / INFO_FILE)
    chosen, note = _chosen(split, root, folder, images)
    counts = (len(chosen.train), len(chosen.test))
    if min(counts) == 0:
        raise DataError(
            f"{RELEASE.title} in {folder} gives {counts[0]} images to train on and {counts[1]} to test on by {split}: "
            f"its list is not the whole one ({len(images)} of 120053 rows)"
        )
    notes = [note]
    if counts != PAPER_COUNTS[split]:
        paper = PAPER_COUNTS[split]
        notes.append(f"{counts[0]} + {counts[1]} images are listed; the paper has {paper[0]} + {paper[1]}")
    products = by_product((*chosen.train, *chosen.test))
    name_of = _product_names(products)
    return Layout(
        name=f"sop-{split}",
        kind=f"sop-{split}",
        root=folder,
        where=f"{RELEASE.title}: {folder}",
        expected="",
        grouping=Grouping(
            COARSE_NAMES,
            fine_names=tuple(name_of.values()),
            coarse_of=tuple(rows[0].coarse for rows in products.values()),
        ),
        family="products",
        has_parts=True,
        files=[
            Found(
                image.path, is_test, COARSE_NAMES[image.coarse], name_of[image.product], index=image.image_id
            )
            for is_test, images in ((False, chosen.train), (True, chosen.test))
            for image in images
        ],
        notes=notes,
    )


def missing(root: Path) -> tuple[str, ...]:
    """List what is not here, one line each."""
    return RELEASE.missing(root)


def product_sizes(root: Path, *, download: bool = False, progress: Progress | None = None) -> dict[int, int]:
    """Count the images of each product of the whole set, by class_id."""
    folder = RELEASE.get(root, download=download, progress=progress)
    return {product: len(rows) for product, rows in by_product(read_info(folder / INFO_FILE)).items()}


def _chosen(split: SplitName, root: Path, folder: Path, images: list[ProductImage]) -> tuple[Split, str]:
    for lists in (base / f"sop_{split}" for base in (folder, root, root / "coarse_labels")):
        if has_folder(lists):
            chosen = read_split(lists, images, shared_products=split == "split2")
            return chosen, f"split as in the lists in {lists.name}/"
    rule = split1 if split == "split1" else split2
    return rule(images), f"split by rule: {RULES[split]}"


def _product_names(products: Mapping[int, Sequence[ProductImage]]) -> dict[int, str]:
    """Name products by category and offer number (bicycle_final/111085122871_0.JPG)."""
    names: dict[int, str] = {}
    taken: set[str] = set()
    for product, rows in products.items():
        name = f"{COARSE_NAMES[rows[0].coarse]}/{PurePosixPath(rows[0].path).stem.rpartition('_')[0]}"
        names[product] = f"{name}#{product}" if name in taken else name
        taken.add(name)
    return names
