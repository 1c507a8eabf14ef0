"""Find the kinds of a dataset; give every image its kind, confidence and role.

Letters in shapes: N images, D embedding, A axes, K centres of a class.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from maskcon._utils.errors import DataError, UsageError, unknown
from maskcon._utils.text import counted
from maskcon.data.kinds_file import KindRow
from maskcon.discovery.clusters import (
    SAMPLE,
    Floats,
    Space,
    Suggestion,
    Tree,
    distances,
    fit_space,
    nearest,
    suggest,
)
from maskcon.discovery.roles import judge

Progress = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class Embedded:
    """Images of a dataset: paths [N], coarse labels [N], embeddings [N, D]."""

    paths: Sequence[str]
    coarse: Sequence[str]
    vectors: Floats

    def __post_init__(self) -> None:
        if not len(self.paths):
            raise DataError("there is no image to find kinds in")
        if not np.isfinite(self.vectors).all():
            raise DataError("the embeddings hold NaN or Inf; train again with a lower learning_rate")

    @cached_property
    def rows_of(self) -> dict[str, NDArray[np.int64]]:
        """Rows of each coarse class, sorted by its name."""
        rows: dict[str, list[int]] = {name: [] for name in sorted(set(self.coarse))}
        for row, name in enumerate(self.coarse):
            rows[name].append(row)
        return {name: np.array(own, dtype=np.int64) for name, own in rows.items()}


@dataclass(frozen=True, eq=False)
class CoarseClass:
    """A coarse class: centres [K, A] and the kind of each.

    Several centres may belong to one kind after edits.
    """

    name: str
    space: Space
    centres: Floats
    kinds: tuple[str, ...]
    suggestion: Suggestion
    stability: float | None  # None for one kind, and for too few images per kind


@dataclass(frozen=True, eq=False)
class Kinds:
    """The kinds of a dataset; rows in the order of its source.

    spread: see `clusters`; answered: paths of images that a person named, see `questions`.
    """

    classes: Mapping[str, CoarseClass]
    rows: tuple[KindRow, ...]
    spread: float
    answered: frozenset[str] = frozenset()

    def known(self) -> dict[str, KindRow]:
        """Map each path to its row."""
        return {row.path: row for row in self.rows}


@dataclass(frozen=True)
class Wanted:
    """Requested numbers of kinds: for every class, or by class; scale: see `suggest`."""

    every: int | None = None
    by_class: Mapping[str, int] | None = None
    scale: float = 1.0

    def number_of(self, name: str) -> int | None:
        """Return the number requested for a class; None: as many as suggested."""
        return (self.by_class or {}).get(name, self.every)


def find_kinds(
    embedded: Embedded,
    wanted: Wanted | None = None,
    *,
    junk: Iterable[str] = (),
    progress: Progress | None = None,
) -> Kinds:
    """Find the kinds of every coarse class, in whatever order its images come.

    Args:
        wanted: numbers to use instead of those suggested.
        junk: paths to leave out; they get the nearest kind.
        progress: called as progress(classes done, classes).

    Raises:
        UsageError: a class cannot have the requested number.

    Example:
        >>> random = np.random.default_rng(0)
        >>> vectors = 0.3 * random.standard_normal((200, 64)) + 5 * np.eye(64)[np.arange(200) % 2]
        >>> found = find_kinds(Embedded([f"{n}.jpg" for n in range(200)], ["cat"] * 200, vectors))
        >>> found.classes["cat"].kinds, found.rows[0].kind == found.rows[2].kind != found.rows[1].kind
        (('kind 1', 'kind 2'), True)
    """
    wanted = wanted or Wanted()
    junk = frozenset(junk)
    names = list(embedded.rows_of)
    for name in wanted.by_class or ():
        if name not in names:
            raise unknown("coarse class", name, names)
    with threadpool_limits(1):  # sums in one order: the same kinds for any number of threads
        samples = {name: sample_rows(embedded, name, junk) for name in names}
        spaces = {name: fit_space(embedded.vectors[rows]) for name, rows in samples.items()}
        trees = {
            name: Tree(space.project(embedded.vectors[samples[name]]).astype(np.float64))
            for name, space in spaces.items()
        }
        spread = typical_spread(tree.spread for tree in trees.values())
        classes = {}
        for number, name in enumerate(names):
            if progress is not None:
                progress(number, len(names))
            suggestion = suggest(trees[name], spread, wanted.scale)
            kinds = _number(name, trees[name], suggestion, wanted)
            classes[name] = split_class(name, spaces[name], trees[name], suggestion, kinds)
        if progress is not None:
            progress(len(names), len(names))
        return with_rows(classes, embedded, {}, junk, spread, by_size=True)


def typical_spread(spreads: Iterable[float]) -> float:
    """Return the mean spread of the classes that have any."""
    varied = [spread for spread in spreads if spread > 0]
    return float(np.mean(varied)) if varied else 0.0


def with_rows(
    classes: Mapping[str, CoarseClass],
    embedded: Embedded,
    kind_of: Mapping[str, str],
    junk: Iterable[str],
    spread: float,
    *,
    by_size: bool = False,
) -> Kinds:
    """Give every image its kind, confidence and role.

    Args:
        kind_of: path -> kind, where it is known; other images get the nearest kind.
        by_size: number the kinds anew, the largest first.
    """
    junk = frozenset(junk)
    rows: list[KindRow | None] = [None] * len(embedded.paths)
    done = {}
    for name, group in classes.items():
        own = embedded.rows_of[name]
        points = group.space.project(embedded.vectors[own])
        paths = [embedded.paths[row] for row in own.tolist()]
        near = nearest(points, group.centres).tolist()
        is_junk = [path in junk for path in paths]
        found = [kind_of.get(path, group.kinds[place]) for path, place in zip(paths, near, strict=True)]
        if by_size:
            group, found = _numbered(group, found, is_junk)
        group = _without_empty(group, found, is_junk)
        confidence, roles = judge(distances(points, group.centres), group.kinds, found, paths, is_junk)
        for row, path, kind, sure, role in zip(own.tolist(), paths, found, confidence, roles, strict=True):
            rows[row] = KindRow(path, name, kind, sure, role)
        done[name] = group
    return Kinds(done, tuple(row for row in rows if row is not None), spread)


def sample_rows(embedded: Embedded, name: str, junk: frozenset[str]) -> NDArray[np.int64]:
    """Choose at most SAMPLE rows of a class, in the order of their paths' hashes."""
    rows = embedded.rows_of[name]
    used = np.array([row for row in rows.tolist() if embedded.paths[row] not in junk], dtype=np.int64)
    if not len(used):
        used = rows  # nothing but junk: one kind of all
    return used[by_hash([embedded.paths[row] for row in used.tolist()])]


