from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from maskcon._utils.errors import CorruptFileError, DataError
from maskcon.data.builtin.sop import PAPER_COUNTS, ProductImage, read_info, read_split, split1, split2
from tests.data.miniature_photos import (
    HEADER,
    SIZES,
    images_of,
    info_rows,
    load_sop,
    write_other_lists,
    write_sop,
    write_split_lists,
)


def products(pictures: tuple[ProductImage, ...]) -> list[int]:
    return sorted({picture.product for picture in pictures})


def full_size_sizes() -> list[tuple[int, int]]:
    """Sizes of 22,634 products with the totals of the real set: 120,053 images, 5,035 products of 8 or more."""
    sizes = [12] * 1_498 + [8] * 3_537 + [2] * 17_599
    generator = random.Random(0)
    for first, last, total in ((1_498, 5_035, 50_646 - 12 * 1_498), (5_035, 22_634, 120_053 - 50_646)):
        lacking = total - sum(sizes[first:last])
        most = 11 if first == 1_498 else 7
        while lacking:
            place = generator.randrange(first, last)
            if sizes[place] < most:
                sizes[place] += 1
                lacking -= 1
    generator.shuffle(sizes)
    return [(place * 12 // len(sizes), size) for place, size in enumerate(sizes)]


def test_splits_of_a_set_of_the_real_size_have_the_papers_counts(tmp_path: Path) -> None:
    rows = info_rows(full_size_sizes())
    (tmp_path / "Ebay_info.txt").write_text("\n".join([HEADER, *rows]))
    pictures = read_info(tmp_path / "Ebay_info.txt")
    assert len(pictures) == 120_053
    first, second = split1(pictures), split2(pictures)
    assert (len(products(first.train)), len(products(first.test))) == (2_517, 2_518)
    assert len(first.train) + len(first.test) == 25_368 + 25_278
    assert set(products(first.train)).isdisjoint(products(first.test))
    assert (len(second.train), len(second.test)) == PAPER_COUNTS["split2"]
    assert products(second.train) == products(second.test)
    assert len(products(second.train)) == 1_498
    assert set(Counter(picture.product for picture in second.test).values()) == {2}
    assert not {picture.path for picture in second.train} & {picture.path for picture in second.test}


def test_split1_halves_the_large_products_in_the_order_of_their_numbers() -> None:
    split = split1(images_of(SIZES))
    assert products(split.train) == [2, 3]
    assert products(split.test) == [5, 7, 8]
    assert len(split.train) == 8 + 12
    assert len(split.test) == 12 + 9 + 12


def test_split2_draws_two_of_twelve_by_the_stated_hash() -> None:
    pictures = images_of(SIZES)
    split = split2(pictures)
    expected = set()
    for product in (3, 5, 8):
        digest_of = {}
        for picture in pictures:
            if picture.product == product:
                digest_of[hashlib.sha256(b"0;" + picture.path.encode()).hexdigest()] = picture.path
        expected |= {digest_of[digest] for digest in sorted(digest_of)[:2]}
    assert {picture.path for picture in split.test} == expected
    # fixed for good: another rule would be another dataset under the same name
    offer = "coffee_maker_final/111085122873"
    assert [row.path for row in split.test if row.product == 3] == [f"{offer}_0.JPG", f"{offer}_5.JPG"]
    assert {picture.path for picture in split2(pictures, seed=1).test} != expected


def test_splits_do_not_depend_on_the_order_of_rows() -> None:
    pictures = images_of(SIZES)
    shuffled = random.Random(3).sample(pictures, len(pictures))
    assert split1(shuffled) == split1(pictures)
    assert split2(shuffled) == split2(pictures)


def test_incomplete_lists_are_not_silently_passed_over(tmp_path: Path) -> None:
    write_sop(tmp_path, SIZES, pictures=False)
    write_other_lists("split1", tmp_path)
    (tmp_path / "sop_split1" / "test_path.json").unlink()
    with pytest.raises(DataError, match=r"sop_split1 lacks test_path\.json"):
        load_sop("split1", tmp_path)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (
            "train_path",
            lambda values: ["sofa_final/0_0.JPG", *values[1:]],
            r"not a list of paths in Ebay_info",
        ),
        ("train_path", lambda values: [1, *values[1:]], "list of paths"),
        ("train_path", lambda values: [values[1], *values[1:]], "listed twice"),
    ],
)
def test_lists_that_disagree_with_the_set_are_refused(
    tmp_path: Path, name: str, change: Any, message: str
) -> None:
    write_sop(tmp_path, SIZES, pictures=False)
    write_other_lists("split1", tmp_path)
    path = tmp_path / "sop_split1" / f"{name}.json"
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    with pytest.raises(CorruptFileError, match=message):
        load_sop("split1", tmp_path)


