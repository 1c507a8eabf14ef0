"""Kinds under edit: one edit at a time, undo and redo without limit, each in time of the class that it concerns.

Centres follow their images as in `edits.apply_edits`. Confidence and roles of a class are judged again when they are
next asked for. Letters in shapes: N images of the dataset, n of a class, K centres, A axes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.errors import UsageError
from maskcon._utils.text import counted
from maskcon.data.kinds_file import KindRow
from maskcon.discovery.clusters import Floats, distances
from maskcon.discovery.edit_kinds import Asked, Edit, Junk, Merge, Move, Parts, Rename, Restore, Split, Take
from maskcon.discovery.edits import Change, follow_names
from maskcon.discovery.kinds import CoarseClass, Embedded, Kinds
from maskcon.discovery.revision import free_numbers, split_points
from maskcon.discovery.roles import ROLES, judge_rows, ranks

Ids = NDArray[np.int64]
NO_KIND = 0  # code of the empty name


class GoneError(UsageError):
    """What an edit names is not there, or not any more."""


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The state of every image at one moment, to be written while edits go on."""

    paths: Sequence[str]
    classes: Sequence[str]
    names: Sequence[str]
    coarse: Ids
    kind: NDArray[np.int32]
    confidence: NDArray[np.float64]
    role: NDArray[np.uint8]

    def rows(self) -> list[KindRow]:
        """Return the rows of kinds.csv."""
        columns = (self.coarse, self.kind, self.confidence, self.role)
        return [
            KindRow(
                path,
                self.classes[place],
                self.names[kind],
                None if math.isnan(sure) else round(sure, 3),
                ROLES[role],
            )
            for path, place, kind, sure, role in zip(
                self.paths, *(column.tolist() for column in columns), strict=True
            )
        ]


@dataclass(frozen=True, eq=False)
class Step:
    """What one edit did to one class: before and after, of the images `ids` and of the centres."""

    coarse: str
    ids: Ids
    kinds: tuple[NDArray[np.int32], NDArray[np.int32]]
    junk: tuple[NDArray[np.bool_], NDArray[np.bool_]]
    groups: tuple[CoarseClass, CoarseClass]


@dataclass(frozen=True, eq=False)
class Done:
    """An edit that was applied: its text and its steps."""

    text: str
    steps: tuple[Step, ...]


