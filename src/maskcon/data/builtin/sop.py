"""`sop-split1` and `sop-split2`: Stanford Online Products, photographs of things for sale in 12 categories.

Read from Stanford_Online_Products/ in the data folder (Ebay_info.txt, or Ebay_train.txt and Ebay_test.txt, and the
twelve folders bicycle_final/ ... toaster_final/), from the data folder itself if these lie there, or from
Stanford_Online_Products.zip, which is unpacked once.

The splits are made by rule (see `sop_lists`). If the authors' lists lie in sop_split1/ or sop_split2/, in the set's
folder, in the data folder or in coarse_labels/ there, they are checked against Ebay_info.txt and used instead.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Literal

from maskcon._utils.download import Progress, fetch
from maskcon._utils.errors import DataError
from maskcon._utils.paths import has_file, has_folder
from maskcon.data.archive import extract
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
from maskcon.data.dataset import Variant
from maskcon.data.folder_layout import some
from maskcon.data.image_list import Listed, Listing

__all__ = ["COARSE_NAMES", "is_unpacked", "missing", "product_sizes", "sop_listing"]

SplitName = Literal["split1", "split2"]

TITLE = "Stanford Online Products"
FOLDER = "Stanford_Online_Products"
FOLDERS = tuple(f"{name}_final" for name in COARSE_NAMES)  # of images
ARCHIVE = f"{FOLDER}.zip"
PAGE = "https://cvgl.stanford.edu/projects/lifted_struct/"
URL = f"http://ftp.cs.stanford.edu/cs/cvgl/{ARCHIVE}"
MD5 = "7f73d41a2f44250d4779881525aea32e"
UNPACKED_LIMIT = 6 << 30  # the archive has 3.1 GB and hardly any compression
MEMBER_LIMIT = 400_000  # 120,053 images, and as many files again that some systems add

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
) -> Listing:
    """Read the lists of a split; opens no image, but unpacks (or downloads) the archive if need be.

    Fine classes are the products, ids the image_id of Ebay_info.txt.
    split1: products of 8 or more images, half of the products to train on, the others to test.
    split2: products of 12 images, 10 of them to train on, 2 to test.
    """
    folder = _folder_of(root, download, progress)
    images = read_info(_info_files(folder))
    chosen, note = _chosen(split, root, folder, images)
    counts = (len(chosen.train), len(chosen.test))
    if min(counts) == 0:
        raise DataError(
            f"{TITLE} in {folder} gives {counts[0]} images to train on and {counts[1]} to test on by {split}: "
            f"its list is not the whole one ({len(images)} of 120053 rows)"
        )
    notes = [note]
    if counts != PAPER_COUNTS[split]:
        paper = PAPER_COUNTS[split]
        notes.append(f"{counts[0]} + {counts[1]} images are listed; the paper has {paper[0]} + {paper[1]}")
    products = by_product((*chosen.train, *chosen.test))
    fine_of = {product: fine for fine, product in enumerate(products)}
    return Listing(
        name=f"sop-{split}",
        title=TITLE,
        folder=folder,
        family="products",
        coarse_names=COARSE_NAMES,
        fine_names=tuple(_product_name(rows[0]) for rows in products.values()),
        coarse_of_fine=tuple(rows[0].coarse for rows in products.values()),
        train=_listed(chosen.train, fine_of),
        test=_listed(chosen.test, fine_of),
        notes=tuple(notes),
    )


def missing(root: Path) -> tuple[str, ...]:
    """What is not here, one line each; empty if the set is here, unpacked or as its archive."""
    folder = _find_folder(root)
    if folder is None:
        if has_file(root / ARCHIVE):
            return ()
        return (f"{TITLE}: put {ARCHIVE} (from {URL}) into {root}, or its content into {root / FOLDER}",)
    return tuple(f"{name} in {folder}" for name in _lacking(folder))


def is_unpacked(root: Path) -> bool:
    """Are the lists and folders there, so that `sop_listing` has nothing to unpack?"""
    folder = _find_folder(root)
    return folder is not None and not _lacking(folder)


def product_sizes(root: Path, *, download: bool = False, progress: Progress | None = None) -> dict[int, int]:
    """How many images each product of the whole set has, by class_id; opens no image."""
    folder = _folder_of(root, download, progress)
    return {product: len(rows) for product, rows in by_product(read_info(_info_files(folder))).items()}


def _folder_of(root: Path, download: bool, progress: Progress | None) -> Path:
    """The complete set's folder, unpacking or downloading the archive if need be."""
    folder = _find_folder(root)
    if folder is None and (download or has_file(root / ARCHIVE)):
        archive = fetch(URL, root / ARCHIVE, md5=MD5, progress=progress)  # one that is there is only checked
        try:
            folder = extract(
                archive, root / FOLDER, inside=FOLDER, max_bytes=UNPACKED_LIMIT, max_members=MEMBER_LIMIT
            )
        except DataError:
            folder = _find_folder(root)  # there if another process unpacked it meanwhile
            if folder is None:
                raise
    if folder is None:
        raise DataError(
            f"{TITLE} was not found in {root}; download it with --download (3.1 GB), or put {ARCHIVE} "
            f"(from {URL}) there"
        )
    lacking = _lacking(folder)
    if lacking:
        raise DataError(
            f"{TITLE} in {folder} is not complete: {some(lacking)} not found; take them from {ARCHIVE} ({URL}), "
            "or delete the folder and try again"
        )
    return folder


def _find_folder(root: Path) -> Path | None:
    """Where any of the set is, or a folder of its name, over which an archive is not unpacked."""
    for folder in (root / FOLDER, root):
        if _info_files(folder) or any(has_folder(folder / name) for name in FOLDERS):
            return folder
    return root / FOLDER if has_folder(root / FOLDER) else None


def _info_files(folder: Path) -> list[Path]:
    """The list of the whole set, in one file or in two; empty if there is neither."""
    for names in (("Ebay_info.txt",), ("Ebay_train.txt", "Ebay_test.txt")):
        if all(has_file(folder / name) for name in names):
            return [folder / name for name in names]
    return []


def _lacking(folder: Path) -> list[str]:
    lists = [] if _info_files(folder) else ["Ebay_info.txt"]
    return lists + [name for name in FOLDERS if not has_folder(folder / name)]


def _chosen(split: SplitName, root: Path, folder: Path, images: list[ProductImage]) -> tuple[Split, str]:
    for lists in (base / f"sop_{split}" for base in (folder, root, root / "coarse_labels")):
        if has_folder(lists):
            chosen = read_split(lists, images, shared_products=split == "split2")
            return chosen, f"split as in the lists in {lists.name}/"
    rule = split1 if split == "split1" else split2
    return rule(images), f"split by rule: {RULES[split]}"


def _listed(images: tuple[ProductImage, ...], fine_of: dict[int, int]) -> tuple[Listed, ...]:
    return tuple(Listed(image.path, fine_of[image.product], image.image_id) for image in images)


def _product_name(image: ProductImage) -> str:
    """Category and the number of the offer, which file names carry: bicycle_final/111085122871_0.JPG."""
    return f"{COARSE_NAMES[image.coarse]}/{PurePosixPath(image.path).stem.rpartition('_')[0]}"
