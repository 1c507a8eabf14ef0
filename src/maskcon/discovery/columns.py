"""Hold the state of every image as columns.

Kind and junk are set; confidence and role are judged per class when they are read.

Letters in shapes: N images of the dataset, n of a class, K centres, A axes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.errors import UsageError
from maskcon.data.kinds_file import KindRow
from maskcon.discovery.clusters import Floats, distances
from maskcon.discovery.kinds import CoarseClass, Embedded, Kinds, select_centres
from maskcon.discovery.roles import ROLES, judge_rows, ranks

Ids = NDArray[np.int64]
NO_KIND = 0  # code of the empty name
BLOCK = 4096  # images whose vectors are copied at once


class GoneError(UsageError):
    """An edit names something that is not there, or no longer."""


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The state of every image at one moment, to be written while edits continue."""

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


class Columns:
    """The state of every image of some kinds, by its row in `Kinds.rows`.

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
        self.spread, self.answered = kinds.spread, kinds.answered
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

    def code(self, name: str) -> int:
        """Return the code of a kind in `kind`; a new name gets a new code."""
        if name not in self._codes:
            self._codes[name] = len(self._names)
            self._names.append(name)
        return self._codes[name]

    def code_of(self, name: str) -> int:
        """Return the code of a kind, -1 if no image ever had it."""
        return self._codes.get(name, -1)

    def name_of(self, code: int) -> str:
        """Return the name of a kind by its code."""
        return self._names[code]

    def kinds_of(self, coarse: str) -> dict[str, int]:
        """Return the kinds of a class with their sizes without junk, largest first."""
        self._check_class(coarse)
        rows = self.members[coarse]
        codes = self.kind[rows[~self.junk[rows]]]
        sizes = np.bincount(codes, minlength=1)
        sizes[NO_KIND] = 0
        order = sorted(np.flatnonzero(sizes).tolist(), key=lambda code: (-sizes[code], self._names[code]))
        return {self._names[code]: int(sizes[code]) for code in order}

    def judged(self) -> tuple[NDArray[np.float64], NDArray[np.uint8]]:
        """Return confidence [N], NaN for none, and roles [N] as places in `ROLES`."""
        for name in sorted(self._stale):
            self._judge(name)
        self._stale.clear()
        return self._confidence, self._role

    def group(self, coarse: str) -> CoarseClass:
        """Return a class with the centres of its non-empty kinds; at least one stays."""
        group = self.groups[coarse]
        sizes = self.kinds_of(coarse)
        places = [place for place, kind in enumerate(group.kinds) if kind in sizes] or [0]
        return group if len(places) == len(group.kinds) else select_centres(group, places)

    def kinds(self) -> Kinds:
        """Return the newest state."""
        groups = {name: self.group(name) for name in self.groups}
        return Kinds(groups, tuple(self.snapshot().rows()), self.spread, self.answered)

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

    def _touch(self, name: str) -> None:
        self._stale.add(name)
        self.versions[name] += 1

    def _check_class(self, coarse: str) -> None:
        if coarse not in self.groups:
            raise GoneError(f"there is no coarse class {coarse!r}")

    def _judge(self, name: str) -> None:
        rows, group = self.members[name], self.group(name)
        kinds = {kind: place for place, kind in enumerate(dict.fromkeys(group.kinds))}
        place_of = np.full(len(self._names), -1, dtype=np.int64)
        for kind, place in kinds.items():
            place_of[self.code(kind)] = place
        self._confidence[rows], self._role[rows] = judge_rows(
            distances(self._class_points(name), group.centres),
            np.array([kinds[kind] for kind in group.kinds], dtype=np.int64),
            place_of[self.kind[rows]],
            self._class_ranks(name),
            self.junk[rows],
        )

    def prepare(self, name: str) -> None:
        """Compute in advance what the first change of a class needs; thread-safe."""
        self._class_points(name)
        self._class_ranks(name)

    def _class_ranks(self, name: str) -> Ids:
        if name not in self._rank:
            self._rank[name] = ranks([self.paths[row] for row in self.members[name].tolist()])
        return self._rank[name]

    def _class_points(self, name: str) -> Floats:
        """Project a class onto its axes, [n, A]; zeros for images without embeddings."""
        if name not in self._points:
            self._points[name] = self._projected(name, self.members[name])
        return self._points[name]

    def _projected(self, name: str, rows: Ids) -> Floats:
        space, places = self.groups[name].space, self._vector_of[rows]
        points = np.zeros((len(rows), space.axes.shape[1]), dtype=np.float32)
        for start in range(0, len(rows), BLOCK):  # copies of all vectors would not fit
            part = places[start : start + BLOCK]
            points[start : start + BLOCK][part >= 0] = space.project(self._vectors[part[part >= 0]])
        return points


def _places(paths: Sequence[str], among: Sequence[str]) -> Ids:
    """Return the place [N] of each path among others, -1 where it is absent."""
    if list(paths) == list(among):
        return np.arange(len(paths))
    place = {path: number for number, path in enumerate(among)}
    return np.array([place.get(path, -1) for path in paths], dtype=np.int64)