def test_lists_of_the_other_split_are_refused(tmp_path: Path) -> None:
    pictures = images_of(SIZES)
    own1, own2 = split1(pictures), split2(pictures)
    write_split_lists(tmp_path / "one", list(own1.train), list(own1.test), shared=True)
    write_split_lists(tmp_path / "two", list(own2.train), list(own2.test), shared=False)
    with pytest.raises(CorruptFileError, match="not in both parts"):
        read_split(tmp_path / "one", pictures, shared_products=True)
    with pytest.raises(CorruptFileError, match="are in both parts"):
        read_split(tmp_path / "two", pictures, shared_products=False)


@pytest.mark.parametrize("content", ["[1, 2", "[" * 100_000, "nonsense", '"text"'])
def test_files_that_are_no_json_lists_are_refused(tmp_path: Path, content: str) -> None:
    write_sop(tmp_path, SIZES, pictures=False)
    write_other_lists("split1", tmp_path)
    (tmp_path / "sop_split1" / "train_path.json").write_text(content)
    with pytest.raises(CorruptFileError, match=r"train_path\.json"):
        load_sop("split1", tmp_path)


@pytest.mark.parametrize(
    "line",
    [
        "1 1 1",
        "1 1 x bicycle_final/1_0.JPG",
        "1 -1 1 bicycle_final/1_0.JPG",
        "1 1 1 bicycle_final/1 0.JPG",
        "1 1 13 bicycle_final/1_0.JPG",
        "1 1 0 bicycle_final/1_0.JPG",
        "1 1 2 bicycle_final/1_0.JPG",
        "1 1 1 bicycle_final/../1_0.JPG",
        "1 1 1 /etc/passwd",
        f"{'9' * 30} 1 1 bicycle_final/1_0.JPG",
    ],
)
def test_bad_rows_are_refused_with_their_line(tmp_path: Path, line: str) -> None:
    folder = write_sop(tmp_path, SIZES, pictures=False)
    path = folder / "Ebay_info.txt"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:4], line, *lines[4:]]))
    with pytest.raises(CorruptFileError, match=r"Ebay_info\.txt: line 5 should hold"):
        load_sop("split1", tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1"),
        ("a b c\n", "line 1"),
        (f"{HEADER}\n1 1 1 bicycle_final/1_0.JPG\n1 1 1 bicycle_final/1_1.JPG", "image_id"),
        (f"{HEADER}\n1 1 1 bicycle_final/1_0.JPG\n2 1 1 bicycle_final/1_0.JPG", "path"),
        (f"{HEADER}\n1 1 1 bicycle_final/1_0.JPG\n2 1 2 cabinet_final/1_1.JPG", "class_id has two"),
        (f"{HEADER}\n1 1 1 bicycle_final/\udcff_0.JPG", "not text"),
    ],
)
def test_lists_with_wrong_contents_are_refused(tmp_path: Path, text: str, message: str) -> None:
    folder = write_sop(tmp_path, SIZES, pictures=False)
    (folder / "Ebay_info.txt").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(CorruptFileError, match=rf"Ebay_info\.txt.*{message}"):
        load_sop("split1", tmp_path)
