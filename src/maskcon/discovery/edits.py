"""Check, list and apply changes in kinds.csv: names, moved images, junk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from maskcon._utils.errors import DataError
from maskcon._utils.text import counted
from maskcon.data.kinds_file import KindRow
from maskcon.discovery.kinds import CoarseClass, Embedded, Kinds

What = Literal["renamed", "merged", "moved", "junk", "restored", "added", "removed"]


@dataclass(frozen=True)
class Change:
    """One difference between two states of a class; `images` is their number."""

    coarse: str
    what: What
    images: int
    old: tuple[str, ...] = ()
    new: str = ""

    def __str__(self) -> str:
        number = counted(self.images, "image")
        old = " and ".join(kind or "no kind" for kind in self.old)
        text = {
            "renamed": f"renamed {old} to {self.new} ({number})",
            "merged": f"merged {old} into {self.new} ({number})",
            "moved": f"moved {number} from {old} to {self.new or 'no kind'}",
            "junk": f"marked {number} as junk",
            "restored": f"restored {number} from junk",
            "added": f"added {number} to {self.new}",
            "removed": f"removed {number}",
        }
        return f"{self.coarse}: {text[self.what]}"

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        record = {"coarse": self.coarse, "change": self.what, "images": self.images}
        return record | {"from": list(self.old), "to": self.new}


def list_changes(old: Sequence[KindRow], new: Sequence[KindRow]) -> list[Change]:
    """List what differs between two states, by class."""
    changes: list[Change] = []
    before = {(row.coarse, row.path): row for row in old}
    after = {(row.coarse, row.path): row for row in new}
    for coarse in sorted({row.coarse for row in (*old, *new)}):
        pairs = [(before.get(key), row) for key, row in after.items() if key[0] == coarse]
        both = [(was, now) for was, now in pairs if was is not None]
        changes += _renamings(coarse, both)
        junk = sum(was.role != "junk" and now.role == "junk" for was, now in both)
        restored = sum(was.role == "junk" and now.role != "junk" for was, now in both)
        removed = sum(key[0] == coarse and key not in after for key in before)
        counts: dict[What, int] = {"junk": junk, "restored": restored, "removed": removed}
        changes += [Change(coarse, what, count) for what, count in counts.items() if count]
        added = Counter(now.kind for was, now in pairs if was is None)
        changes += [Change(coarse, "added", count, new=kind) for kind, count in sorted(added.items())]
    return changes


def changes_by_class(old: Sequence[KindRow], new: Sequence[KindRow]) -> list[str]:
    """Summarise two states of kinds found anew: a line per class, one for lost names."""
    before = {(row.coarse, row.path): row.kind for row in old}
    lines = []
    for coarse in sorted({row.coarse for row in (*old, *new)}):
        numbers = [
            len({row.kind for row in rows if row.coarse == coarse and row.kind and row.role != "junk"})
            for rows in (old, new)
        ]
        own = [row for row in new if row.coarse == coarse]
        moved = sum(before.get((coarse, row.path), row.kind) != row.kind for row in own)
        if moved or numbers[0] != numbers[1]:
            changed = f"{moved:,} of {counted(len(own), 'image')} changed kind"
            lines.append(f"{coarse}: {counted(numbers[0], 'kind')} before, {numbers[1]} now; {changed}")
        lost = {row.name for row in old if row.coarse == coarse and row.name} - {row.kind for row in own}
        if lost:
            lines.append(f"{coarse}: names no longer used: {', '.join(sorted(lost))}")
    return lines


def _renamings(coarse: str, both: Sequence[tuple[KindRow, KindRow]]) -> list[Change]:
    flows = Counter((was.kind, now.kind) for was, now in both)
    sizes = Counter(was.kind for was, _ in both)
    sources: dict[str, list[str]] = {}  # new kind -> old kinds that went into it as a whole
    changes = []
    for (was, now), count in sorted(flows.items()):
        if was and now and count == sizes[was]:
            sources.setdefault(now, []).append(was)
        elif was != now:
            changes.append(Change(coarse, "moved", count, (was,), now))
    for now, whole in sources.items():
        count = sum(sizes[was] for was in whole if was != now)
        if len(whole) > 1 or (whole != [now] and flows[now, now]):
            changes.append(Change(coarse, "merged", count, tuple(was for was in whole if was != now), now))
        elif whole != [now]:
            changes.append(Change(coarse, "renamed", count, (whole[0],), now))
    return changes


def check_edits(before: Kinds, edited: Sequence[KindRow], file: Path) -> None:
    """Check an edited file against the kinds it was made from.

    Raises:
        DataError: with the line and the way out.
    """
    known = before.known()
    for row in edited:
        was = known.get(row.path)
        if was is None:
            raise DataError(
                f"{file}, line {row.line}: {row.path} is not among the images of these kinds; remove the line, or "
                "give the source that holds it first"
            )
        if was.coarse != row.coarse:
            raise DataError(
                f"{file}, line {row.line}: {row.path} has the coarse label {was.coarse!r}, not {row.coarse!r}; only "
                "the columns kind and role can be edited"
            )


def apply_edits(before: Kinds, edited: Sequence[KindRow], embedded: Embedded) -> Kinds:
    """Apply kinds and junk of edited rows; other images keep their kind.

    Centres follow their images: a renamed or merged kind keeps its centres under the new name, and images that were
    moved to a new name get a centre of their own. Confidence and roles stay unchanged.

    Args:
        edited: rows that passed `check_edits`.
        embedded: the images, to place centres by; those that are gone do not matter.
    """
    change = {row.path: row for row in edited}
    rows = []
    for row in before.rows:
        now = change.get(row.path, row)
        role = "junk" if now.role == "junk" else "" if row.role == "junk" else row.role
        rows.append(replace(row, kind=now.kind, role=role))
    if all(was.kind == now.kind for was, now in zip(before.rows, rows, strict=True)):
        return replace(before, rows=tuple(rows))
    place = {path: number for number, path in enumerate(embedded.paths)}
    by_class: dict[str, list[tuple[str, KindRow]]] = {name: [] for name in before.classes}
    for was, now in zip(before.rows, rows, strict=True):
        if now.role != "junk":
            by_class[now.coarse].append((was.kind, now))
    classes = {
        name: _follow(before.classes[name], pairs, embedded, place) for name, pairs in by_class.items()
    }
    return replace(before, classes=classes, rows=tuple(rows))


def _follow(
    group: CoarseClass, pairs: Sequence[tuple[str, KindRow]], embedded: Embedded, place: Mapping[str, int]
) -> CoarseClass:
    """Rename centres by `follow_names`, and give new names a centre."""
    flows = Counter((was, now.kind) for was, now in pairs if now.kind)
    names = follow_names(group.kinds, flows)
    centres = [group.centres]
    for new in sorted({now for _, now in flows} - set(names)):
        rows = [place[now.path] for _, now in pairs if now.kind == new and now.path in place]
        if rows:
            centres.append(group.space.project(embedded.vectors[rows]).mean(0, keepdims=True))
            names.append(new)
    return replace(group, centres=np.concatenate(centres).astype(np.float32), kinds=tuple(names))


def follow_names(kinds: Sequence[str], flows: Mapping[tuple[str, str], int]) -> list[str]:
    """Give each centre the name that most images of its kind have now.

    Args:
        kinds: kind of each centre before.
        flows: images by their kind before and now.
    """
    names = []
    for kind in kinds:
        targets = sorted((-count, now) for (was, now), count in flows.items() if was == kind)
        names.append(targets[0][1] if targets else kind)
    return names
