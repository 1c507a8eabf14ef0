"""An inspection in words: lines for a terminal, and one HTML file without scripts or network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.text import counted
from maskcon.report.inspection.findings import ClassCount, Inspection, Sizes, Twins
from maskcon.report.inspection.scan import Read
from maskcon.report.inspection.sheet import Strips, as_data_uri, strips_of

CLASSES_SHOWN = 40
GROUPS_PRINTED = 5  # in a terminal
NAMES_SHOWN = 4
FILES_PRINTED = 10
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
    width = min(40, max([len(heading), *(len(count.name) for count in shown)]))
    told = [f"{heading:<{width}}  {'train':>7}  {'test':>7}"]
    told += [f"{count.name:<{width}}  {count.train:>7,}  {count.test:>7,}" for count in shown]
    if len(counts) > len(shown):
        told.append(f"and {len(counts) - len(shown):,} smaller ones (--json lists all)")
    return told


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


GROUPS_SHOWN = 60  # on the page
IMAGES_SHOWN = 6
FILES_SHOWN = 500
STYLE = """
:root { color-scheme: light dark; --ink: #1d2126; --ground: #fff; --line: #d5d9de; --loud: #a4161a; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e8ea; --ground: #15181b; --line: #3a4046; --loud: #ff8a80; }
}
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--ground); margin: 0 auto;
  max-width: 75rem; padding: 1rem; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; }
td:first-child, th:first-child { min-width: 8rem; } /* or a phone breaks names after every letter */
.wide { overflow-x: auto; }
th, td { text-align: left; padding: .3rem .6rem .3rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
img { display: block; height: 3rem; width: auto; max-width: none; background: #fff; }
li.loud, .loud { color: var(--loud); font-weight: 600; }
summary { cursor: pointer; }
"""


def page(found: Inspection, read: Read, strips: Strips) -> str:
    """Render the page."""
    summary = lines(found)
    parts = [
        f"<h1>{escape(found.name)}</h1>",
        *(f"<p>{escape(line)}</p>" for line in summary[:3]),
        _list("Warnings", found.warnings, "loud") or "<p>No warnings.</p>",
        _list("What maskcon train would choose", [choice.line for choice in found.choices]),
        "<h2>Coarse classes</h2>",
        _class_table(found.coarse, strips),
        f"<p>The largest has {found.imbalance:.1f} times the training images of the smallest.</p>",
        _fine(found),
        _twins("Identical files", found.twins, read),
        _twins("Near-duplicates", found.near_twins, read),
        _failures(found),
        _list("Notes", found.notes),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(found.name)}: inspection</title><style>{STYLE}</style></head>\n<body>"
        + "\n".join(part for part in parts if part)
        + "</body></html>\n"
    )


def _list(title: str, items: Sequence[str], kind: str = "") -> str:
    if not items:
        return ""
    mark = f' class="{kind}"' if kind else ""
    return (
        f"<h2>{escape(title)}</h2><ul>"
        + "".join(f"<li{mark}>{escape(item)}</li>" for item in items)
        + "</ul>"
    )


def _class_table(counts: Sequence[ClassCount], strips: Strips) -> str:
    rows = []
    for label, count in enumerate(counts):
        shown = ""
        if label in strips:
            shown = f'<img src="{as_data_uri(strips[label])}" alt="some images of {escape(count.name)}">'
        rows.append(
            f'<tr><td>{escape(count.name)}</td><td class="n">{count.train:,}</td>'
            f'<td class="n">{count.test:,}</td><td>{shown}</td></tr>'
        )
    head = '<tr><th>class</th><th class="n">train</th><th class="n">test</th><th>images</th></tr>'
    return _wide("coarse classes", head + "".join(rows))


def _wide(label: str, rows: str) -> str:
    """Render a table that scrolls in its own box where it is too wide, also by keyboard."""
    return f'<div class="wide" role="region" aria-label="{escape(label)}" tabindex="0"><table>{rows}</table></div>'


def _fine(found: Inspection) -> str:
    if not found.fine:
        return ""
    rows = "".join(
        f'<tr><td>{escape(count.name)}</td><td>{escape(count.coarse)}</td><td class="n">{count.train:,}</td>'
        f'<td class="n">{count.test:,}</td></tr>'
        for count in found.fine
    )
    head = '<tr><th>class</th><th>coarse</th><th class="n">train</th><th class="n">test</th></tr>'
    return (
        f"<h2>Fine classes</h2><details><summary>{counted(len(found.fine), 'class', 'classes')}</summary>"
        f"{_wide('fine classes', head + rows)}</details>"
    )


def _twins(title: str, groups: Sequence[Twins], read: Read) -> str:
    if not groups:
        return f"<h2>{escape(title)}</h2><p>None.</p>"
    shown = groups[:GROUPS_SHOWN]
    strips = strips_of(read, {place: group.rows[:IMAGES_SHOWN] for place, group in enumerate(shown)})
    rows = "".join(_twin_row(group, strips[place]) for place, group in enumerate(shown))
    more = (
        f"<p>And {len(groups) - GROUPS_SHOWN:,} more groups; --json lists all.</p>"
        if len(groups) > GROUPS_SHOWN
        else ""
    )
    return f"<h2>{escape(title)}</h2>{_wide(title.lower(), rows)}{more}"


def _twin_row(group: Twins, pictures: NDArray[np.uint8]) -> str:
    marks = [
        *(["different labels"] if group.across_labels else []),
        *(["train and test"] if group.across_parts else []),
    ]
    names = [escape(name) for name in group.described]
    shown = "<br>".join(names[:IMAGES_SHOWN])
    if len(names) > IMAGES_SHOWN:
        shown += f"<br>and {len(names) - IMAGES_SHOWN} more"
    return (
        f'<tr><td class="loud">{", ".join(marks)}</td><td><img src="{as_data_uri(pictures)}" alt=""></td>'
        f"<td>{shown}</td></tr>"
    )


def _failures(found: Inspection) -> str:
    items = [f"{path}: {why}" for path, why in list(found.failures.items())[:FILES_SHOWN]]
    if len(found.failures) > FILES_SHOWN:
        items.append(f"and {len(found.failures) - FILES_SHOWN:,} more")
    return _list("Unreadable files", items)
