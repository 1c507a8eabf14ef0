"""An inspection as lines for a terminal, and as one self-contained HTML file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from maskcon._utils.text import counted
from maskcon.report.formats import Cell, Table
from maskcon.report.gallery import image_uri
from maskcon.report.inspection.findings import ClassCount, Inspection, Sizes, Twins
from maskcon.report.inspection.scan import Read
from maskcon.report.inspection.strips import class_strips, strips_of
from maskcon.report.page import Section, page_html, table_html

if TYPE_CHECKING:
    from PIL import Image

CLASSES_SHOWN = 40
GROUPS_PRINTED = 5  # in a terminal
NAMES_SHOWN = 4
FILES_PRINTED = 10
GROUPS_SHOWN = 60  # on the page
IMAGES_SHOWN = 6
FILES_SHOWN = 500
WARNING, OTHER_LABELS, BOTH_PARTS = "WARNING: ", "[DIFFERENT LABELS] ", "[TRAIN AND TEST] "


def lines(found: Inspection) -> list[str]:
    """Describe an inspection; warnings come at the end, above the choices of training."""
    told = [
        f"{found.name}: {counted(found.train, 'image')} to train on, {found.test:,} to test; "
        f"{len(found.coarse)} coarse classes"
        + (f", {len(found.fine):,} fine" if found.fine else ", no fine labels")
        + f"; {found.size_bytes / 1e6:,.1f} MB",
        f"width {_spread(found.width)} px, height {_spread(found.height)} px",
        f"modes: {_shares(found.modes)}; formats: {_shares(found.formats)}",
        "",
        *_class_lines(found.coarse, "coarse class"),
        *(["", *_class_lines(found.fine, "fine class")] if found.fine else []),
        "",
        f"largest over smallest coarse class: {found.imbalance:.1f}",
        *_twin_lines("identical files", found.twins),
        *_twin_lines("near-duplicates", found.near_twins),
    ]
    if found.failures:
        told.append(f"unreadable: {counted(len(found.failures), 'file')}")
        told += [f"  {path}: {why}" for path, why in list(found.failures.items())[:FILES_PRINTED]]
        if len(found.failures) > FILES_PRINTED:
            told.append(f"  and {len(found.failures) - FILES_PRINTED:,} more (--json lists all)")
    told += [f"note: {note}" for note in found.notes]
    told += ["", *(f"{WARNING}{warning}" for warning in found.warnings)]
    if not found.warnings:
        told.append("no warnings")
    if found.choices:
        told += ["", "maskcon train would choose:", *(f"  {choice.line}" for choice in found.choices)]
    return told


def is_loud(line: str) -> bool:
    """Whether one of the `lines` is a warning."""
    return line.lstrip().startswith((WARNING, OTHER_LABELS, BOTH_PARTS))


def _spread(sizes: Sizes) -> str:
    if sizes.smallest == sizes.largest:
        return str(sizes.smallest)
    return f"{sizes.smallest} to {sizes.largest} (median {sizes.median:g})"


def _shares(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name or 'unknown'} {count:,}" for name, count in counts.items())


def _class_lines(counts: Sequence[ClassCount], heading: str) -> list[str]:
    shown = sorted(counts, key=lambda count: -count.train)[:CLASSES_SHOWN]
    rows = [[count.name, f"{count.train:,}", f"{count.test:,}"] for count in shown]
    more = [f"and {len(counts) - len(shown):,} smaller ones (--json lists all)"]
    return (
        Table([heading, "train", "test"], rows, notes=more if len(counts) > len(shown) else ())
        .text()
        .splitlines()
    )


def _twin_lines(what: str, groups: Sequence[Twins]) -> list[str]:
    if not groups:
        return [f"{what}: none"]
    told = [f"{what}: {sum(len(group.rows) for group in groups):,} images in {counted(len(groups), 'group')}"]
    for group in groups[:GROUPS_PRINTED]:
        marks = OTHER_LABELS * group.across_labels + BOTH_PARTS * group.across_parts
        named = group.described
        more = f" and {len(named) - NAMES_SHOWN} more" if len(named) > NAMES_SHOWN else ""
        told.append(f"  {marks}{'; '.join(named[:NAMES_SHOWN])}{more}")
    if len(groups) > GROUPS_PRINTED:
        told.append(f"  and {len(groups) - GROUPS_PRINTED:,} more groups (the page shows more, --json all)")
    return told


def page(found: Inspection, read: Read) -> str:
    """Render the page."""
    strips = class_strips(read)
    classes: list[list[str | Cell]] = [
        [
            count.name,
            f"{count.train:,}",
            f"{count.test:,}",
            _images(strips.get(label), f"images of {count.name}"),
        ]
        for label, count in enumerate(found.coarse)
    ]
    ratio = f"The largest has {found.imbalance:.1f} times the training images of the smallest."
    coarse = Table(["class", "train", "test", "images"], classes, notes=[ratio])
    fine = Table(
        ["class", "coarse", "train", "test"],
        [[count.name, count.coarse, f"{count.train:,}", f"{count.test:,}"] for count in found.fine],
        "All classes",
    )
    failures = [f"{path}: {why}" for path, why in list(found.failures.items())[:FILES_SHOWN]]
    if len(found.failures) > FILES_SHOWN:
        failures.append(f"and {len(found.failures) - FILES_SHOWN:,} more")
    sections = [
        Section("warnings", "Warnings", _list(found.warnings, "loud") or "<p>No warnings.</p>"),
        Section(
            "choices", "What maskcon train would choose", _list([choice.line for choice in found.choices])
        ),
        Section("coarse", "Coarse classes", f'<div class="prose">{coarse.html()}</div>'),
        Section("fine", "Fine classes", table_html(fine) if found.fine else ""),
        Section("identical", "Identical files", _twins(found.twins, read)),
        Section("near", "Near-duplicates", _twins(found.near_twins, read)),
        Section("unreadable", "Unreadable files", _list(failures)),
        Section("notes", "Notes", _list(found.notes)),
    ]
    footer = "Written by maskcon inspect."
    return page_html(f"{found.name}: inspection", lines(found)[:3], sections, footer=footer)


def _list(items: Sequence[str], kind: str = "") -> str:
    lines = "".join(f'<li class="{kind}">{escape(item)}</li>' for item in items)
    return f"<ul>{lines}</ul>" if lines else ""


def _images(strip: Image.Image | None, alt: str) -> Cell:
    return Cell("") if strip is None else Cell(alt, image=image_uri(strip, exact=False))


def _twins(groups: Sequence[Twins], read: Read) -> str:
    if not groups:
        return "<p>None.</p>"
    shown = groups[:GROUPS_SHOWN]
    strips = strips_of(read, {place: group.rows[:IMAGES_SHOWN] for place, group in enumerate(shown)})
    rows: list[list[str | Cell]] = []
    for place, group in enumerate(shown):
        marks = ["different labels"] * group.across_labels + ["train and test"] * group.across_parts
        names = group.described
        more = [f"and {len(names) - IMAGES_SHOWN} more"] if len(names) > IMAGES_SHOWN else []
        told = "; ".join([*names[:IMAGES_SHOWN], *more])
        rows.append([Cell(", ".join(marks), bold=True), _images(strips[place], ""), told])
    left_out = len(groups) - GROUPS_SHOWN
    notes = [f"And {left_out:,} more groups; --json lists all."] if left_out > 0 else []
    return f'<div class="prose">{Table(["found in", "images", "files"], rows, notes=notes).html()}</div>'
