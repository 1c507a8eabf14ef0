"""An inspection as lines of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from maskcon._utils.text import counted
from maskcon.report.inspection.findings import ClassCount, Inspection, Sizes, Twins

CLASSES_SHOWN = 40
GROUPS_SHOWN = 5
NAMES_SHOWN = 4
FILES_SHOWN = 10
WARNING, OTHER_LABELS, BOTH_PARTS = "WARNING: ", "[DIFFERENT LABELS] ", "[TRAIN AND TEST] "


def lines(found: Inspection) -> list[str]:
    """The whole of it, the warnings where they cannot be missed: at the end, above what would be chosen."""
    told = [
        f"{found.name}: {counted(found.train, 'picture')} to train on, {found.test:,} to test; "
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
        *_twin_lines("the same file", found.twins),
        *_twin_lines("nearly the same", found.near_twins),
    ]
    if found.failures:
        told.append(f"cannot be read: {counted(len(found.failures), 'file')}")
        told += [f"  {path}: {why}" for path, why in list(found.failures.items())[:FILES_SHOWN]]
        if len(found.failures) > FILES_SHOWN:
            told.append(f"  and {len(found.failures) - FILES_SHOWN:,} more (--json lists all)")
    told += [f"note: {note}" for note in found.notes]
    told += ["", *(f"{WARNING}{warning}" for warning in found.warnings)]
    if not found.warnings:
        told.append("nothing to warn of")
    if found.choices:
        told += ["", "maskcon train would choose:", *(f"  {choice.line}" for choice in found.choices)]
    return told


def is_loud(line: str) -> bool:
    """Whether one of the `lines` tells of something that should not be missed."""
    return line.lstrip().startswith((WARNING, OTHER_LABELS, BOTH_PARTS))


def _spread(sizes: Sizes) -> str:
    if sizes.smallest == sizes.largest:
        return str(sizes.smallest)
    return f"{sizes.smallest} to {sizes.largest} (median {sizes.median:g})"


def _shares(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name or 'unknown'} {count:,}" for name, count in counts.items())


def _class_lines(counts: Sequence[ClassCount], heading: str) -> list[str]:
    shown = sorted(counts, key=lambda count: -count.train)[:CLASSES_SHOWN]
    width = min(40, max([len(heading), *(len(count.name) for count in shown)]))
    told = [f"{heading:<{width}}  {'train':>7}  {'test':>7}"]
    told += [f"{count.name:<{width}}  {count.train:>7,}  {count.test:>7,}" for count in shown]
    if len(counts) > len(shown):
        told.append(f"and {len(counts) - len(shown):,} smaller ones (--json lists all)")
    return told


def _twin_lines(what: str, groups: Sequence[Twins]) -> list[str]:
    if not groups:
        return [f"{what} twice: none"]
    told = [
        f"{what} twice: {sum(len(group.rows) for group in groups):,} pictures in {counted(len(groups), 'group')}"
    ]
    for group in groups[:GROUPS_SHOWN]:
        marks = OTHER_LABELS * group.across_labels + BOTH_PARTS * group.across_parts
        named = [
            f"{name} ({label}, {'test' if test else 'train'})"
            for name, label, test in zip(group.names, group.labels, group.is_test, strict=True)
        ]
        more = f" and {len(named) - NAMES_SHOWN} more" if len(named) > NAMES_SHOWN else ""
        told.append(f"  {marks}{'; '.join(named[:NAMES_SHOWN])}{more}")
    if len(groups) > GROUPS_SHOWN:
        told.append(f"  and {len(groups) - GROUPS_SHOWN:,} more groups (the page shows more, --json all)")
    return told
