"""A look at pictures before training on them: what there is, what is wrong with it, what would be chosen.

every picture, read once -> twins by checksum and by hash -> findings -> words, contact sheet, page
"""

from __future__ import annotations

from maskcon.inspection.findings import ClassCount, Inspection, Twins
from maskcon.inspection.inspecting import inspect_source
from maskcon.inspection.page import page
from maskcon.inspection.reading import Read
from maskcon.inspection.sheet import class_strips, contact_sheet
from maskcon.inspection.words import is_loud, lines

__all__ = [
    "ClassCount",
    "Inspection",
    "Read",
    "Twins",
    "class_strips",
    "contact_sheet",
    "inspect_source",
    "is_loud",
    "lines",
    "page",
]
