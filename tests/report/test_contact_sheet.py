"""Contact sheets of kinds."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from maskcon.discovery.kinds import find_kinds
from maskcon.discovery.summary import summarise
from maskcon.report.contact_sheet import HEAD, TEXT_WIDTH, TILE, sheet_digest, sheet_name, sheet_png
from tests.discovery.generated import clustered


def test_a_sheet_has_a_row_per_kind_and_leaves_unreadable_images_out():
    embedded, _ = clustered((30, 20), coarse="Äpfel, 苹果 \ud800 " + "long " * 60)
    summary = summarise(find_kinds(embedded))[0]
    first, second = summary.kinds
    red = np.zeros((3, 10, 10), np.uint8)
    red[0] = 255
    images = dict.fromkeys(first.typical, red)
    sheet = Image.open(io.BytesIO(sheet_png(summary, images)))
    middle = TILE // 2
    assert sheet.height > HEAD + 2 * TILE
    assert sheet.getpixel((TEXT_WIDTH + middle, HEAD + middle)) == (255, 0, 0)
    assert sheet.getpixel((TEXT_WIDTH + middle, HEAD + TILE + middle)) == (255, 255, 255)
    assert second.typical


def test_the_checksum_follows_what_is_shown():
    one, other = (summarise(find_kinds(clustered(sizes)[0]))[0] for sizes in ((30, 20), (30, 21)))
    assert sheet_digest(one) != sheet_digest(other)


def test_sheet_names_are_files_and_unique():
    assert sheet_name("../..", []) == "class.png"
    assert sheet_name("苹果", []) == "苹果.png"
    assert sheet_name("a/b", ["a_b.png", "a_b-2.png"]) == "a_b-3.png"
