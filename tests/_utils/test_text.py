from __future__ import annotations

import sys
import unicodedata

from maskcon._utils.text import printable


def test_every_control_and_every_bidirectional_control_is_escaped() -> None:
    for code in range(sys.maxunicode + 1):
        letter = chr(code)
        kind, direction = unicodedata.category(letter), unicodedata.bidirectional(letter)
        steers = kind in ("Cc", "Zl", "Zp", "Cs") or direction in (
            *("LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI"),
        )
        shown = printable(letter)
        if steers:
            assert shown.isascii(), hex(code)
            assert shown.isprintable(), hex(code)
        elif letter not in "\u061c\u200e\u200f":  # marks, which reorder too
            assert shown == letter, hex(code)


def test_joined_emoji_and_scripts_stay_as_they_are() -> None:
    for name in ("👩‍🔬.jpg", "می‌خواهم", "e\u0301", "鳥"):
        assert printable(name) == name
