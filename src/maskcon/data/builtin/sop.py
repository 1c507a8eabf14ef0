"""List `sop-split1` and `sop-split2`: Stanford Online Products in 12 categories.

The photographs are read from Stanford_Online_Products/ in the data folder (Ebay_info.txt and the twelve folders
bicycle_final/ ... toaster_final/), from the data folder itself if these lie there, or from
Stanford_Online_Products.zip, which is unpacked once.

The splits are made by rule (see `split1`, `split2`). If the authors' lists lie in sop_split1/ or sop_split2/, in the
set's folder, in the data folder or in coarse_labels/ there, they are checked against Ebay_info.txt and used instead.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Literal, NamedTuple

from maskcon._utils.download import Progress
from maskcon._utils.errors import CorruptFileError, DataError
from maskcon._utils.paths import check_regular, has_file, has_folder
from maskcon.data.builtin.release import Release
from maskcon.data.dataset import Grouping, Variant
from maskcon.data.folder_layout import Found, Layout

SplitName = Literal["split1", "split2"]

COARSE_NAMES = (
    *("bicycle", "cabinet", "chair", "coffee_maker", "fan", "kettle"),
    *("lamp", "mug", "sofa", "stapler", "table", "toaster"),
)
HEADER = ["image_id", "class_id", "super_class_id", "path"]
ROW = re.compile(r"(\d{1,12})\s+(\d{1,12})\s+([1-9]|1[0-2])\s+((\w+)_final/[^/\\\s]+)", re.ASCII)
MAX_BYTES = 64 << 20  # Ebay_info.txt has 5 MB
SPLIT1_FEWEST = 8  # images of a product
SPLIT2_IMAGES = 12
SPLIT2_TEST_IMAGES = 2
SPLIT2_SEED = 0

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
    """Read the lists of a split without opening images.

    Unpacks (or downloads) the archive if necessary. Fine classes are the products, ids the image_id of Ebay_info.txt.
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
            f"its list is incomplete ({len(images)} of 120053 rows)"
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


class ProductImage(NamedTuple):
    """A row of Ebay_info.txt; product is its class_id, coarse its super_class_id - 1."""

    image_id: int
    product: int
    coarse: int
    path: str


class Split(NamedTuple):
    """Images to train and to test on, each sorted by product and image_id."""

    train: tuple[ProductImage, ...]
    test: tuple[ProductImage, ...]


def read_info(path: Path) -> list[ProductImage]:
    """Read and check Ebay_info.txt, the list of the whole dataset."""
    lines = _read_text(path).splitlines()
    if not lines or lines[0].split() != HEADER:
        raise CorruptFileError(f"{path}: line 1 should read {' '.join(HEADER)!r}")
    images = [_read_row(path, number, line) for number, line in enumerate(lines[1:], start=2) if line.strip()]
    if len({(image.product, image.coarse) for image in images}) != len({image.product for image in images}):
        raise CorruptFileError(f"{path}: a class_id has two super_class_id")
    for what in ("image_id", "path"):
        count = len({getattr(image, what) for image in images})
        if count != len(images):
            raise CorruptFileError(f"{path}: {len(images)} rows have only {count} different values of {what}")
    return images


def _read_row(path: Path, number: int, line: str) -> ProductImage:
    found = ROW.fullmatch(line.strip())
    category = int(found[3]) - 1 if found else -1
    if found is None or found[5] != COARSE_NAMES[category]:
        raise CorruptFileError(
            f"{path}: line {number} should hold image_id, class_id, super_class_id (1 to {len(COARSE_NAMES)}) and "
            f"the path of an image in that category's folder, got {line[:80]!r}"
        )
    return ProductImage(int(found[1]), int(found[2]), category, found[4])


def _read_text(path: Path) -> str:
    try:
        check_regular(path)
        if path.stat().st_size > MAX_BYTES:
            raise CorruptFileError(
                f"{path}: more than {MAX_BYTES} bytes; not a list of Stanford Online Products"
            )
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise CorruptFileError(f"{path}: not text ({error})") from error


def by_product(images: Iterable[ProductImage]) -> dict[int, list[ProductImage]]:
    """Group images by product: products sorted by class_id, images by image_id."""
    products: dict[int, list[ProductImage]] = {}
    for image in sorted(images, key=lambda image: (image.product, image.image_id)):
        products.setdefault(image.product, []).append(image)
    return products


def split1(images: Iterable[ProductImage]) -> Split:
    """Split products of 8 or more images by class_id: first half trains, rest tests.

    This is the order of the authors' lists (their last bicycle to train on comes right before their first one to
    test on), so that the whole set gives their parts: 2,517 and 2,518 products, 25,368 and 25,278 images. No product
    is in both parts.
    """
    chosen = [rows for rows in by_product(images).values() if len(rows) >= SPLIT1_FEWEST]
    half = len(chosen) // 2
    return Split(_flat(chosen[:half]), _flat(chosen[half:]))


def split2(images: Iterable[ProductImage], seed: int = SPLIT2_SEED) -> Split:
    """Split products of exactly 12 images: 2 images of each test, 10 train.

    The authors drew the two at random. Here they are those with the smallest sha256 of "<seed>;<path>", which
    does not depend on the order of files or the version of a library.
    """
    train, test = [], []
    for rows in by_product(images).values():
        if len(rows) == SPLIT2_IMAGES:
            drawn = sorted(rows, key=lambda row: hashlib.sha256(f"{seed};{row.path}".encode()).digest())
            held = {row.image_id for row in drawn[:SPLIT2_TEST_IMAGES]}
            train.append([row for row in rows if row.image_id not in held])
            test.append([row for row in rows if row.image_id in held])
    return Split(_flat(train), _flat(test))


def read_split(folder: Path, images: Iterable[ProductImage], *, shared_products: bool) -> Split:
    """Read the split in the authors' lists train_path.json and test_path.json.

    Labels follow from Ebay_info.txt, so that the lists of labels beside them are not needed.
    """
    known = {image.path: image for image in images}
    parts = []
    for path in (folder / "train_path.json", folder / "test_path.json"):
        if not has_file(path):
            raise DataError(f"{folder} lacks {path.name}; add it, or remove the folder to split by rule")
        try:
            names = json.loads(_read_text(path))
            parts.append([known[name] for name in names])
        except (ValueError, RecursionError, TypeError, KeyError) as error:
            raise CorruptFileError(
                f"{path}: not a list of paths in Ebay_info.txt ({type(error).__name__}: {str(error)[:80]})"
            ) from error
    every = [image.path for rows in parts for image in rows]
    if len(set(every)) != len(every):
        raise CorruptFileError(f"{folder}: an image is listed twice")
    train, test = ({image.product for image in rows} for rows in parts)
    wrong, rule = (train ^ test, "not in both parts") if shared_products else (train & test, "in both parts")
    if wrong:
        raise CorruptFileError(
            f"{folder}: {len(wrong)} products are {rule}; these lists are of another split"
        )
    return Split(*(_flat(by_product(rows).values()) for rows in parts))


def _flat(products: Iterable[Sequence[ProductImage]]) -> tuple[ProductImage, ...]:
    return tuple(image for rows in products for image in rows)
