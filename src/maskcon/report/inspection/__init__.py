"""A look at pictures before training on them: what there is, what is wrong with it, what would be chosen.

every picture, read once -> twins by checksum and by hash -> findings -> words, contact sheet, page
"""

from __future__ import annotations

from maskcon.report.inspection.findings import ClassCount, Inspection, Twins
from maskcon.report.inspection.page import is_loud, lines, page
from maskcon.report.inspection.run_inspection import inspect_source
from maskcon.report.inspection.scan import Read
from maskcon.report.inspection.sheet import class_strips, contact_sheet

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
