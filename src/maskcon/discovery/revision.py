"""Revise kinds: add images, split a kind, find kinds anew with the old names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from maskcon._utils.errors import UsageError, unknown
from maskcon._utils.text import counted
from maskcon.data.kinds_file import KindRow
from maskcon.discovery.clusters import PRICE, Floats, Tree, fit_space, nearest, suggest
from maskcon.discovery.kinds import (
    CoarseClass,
    Embedded,
    Kinds,
    Progress,
    Wanted,
    by_hash,
    find_kinds,
    sample_rows,
    select_centres,
    split_class,
    with_rows,
)


def add_images(before: Kinds, embedded: Embedded) -> Kinds:
    """Assign added images to the kinds, and drop images that are gone.

    Known images keep their kinds. A new coarse class gets kinds of its own at the same price.
    """
    known = before.known()
    classes = dict(before.classes)
    for name in sorted(set(embedded.coarse) - set(classes)):
        rows = embedded.rows_of[name]
        alone = Embedded([embedded.paths[row] for row in rows], [name] * len(rows), embedded.vectors[rows])
        with threadpool_limits(1):
            sample = sample_rows(alone, name, frozenset())
            space = fit_space(alone.vectors[sample])
            tree = Tree(space.project(alone.vectors[sample]).astype(np.float64))
            suggestion = suggest(tree, before.spread or tree.spread)
            group = split_class(name, space, tree, suggestion, suggestion.kinds)
            classes[name] = with_rows({name: group}, alone, {}, (), before.spread, by_size=True).classes[name]
    same = [
        known[path]
        for path, coarse in zip(embedded.paths, embedded.coarse, strict=True)
        if path in known and known[path].coarse == coarse
    ]
    present = set(embedded.coarse)
    after = with_rows(
        {name: group for name, group in sorted(classes.items()) if name in present},
        embedded,
        {row.path: row.kind for row in same},
        {row.path for row in same if row.role == "junk"},
        before.spread,
    )
    return replace(after, answered=before.answered & {row.path for row in same})


def split_kind(before: Kinds, embedded: Embedded, which: str) -> tuple[Kinds, str, list[str]]:
    """Split one kind in two, or in as many as the price tells apart.

    Args:
        before: kinds of exactly these images.
        which: `apple/3` or `apple/Golden Delicious`; `apple/3=4` requests four parts.

    Returns:
        The new state, the coarse class, and the kinds that the kind was split into; the largest keeps its name.
    """
    group, kind, parts = _find_kind(before, which)
    known = before.known()
    own = [
        row
        for row in embedded.rows_of[group.name].tolist()
        if known[embedded.paths[row]].kind == kind and known[embedded.paths[row]].role != "junk"
    ]
    points = group.space.project(embedded.vectors[own])
    centres, labels = split_points(
        points, [embedded.paths[row] for row in own], parts, before.spread, f"{group.name}/{kind}"
    )
    free = free_numbers({row.kind for row in before.rows if row.coarse == group.name})
    order = np.argsort(-np.bincount(labels, minlength=len(centres)), kind="stable")
    names = {int(label): kind if place == 0 else next(free) for place, label in enumerate(order)}
    others = select_centres(group, [place for place, name in enumerate(group.kinds) if name != kind])
    after = replace(
        group,
        centres=np.concatenate([others.centres, centres.astype(group.centres.dtype)]),
        kinds=(*others.kinds, *(names[label] for label in range(len(centres)))),
    )
    kind_of = {row.path: row.kind for row in before.rows}
    kind_of |= {embedded.paths[row]: names[label] for row, label in zip(own, labels.tolist(), strict=True)}
    junk = {row.path for row in before.rows if row.role == "junk"}
    done = with_rows({**before.classes, group.name: after}, embedded, kind_of, junk, before.spread)
    done = replace(done, answered=before.answered)
    return done, group.name, [names[int(label)] for label in order]


def split_points(
    points: Floats, paths: Sequence[str], parts: int | None, spread: float, name: str
) -> tuple[Floats, NDArray[np.int64]]:
    """Split images by their points [N, A].

    Args:
        parts: None: as many as the price tells apart, at least two.
        name: of what is split, for messages.

    Returns:
        Centres [K, A] and the part of each image [N].

    Raises:
        UsageError: there are fewer different images than parts.
    """
    wide = points.astype(np.float64)
    with threadpool_limits(1):
        tree = Tree(wide[by_hash(paths)])
        if tree.most < max(2, parts or 2):
            different = counted(tree.most, "different image")
            raise UsageError(f"{name} has {different}: it cannot be split in {max(2, parts or 2)}")
        centres, _ = tree.split(parts or max(2, tree.count(PRICE * max(spread, tree.spread / 2))))
    return centres, nearest(wide, centres)


def refind_kinds(
    before: Kinds, embedded: Embedded, wanted: Wanted | None = None, progress: Progress | None = None
) -> Kinds:
    """Find kinds anew; each gets the name of the kind that it overlaps most with.

    If `wanted` gives numbers for some classes only, the others keep their kinds. Junk stays junk, and images that a
    person named keep their kind.
    """
    known = before.known()
    junk = {row.path for row in before.rows if row.role == "junk"}
    found = find_kinds(embedded, wanted, junk=junk, progress=progress)
    named = wanted.by_class if wanted is not None and wanted.every is None else None
    only = set(named or found.classes) | set(found.classes) - set(before.classes)
    old = add_images(before, embedded) if only != set(found.classes) else found
    classes: dict[str, CoarseClass] = {}
    kind_of: dict[str, str] = {}
    for name in found.classes:
        source = found if name in only else old
        rows = [row for row in source.rows if row.coarse == name]
        names = {row.kind: row.kind for row in rows}
        if name in only:
            names = _overlapping_names(rows, known)
        classes[name] = replace(
            source.classes[name], kinds=tuple(names.get(kind, kind) for kind in source.classes[name].kinds)
        )
        kind_of |= {row.path: names[row.kind] for row in rows}
    answered = {path: known[path] for path in before.answered if path in kind_of}
    kind_of |= {path: row.kind for path, row in answered.items() if row.coarse in classes}
    after = with_rows(classes, embedded, kind_of, junk, found.spread)
    return replace(after, answered=frozenset(answered))


def _overlapping_names(rows: Sequence[KindRow], known: Mapping[str, KindRow]) -> dict[str, str]:
    """Map new kinds to the old ones they overlap most with, others to free numbers.

    Pairs are matched by the Hungarian method.

    A pair must share more than half of the smaller kind.
    """
    from scipy.optimize import linear_sum_assignment

    pairs = [
        (row.kind, known[row.path].kind)
        for row in rows
        if row.path in known and known[row.path].kind and known[row.path].coarse == row.coarse
    ]
    sizes = Counter(row.kind for row in rows)
    new = sorted(sizes, key=lambda kind: (-sizes[kind], kind))
    old = sorted({kind for _, kind in pairs})
    shared, old_sizes = Counter(pairs), Counter(kind for _, kind in pairs)
    table = np.array([[shared[a, b] for b in old] for a in new], dtype=np.int64).reshape(len(new), len(old))
    names = {}
    for i, j in zip(*linear_sum_assignment(-table), strict=True):
        if 2 * table[i, j] > min(sizes[new[i]], old_sizes[old[j]]):
            names[new[i]] = old[j]
    free = free_numbers(set(old))
    return {kind: names[kind] if kind in names else next(free) for kind in new}


def free_numbers(taken: set[str]) -> Iterator[str]:
    """Yield the unused names "kind 1", "kind 2", ... of a class."""
    return (f"kind {number}" for number in range(1, 10**9) if f"kind {number}" not in taken)


def _find_kind(before: Kinds, which: str) -> tuple[CoarseClass, str, int | None]:
    """Find the kind that `apple/3` or `apple/Golden` names, with or without `=N`."""
    for text, parts in _readings(which):
        for name, group in before.classes.items():
            if text.startswith(f"{name}/"):
                kind = text[len(name) + 1 :]
                for candidate in (kind, f"kind {kind}"):
                    if candidate in group.kinds:
                        return group, candidate, parts
    known = [
        f"{name}/{kind}" for name, group in before.classes.items() for kind in dict.fromkeys(group.kinds)
    ]
    raise unknown("kind", which, known)


def _readings(which: str) -> list[tuple[str, int | None]]:
    head, _, tail = which.rpartition("=")
    if head and tail.isdecimal():
        return [(which, None), (head, int(tail))]
    return [(which, None)]
