"""Edit kinds one change at a time, with unlimited undo and redo.

The time of an edit depends on the size of its class only. Centres follow their images as in `edits.apply_edits`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.errors import UsageError
from maskcon._utils.text import counted
from maskcon.discovery.columns import NO_KIND, Columns, GoneError, Ids
from maskcon.discovery.edit_kinds import (
    Edit,
    Junk,
    Keep,
    Merge,
    Move,
    Parts,
    Reject,
    Rename,
    Request,
    Restore,
    Split,
    Take,
)
from maskcon.discovery.edits import Change, follow_names
from maskcon.discovery.kinds import CoarseClass, Embedded, Kinds
from maskcon.discovery.revision import free_numbers, split_points


@dataclass(frozen=True, eq=False)
class Step:
    """One edit's change to a class: images `ids` and centres, before and after."""

    coarse: str
    ids: Ids
    kinds: tuple[NDArray[np.int32], NDArray[np.int32]]
    junk: tuple[NDArray[np.bool_], NDArray[np.bool_]]
    groups: tuple[CoarseClass, CoarseClass]


@dataclass(frozen=True, eq=False)
class Done:
    """An edit that was applied, its text and its steps."""

    edit: Edit
    text: str
    steps: tuple[Step, ...]


class Editor(Columns):
    """Kinds that change; images are named by their row in `Kinds.rows`."""

    def __init__(self, kinds: Kinds, embedded: Embedded) -> None:
        super().__init__(kinds, embedded)
        self._done: list[Done] = []
        self._undone: list[Done] = []

    @property
    def last_edit(self) -> str | None:
        """Text of the edit that `undo` would take back."""
        return self._done[-1].text if self._done else None

    def known(self) -> set[int]:
        """Return the rows of images whose kind a person gave: moved by hand, or kept."""
        moved = {row for done in self._done if isinstance(done.edit, Move) for row in done.edit.ids}
        return moved | self.kept("ask") | self.kept("outliers")

    def kinds_before(self) -> dict[int, str]:
        """Return the kind that each known image had before a person gave it one."""
        found = {row: self.name_of(int(self.kind[row])) for row in self.known() if not self.junk[row]}
        for done in reversed(self._done):
            for step in done.steps if isinstance(done.edit, Move) else ():
                before = zip(step.ids.tolist(), step.kinds[0].tolist(), strict=True)
                found |= {row: self.name_of(code) for row, code in before if row in found}
        return found

    def kept(self, queue: str) -> set[int]:
        """Return the rows of images that a person kept in this queue."""
        edits = (done.edit for done in self._done)
        return {row for edit in edits if isinstance(edit, Keep) and edit.queue == queue for row in edit.ids}

    def rejected(self, kind: str) -> set[int]:
        """Return the rows of images that a person rejected for this kind."""
        edits = (done.edit for done in self._done)
        return {row for edit in edits if isinstance(edit, Reject) and edit.kind == kind for row in edit.ids}

    @property
    def can_redo(self) -> bool:
        """Whether an edit was taken back and nothing was changed since."""
        return bool(self._undone)

    def kinds(self) -> Kinds:
        """Return the newest state; images whose kind a person gave count as answered."""
        kinds = super().kinds()
        known = {self.paths[row] for row in self.known() if not self.junk[row]}
        return replace(kinds, answered=kinds.answered | known)

    def plan(self, request: Request) -> Edit:
        """Check an edit against the newest state; compute a split.

        Raises:
            GoneError: what it names is not there.
            UsageError: it would change nothing, or cannot be done.
        """
        if isinstance(request, Split):
            return self._parts(request)
        self._resolved(request)
        return request

    def apply(self, edit: Edit) -> str:
        """Apply a planned edit; return what it changed."""
        moved, junk, dropped = self._resolved(edit)
        steps = tuple(
            self._step(name, moved.get(name, {}), junk.get(name, {}), dropped)
            for name in self.groups
            if name in moved or name in junk
        )
        done = Done(edit, self._text(edit, steps), steps)
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

    def _resolved(
        self, edit: Edit
    ) -> tuple[dict[str, dict[int, Ids]], dict[str, dict[bool, Ids]], str | None]:
        """Return what an edit changes.

        Class -> code -> images; class -> is junk -> images; the kind whose centres are dropped.
        """
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
        if isinstance(edit, Keep | Reject):
            self._ids(edit.ids)
            return {}, {}, None
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

    def _parts(self, split: Split) -> Parts:
        rows = self._rows_of(split.coarse, split.kind)
        rows = rows[~self.junk[rows] & (self._vector_of[rows] >= 0)]
        self._check_some(rows, f"{split.coarse}/{split.kind} has no image that is not junk")
        _, labels = split_points(
            self._class_points(split.coarse)[np.searchsorted(self.members[split.coarse], rows)],
            [self.paths[row] for row in rows.tolist()],
            split.parts,
            self.spread,
            f"{split.coarse}/{split.kind}",
        )
        order = np.argsort(-np.bincount(labels), kind="stable")[1:]  # the largest keeps its name
        taken = {self._names[code] for code in np.unique(self.kind[self.members[split.coarse]]).tolist()}
        free = free_numbers(taken | set(self.groups[split.coarse].kinds))
        new = {next(free): rows[labels == label].tolist() for label in order}
        return Parts(coarse=split.coarse, kind=split.kind, new=new)

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

    def _followed(self, name: str, before: NDArray[np.int32], dropped: str | None) -> CoarseClass:
        """Return a class whose centres follow its images; `dropped` loses its own."""
        group, rows = self.groups[name], self.members[name]
        now, used = self.kind[rows], ~self.junk[rows]
        named = used & (now != NO_KIND)
        pairs = (
            before[named].astype(np.int64) * len(self._names) + now[named]
        )  # one number is faster to count
        flows = {
            (self._names[pair // len(self._names)], self._names[pair % len(self._names)]): count
            for pair, count in zip(
                *(part.tolist() for part in np.unique(pairs, return_counts=True)), strict=True
            )
        }
        kept = [place for place, kind in enumerate(group.kinds) if kind != dropped]
        names = follow_names([group.kinds[place] for place in kept], flows)
        centres = [group.centres[kept]]
        known = self._vector_of[rows] >= 0
        for new in sorted({kind for _, kind in flows} - set(names)):
            own = used & known & (now == self._codes[new])
            if own.any():
                points = self._projected(name, rows[own])
                centres.append(points.astype(np.float64).mean(0, keepdims=True).astype(np.float32))
                names.append(new)
        if not names:
            return group
        return replace(group, centres=np.concatenate(centres).astype(np.float32), kinds=tuple(names))

    def _rows_of(self, coarse: str, kind: str) -> Ids:
        self._check_class(coarse)
        rows = self.members[coarse]
        found: Ids = rows[self.kind[rows] == self.code_of(kind)]
        if not len(found) or not kind:
            raise GoneError(f"there is no kind {kind!r} in {coarse!r} (any more)")
        return found

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
        if isinstance(edit, Keep | Reject):
            images = counted(len(edit.ids), "image")
            if isinstance(edit, Reject):
                return f"{images} not in {edit.kind}"
            names = {self.name_of(code) for code in self.kind[edit.ids].tolist()}
            return f"kept {images} in {names.pop() or 'no kind'}" if len(names) == 1 else f"kept {images}"
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
            images = counted(sum(len(step.ids) for step in steps), "image")
            return f"took over {edit.of}: {images} changed"
        return "; ".join(str(change) for change in changes)