class Editor:
    """Kinds that change; images are named by their row in `Kinds.rows`.

    Attributes:
        paths: [N] of the images; coarse: [N] place of their class in `groups`.
        kind: [N] codes, see `name_of`; junk: [N].
        groups: the classes with their centres.
        members: rows of each class.
        versions: of each class, counting its changes.
    """

    def __init__(self, kinds: Kinds, embedded: Embedded) -> None:
        rows = kinds.rows
        self.paths = [row.path for row in rows]
        self.groups: dict[str, CoarseClass] = dict(kinds.classes)
        self.spread = kinds.spread
        number = {name: place for place, name in enumerate(self.groups)}
        self.coarse = np.array([number[row.coarse] for row in rows], dtype=np.int64)
        self.members = {name: np.flatnonzero(self.coarse == place) for name, place in number.items()}
        self._names, self._codes = [""], {"": NO_KIND}
        self.kind = np.array([self.code(row.kind) for row in rows], dtype=np.int32)
        self.junk = np.array([row.role == "junk" for row in rows], dtype=bool)
        self._confidence = np.array(
            [np.nan if row.confidence is None else row.confidence for row in rows], dtype=np.float64
        )
        roles = {name: place for place, name in enumerate(ROLES)}
        self._role = np.array([roles[row.role] for row in rows], dtype=np.uint8)
        self._vectors, self._vector_of = embedded.vectors, _places(self.paths, embedded.paths)
        self._points: dict[str, Floats] = {}
        self._rank: dict[str, Ids] = {}
        self._stale: set[str] = set()
        self.versions = dict.fromkeys(self.groups, 0)
        self._done: list[Done] = []
        self._undone: list[Done] = []

    # ---- what is there

    def code(self, name: str) -> int:
        """Return the number by which `kind` names this kind."""
        if name not in self._codes:
            self._codes[name] = len(self._names)
            self._names.append(name)
        return self._codes[name]

    def name_of(self, code: int) -> str:
        """Return the name of a kind by its code."""
        return self._names[code]

    def kinds_of(self, coarse: str) -> dict[str, int]:
        """Return the kinds of a class with their sizes, junk not counted, from the largest."""
        self._check_class(coarse)
        rows = self.members[coarse]
        codes = self.kind[rows[~self.junk[rows]]]
        sizes = np.bincount(codes, minlength=1)
        sizes[NO_KIND] = 0
        order = sorted(np.flatnonzero(sizes).tolist(), key=lambda code: (-sizes[code], self._names[code]))
        return {self._names[code]: int(sizes[code]) for code in order}

    def judged(self) -> tuple[NDArray[np.float64], NDArray[np.uint8]]:
        """Return confidence [N], NaN for none, and roles [N], places in `ROLES`, of the newest state."""
        for name in sorted(self._stale):
            self._judge(name)
        self._stale.clear()
        return self._confidence, self._role

    def group(self, coarse: str) -> CoarseClass:
        """Return a class with the centres of the kinds that have images; one stays in any case."""
        group = self.groups[coarse]
        sizes = self.kinds_of(coarse)
        kept = [place for place, kind in enumerate(group.kinds) if kind in sizes] or [0]
        if len(kept) == len(group.kinds):
            return group
        return replace(group, centres=group.centres[kept], kinds=tuple(group.kinds[place] for place in kept))

    def kinds(self) -> Kinds:
        """Return the newest state."""
        groups = {name: self.group(name) for name in self.groups}
        return Kinds(groups, tuple(self.snapshot().rows()), self.spread)

    def snapshot(self) -> Snapshot:
        """Copy the newest state of every image."""
        confidence, role = self.judged()
        return Snapshot(
            self.paths,
            tuple(self.groups),
            tuple(self._names),
            self.coarse,
            self.kind.copy(),
            confidence.copy(),
            role.copy(),
        )

    # ---- edits

    @property
    def last_edit(self) -> str | None:
        """What the edit said that `undo` would take back."""
        return self._done[-1].text if self._done else None

    @property
    def can_redo(self) -> bool:
        """Whether an edit was taken back and nothing was changed since."""
        return bool(self._undone)

    def plan(self, asked: Asked) -> Edit:
        """Check an edit against the newest state; a split is computed.

        Raises:
            GoneError: what it names is not there.
            UsageError: it would change nothing, or cannot be done.
        """
        if isinstance(asked, Split):
            return self._parts(asked)
        self._resolved(asked)
        return asked

    def apply(self, edit: Edit) -> str:
        """Apply a planned edit; return what it changed."""
        moved, junk, dropped = self._resolved(edit)
        steps = tuple(
            self._step(name, moved.get(name, {}), junk.get(name, {}), dropped)
            for name in self.groups
            if name in moved or name in junk
        )
        done = Done(self._text(edit, steps), steps)
        self._done.append(done)
        self._undone.clear()
        return done.text

    def undo(self) -> str:
        """Take back the newest edit."""
        if not self._done:
            raise GoneError("there is nothing to undo")
        done = self._done.pop()
        for step in reversed(done.steps):
            self._set(step, 0)
        self._undone.append(done)
        return f"undone: {done.text}"

    def redo(self) -> str:
        """Apply again what was undone last."""
        if not self._undone:
            raise GoneError("there is nothing to redo")
        done = self._undone.pop()
        for step in done.steps:
            self._set(step, 1)
        self._done.append(done)
        return f"redone: {done.text}"

    # ---- how

    def _resolved(
        self, edit: Edit
    ) -> tuple[dict[str, dict[int, Ids]], dict[str, dict[bool, Ids]], str | None]:
        """Return class -> code -> images, class -> junk or not -> images, and the kind whose centres go."""
        if isinstance(edit, Rename):
            edit = Merge(coarse=edit.coarse, kinds=[edit.kind], to=edit.to)
        if isinstance(edit, Merge):
            found = [self._rows_of(edit.coarse, kind) for kind in dict.fromkeys(edit.kinds)]
            ids = np.sort(np.concatenate(found))
            ids = ids[self.kind[ids] != self.code(edit.to)]
            self._check_some(ids, f"all images of {edit.coarse}/{edit.kinds[0]} are called {edit.to} already")
            return {edit.coarse: {self.code(edit.to): ids}}, {}, None
        if isinstance(edit, Move):
            ids = self._ids(edit.ids)
            classes = np.unique(self.coarse[ids]).tolist()
            if len(classes) > 1:
                names = list(self.groups)
                raise UsageError(
                    f"the images belong to {names[classes[0]]} and {names[classes[1]]}; a kind belongs to one coarse "
                    "class: move those of one class at a time"
                )
            ids = ids[self.kind[ids] != self.code(edit.to)]
            self._check_some(ids, f"all of these images are in {edit.to} already")
            return {list(self.groups)[classes[0]]: {self.code(edit.to): ids}}, {}, None
        if isinstance(edit, Junk | Restore):
            ids = self._ids(edit.ids)
            is_junk = isinstance(edit, Junk)
            ids = ids[self.junk[ids] != is_junk]
            self._check_some(
                ids, "all of these images are junk already" if is_junk else "none of these images is junk"
            )
            return {}, {name: {is_junk: part} for name, part in self._by_class(ids).items()}, None
        if isinstance(edit, Parts):
            self._check_class(edit.coarse)
            return (
                {edit.coarse: {self.code(to): self._ids(ids) for to, ids in edit.new.items()}},
                {},
                edit.kind,
            )
        moved = {
            name: {self.code(kind): self._ids(ids) for kind, ids in kinds.items()}
            for name, kinds in edit.moved.items()
        }
        junk: dict[str, dict[bool, Ids]] = {}
        for is_junk, listed in ((True, edit.junk), (False, edit.restored)):
            for name, part in self._by_class(self._ids(listed)).items():
                junk.setdefault(name, {})[is_junk] = part
        return moved, junk, None

    def _parts(self, asked: Split) -> Parts:
        rows = self._rows_of(asked.coarse, asked.kind)
        rows = rows[~self.junk[rows] & (self._vector_of[rows] >= 0)]
        self._check_some(rows, f"{asked.coarse}/{asked.kind} has no image that is not junk")
        _, labels = split_points(
            self._class_points(asked.coarse)[np.searchsorted(self.members[asked.coarse], rows)],
            [self.paths[row] for row in rows.tolist()],
            asked.parts,
            self.spread,
            f"{asked.coarse}/{asked.kind}",
        )
        order = np.argsort(-np.bincount(labels), kind="stable")[1:]  # the largest keeps its name
        taken = {self._names[code] for code in np.unique(self.kind[self.members[asked.coarse]]).tolist()}
        free = free_numbers(taken | set(self.groups[asked.coarse].kinds))
        new = {next(free): rows[labels == label].tolist() for label in order}
        return Parts(coarse=asked.coarse, kind=asked.kind, new=new)

    def _step(
        self, name: str, moved: Mapping[int, Ids], junk: Mapping[bool, Ids], dropped: str | None
    ) -> Step:
        ids = np.unique(np.concatenate([*moved.values(), *junk.values()]))
        before, group = self.kind[self.members[name]], self.groups[name]
        kinds, flags = self.kind[ids], self.junk[ids]
        for code, part in moved.items():
            self.kind[part] = code
        for flag, part in junk.items():
            self.junk[part] = flag
        if moved:
            self.groups[name] = self._followed(name, before, dropped)
        self._touch(name)
        return Step(name, ids, (kinds, self.kind[ids]), (flags, self.junk[ids]), (group, self.groups[name]))

    def _set(self, step: Step, side: int) -> None:
        self.kind[step.ids], self.junk[step.ids] = step.kinds[side], step.junk[side]
        self.groups[step.coarse] = step.groups[side]
        self._touch(step.coarse)

    def _touch(self, name: str) -> None:
        self._stale.add(name)
        self.versions[name] += 1

    def _followed(self, name: str, before: NDArray[np.int32], dropped: str | None) -> CoarseClass:
        """Let the centres of a class follow its images; those of a kind that was split become the parts' means."""
        group, rows = self.groups[name], self.members[name]
        now, used = self.kind[rows], ~self.junk[rows]
        pairs, counts = np.unique(
            np.stack([before[used & (now != NO_KIND)], now[used & (now != NO_KIND)]]),
            axis=1,
            return_counts=True,
        )
        flows = {
            (self._names[was], self._names[is_now]): count
            for was, is_now, count in zip(*pairs.tolist(), counts.tolist(), strict=True)
        }
        kept = [place for place, kind in enumerate(group.kinds) if kind != dropped]
        names = follow_names([group.kinds[place] for place in kept], flows)
        centres = [group.centres[kept]]
        known = self._vector_of[rows] >= 0
        for new in sorted({kind for _, kind in flows} - set(names)):
            own = used & known & (now == self._codes[new])
            if own.any():
                points = self._class_points(name)[own]
                centres.append(points.astype(np.float64).mean(0, keepdims=True).astype(np.float32))
                names.append(new)
        if not names:
            return group
        return replace(group, centres=np.concatenate(centres).astype(np.float32), kinds=tuple(names))

    def _judge(self, name: str) -> None:
        rows, group = self.members[name], self.group(name)
        kinds = {kind: place for place, kind in enumerate(dict.fromkeys(group.kinds))}
        place_of = np.full(len(self._names), -1, dtype=np.int64)
        for kind, place in kinds.items():
            place_of[self.code(kind)] = place
        if name not in self._rank:
            self._rank[name] = ranks([self.paths[row] for row in rows.tolist()])
        self._confidence[rows], self._role[rows] = judge_rows(
            distances(self._class_points(name), group.centres),
            np.array([kinds[kind] for kind in group.kinds], dtype=np.int64),
            place_of[self.kind[rows]],
            self._rank[name],
            self.junk[rows],
        )

    def _class_points(self, name: str) -> Floats:
        """Project the images of a class onto its axes, [n, A]; an image without an embedding is at the centre."""
        if name not in self._points:
            places = self._vector_of[self.members[name]]
            points = self.groups[name].space.project(self._vectors[np.maximum(places, 0)])
            points[places < 0] = 0
            self._points[name] = points.astype(np.float32)
        return self._points[name]

    def _rows_of(self, coarse: str, kind: str) -> Ids:
        self._check_class(coarse)
        rows = self.members[coarse]
        found: Ids = rows[self.kind[rows] == self._codes.get(kind, -1)]
        if not len(found) or not kind:
            raise GoneError(f"there is no kind {kind!r} in {coarse!r} (any more)")
        return found

    def _check_class(self, coarse: str) -> None:
        if coarse not in self.groups:
            raise GoneError(f"there is no coarse class {coarse!r}")

    def _check_some(self, ids: Ids, why: str) -> None:
        if not len(ids):
            raise GoneError(why)

    def _ids(self, ids: Iterable[int]) -> Ids:
        found = np.unique(np.array(list(ids), dtype=np.int64))
        if len(found) and found[-1] >= len(self.paths):
            raise UsageError(f"there is no image {found[-1]}; the last is {len(self.paths) - 1}")
        return found

    def _by_class(self, ids: Ids) -> dict[str, Ids]:
        names = list(self.groups)
        return {
            names[place]: ids[self.coarse[ids] == place] for place in np.unique(self.coarse[ids]).tolist()
        }

    def _text(self, edit: Edit, steps: Sequence[Step]) -> str:
        changes: list[Change] = []
        for step in steps:
            number = len(step.ids)
            was = tuple(self._names[code] for code in dict.fromkeys(step.kinds[0].tolist()))
            if isinstance(edit, Rename):
                total = int((self.kind[self.members[step.coarse]] == self._codes[edit.to]).sum())
                existed = total > number
                changes.append(Change(step.coarse, "merged" if existed else "renamed", number, was, edit.to))
            elif isinstance(edit, Merge):
                changes.append(Change(step.coarse, "merged", number, was, edit.to))
            elif isinstance(edit, Move):
                changes.append(Change(step.coarse, "moved", number, was, edit.to))
            elif isinstance(edit, Junk | Restore):
                changes.append(Change(step.coarse, "junk" if isinstance(edit, Junk) else "restored", number))
        if isinstance(edit, Parts):
            sizes = self.kinds_of(edit.coarse)
            parts = " and ".join(f"{name} ({sizes.get(name, 0):,})" for name in (edit.kind, *edit.new))
            return f"{edit.coarse}: split {edit.kind} into {parts}"
        if isinstance(edit, Take):
            return f"took over kinds.csv: {counted(sum(len(step.ids) for step in steps), 'image')} changed"
        return "; ".join(str(change) for change in changes)


def _places(paths: Sequence[str], among: Sequence[str]) -> Ids:
    """Return the place [N] of each path among others, -1 where it is not there."""
    if list(paths) == list(among):
        return np.arange(len(paths))
    place = {path: number for number, path in enumerate(among)}
    return np.array([place.get(path, -1) for path in paths], dtype=np.int64)
