"""Text of messages: plural nouns, durations, titles of methods, printable names."""

from __future__ import annotations

import re

# Control characters, line and paragraph separators, Unicode's Bidi_Control, and surrogates (bytes of a file name that
# are not UTF-8).
STEERING = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def printable(text: str) -> str:
    r"""Escape characters that control a terminal, reorder a line or are not text.

    >>> print(printable("photo\u202egnp.exe"), printable("a\x1b[31m"))
    photo\u202egnp.exe a\x1b[31m
    """
    return STEERING.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def counted(count: int, noun: str, plural: str = "") -> str:
    """Format a number with its noun in singular or plural.

    >>> counted(1, "image"), counted(2_500, "image"), counted(0, "class", "classes")
    ('1 image', '2,500 images', '0 classes')
    """
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def duration(seconds: float) -> str:
    """Format a duration, to the second.

    >>> duration(5400), duration(45), duration(1810)
    ('1h30m', '45s', '30m10s')
    """
    whole = max(0, round(seconds))
    parts = ((whole // 3600, "h"), (whole % 3600 // 60, "m"), (whole % 60, "s"))
    return "".join(f"{count}{unit}" for count, unit in parts if count) or "0s"


def full_title(title: str, coarse_weight: float) -> str:
    """Return a method's title, with "+ CE" if cross-entropy is added to it.

    TeachCon has a cross-entropy of its own.

    >>> full_title("MaskCon", coarse_weight=1.0), full_title("TeachCon", coarse_weight=1.0)
    ('MaskCon + CE', 'TeachCon')
    """
    return f"{title} + CE" if coarse_weight > 0 and title != "TeachCon" else title


def escape_formula(text: str) -> str:
    """Put an apostrophe before text that a spreadsheet would run as a formula.

    >>> escape_formula("=1+1"), escape_formula("-0.5"), escape_formula("-"), escape_formula("apple")
    ("'=1+1", '-0.5', '-', 'apple')
    """
    if len(text) < 2 or not text.startswith(FORMULA_STARTS):
        return text
    try:
        float(text)
        return text
    except ValueError:
        return f"'{text}"