def by_hash(paths: Sequence[str]) -> NDArray[np.int64]:
    """Choose at most SAMPLE places in the order of the hashes of their paths."""
    hashes = [hashlib.sha256(path.encode("utf-8", "surrogatepass")).digest() for path in paths]
    return np.array(sorted(range(len(paths)), key=hashes.__getitem__)[:SAMPLE], dtype=np.int64)


def _number(name: str, tree: Tree, suggestion: Suggestion, wanted: Wanted) -> int:
    given = wanted.number_of(name)
    if given is None:
        return suggestion.kinds
    if given < 1:
        raise UsageError(f"--kinds {given}: a class has at least 1 kind")
    if name in (wanted.by_class or {}) and given > tree.most:
        different = counted(tree.most, "different image")
        raise UsageError(f"--kinds {name}={given}: {name} has only {different}; give at most {tree.most}")
    return min(given, tree.most)


def split_class(name: str, space: Space, tree: Tree, suggestion: Suggestion, kinds: int) -> CoarseClass:
    centres, labels = tree.split(kinds)
    stability = tree.stability(labels) if len(centres) > 1 else None
    names = tuple(f"kind {place + 1}" for place in range(len(centres)))
    return CoarseClass(name, space, centres.astype(np.float32), names, suggestion, stability)


def _numbered(
    group: CoarseClass, found: Sequence[str], is_junk: Sequence[bool]
) -> tuple[CoarseClass, list[str]]:
    """Number kinds by size; equal sizes keep their order."""
    sizes = Counter(kind for kind, junk in zip(found, is_junk, strict=True) if not junk)
    order = sorted(range(len(group.kinds)), key=lambda place: -sizes[group.kinds[place]])
    names = {group.kinds[place]: f"kind {number + 1}" for number, place in enumerate(order)}
    ordered = replace(group, centres=group.centres[order], kinds=tuple(names[group.kinds[i]] for i in order))
    return ordered, [names[kind] for kind in found]


def _without_empty(group: CoarseClass, found: Sequence[str], is_junk: Sequence[bool]) -> CoarseClass:
    """Drop the centres of kinds without an image; one stays for new images."""
    used = {kind for kind, junk in zip(found, is_junk, strict=True) if not junk}
    return select_centres(group, [place for place, kind in enumerate(group.kinds) if kind in used] or [0])


def select_centres(group: CoarseClass, places: Sequence[int]) -> CoarseClass:
    """Return a class with these of its centres."""
    return replace(
        group, centres=group.centres[list(places)], kinds=tuple(group.kinds[place] for place in places)
    )
