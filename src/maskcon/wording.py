"""Counts in messages: one image, several images."""

from __future__ import annotations


def counted(count: int, noun: str, plural: str = "") -> str:
    """A number with its noun in the right form.

    >>> counted(1, "image"), counted(2_500, "image"), counted(0, "class", "classes")
    ('1 image', '2,500 images', '0 classes')
    """
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
