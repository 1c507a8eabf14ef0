"""Miniatures of Stanford Online Products and Stanford Cars, in the formats of their files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from maskcon.data import Dataset, load
from maskcon.data.builtin.cars196 import FINE_NAMES
from maskcon.data.builtin.sop import COARSE_NAMES, ProductImage, by_product
from tests.data.miniatures import write_picture

HEADER = "image_id class_id super_class_id path"
# category and number of images of products 1, 2, ...: five have 8 images or more, three of them exactly 12
SIZES = [(0, 3), (0, 8), (3, 12), (11, 2), (0, 12), (5, 7), (5, 9), (11, 12)]


def load_sop(split: str, root: Path, **options: Any) -> Dataset:
    return load(f"sop-{split}", root=root, **options)


def load_cars196(root: Path, **options: Any) -> Dataset:
    return load("cars196", root=root, **options)


def info_rows(sizes: list[tuple[int, int]]) -> list[str]:
    """Rows of Ebay_info.txt for products of (category from 0, number of images), in this order."""
    rows = []
    for product, (category, count) in enumerate(sizes, start=1):
        names = sorted(f"{product + 111085122870}_{number}.JPG" for number in range(count))
        for name in names:
            rows.append(f"{len(rows) + 1} {product} {category + 1} {COARSE_NAMES[category]}_final/{name}")
    return rows


def images_of(sizes: list[tuple[int, int]]) -> list[ProductImage]:
    """The same rows as values."""
    values = [row.split() for row in info_rows(sizes)]
    return [ProductImage(int(row[0]), int(row[1]), int(row[2]) - 1, row[3]) for row in values]


def colour_of(path: str) -> tuple[int, int, int]:
    code = sum(ord(letter) * (place + 1) for place, letter in enumerate(path))
    return code % 251, code % 241, code % 239


def write_sop(root: Path, sizes: list[tuple[int, int]], *, pictures: bool = True) -> Path:
    """Stanford_Online_Products/ below root with its three lists, the first half of the products in Ebay_train.txt."""
    folder = root / "Stanford_Online_Products"
    folder.mkdir(parents=True)
    rows = info_rows(sizes)
    train = [row for row in rows if int(row.split()[1]) <= len(sizes) // 2]
    for name, some in (("info", rows), ("train", train), ("test", rows[len(train) :])):
        (folder / f"Ebay_{name}.txt").write_text("\n".join([HEADER, *some]) + "\n")
    for category in COARSE_NAMES:
        (folder / f"{category}_final").mkdir()
    if pictures:
        for row in rows:
            path = row.split()[3]
            write_picture(folder / path, (20, 12), colour_of(path))
    return folder


def write_split_lists(
    folder: Path, train: list[ProductImage], test: list[ProductImage], *, shared: bool
) -> None:
    """The six JSON lists as the authors publish them: fine labels counted from 0, by part or (shared) in common."""
    folder.mkdir(parents=True)
    both = by_product([*train, *test])
    for part, pictures in (("train", train), ("test", test)):
        number = {product: place for place, product in enumerate(both if shared else by_product(pictures))}
        lists: dict[str, list[Any]] = {
            "path": [picture.path for picture in pictures],
            "coarse_label": [picture.coarse for picture in pictures],
            "fine_label": [number[picture.product] for picture in pictures],
        }
        for kind, values in lists.items():
            (folder / f"{part}_{kind}.json").write_text(json.dumps(values))


def write_other_lists(split: str, where: Path) -> tuple[list[ProductImage], list[ProductImage]]:
    """sop_split1/ or sop_split2/ for the set of SIZES, with another choice than our rule's; what was chosen."""
    pictures = images_of(SIZES)
    if split == "split1":
        train = [picture for picture in pictures if picture.product in (3, 8)]
        test = [picture for picture in pictures if picture.product in (2, 5)]
    else:
        twelves = [[row for row in pictures if row.product == product] for product in (3, 5)]
        train = [row for twelve in twelves for row in twelve[:1:-1]]
        test = [row for twelve in twelves for row in twelve[:2]]
    write_split_lists(where / f"sop_{split}", train, test, shared=split == "split2")
    return train, test


def write_cars_folders(folder: Path, models: dict[str, list[int]]) -> None:
    """train/<model>/ and test/<model>/ with an image a class number, the slash in one name written as a hyphen."""
    for part, labels in models.items():
        for place, label in enumerate(labels):
            model = FINE_NAMES[label - 1].replace("/", "-")
            write_picture(folder / part / model / f"{place:05d}.jpg", (24, 16), colour_of(f"{part}{place}"))
