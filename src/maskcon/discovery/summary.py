"""Summarise the kinds of each class for kinds.json, contact sheets and report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from maskcon.data.kinds_file import KindRow
from maskcon.discovery.clusters import PRICE, distances
from maskcon.discovery.kinds import CoarseClass, Kinds

TYPICAL_SHOWN, BORDERLINE_SHOWN = 8, 4


@dataclass(frozen=True)
class KindSummary:
    """One kind.

    Attributes:
        size: number of images without junk.
        confused_with: the kind with the nearest centre; None in a class of one kind.
        confidence: mean over its images.
        typical, borderline: paths to show, the most typical and the least certain first.
    """

    name: str
    size: int
    confused_with: str | None
    confidence: float | None
    typical: tuple[str, ...]
    borderline: tuple[str, ...]


@dataclass(frozen=True)
class ClassSummary:
    """One coarse class, its largest kind first; see `clusters.Suggestion`."""

    coarse: str
    images: int
    junk: int
    suggested: int
    price: float
    coarser: int
    finer: int
    reason: str
    evidence: float | None
    stability: float | None
    curve: tuple[tuple[int, float], ...]
    kinds: tuple[KindSummary, ...]

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values; the curve as {kinds, price} each."""
        record = asdict(self)
        record["curve"] = [{"kinds": kinds, "price": price} for kinds, price in self.curve]
        return record


def summarise(kinds: Kinds) -> list[ClassSummary]:
    """Summarise every coarse class."""
    rows: dict[str, list[KindRow]] = {name: [] for name in kinds.classes}
    for row in kinds.rows:
        rows[row.coarse].append(row)
    return [_class(group, rows[name]) for name, group in kinds.classes.items()]


def criterion(spread: float) -> dict[str, Any]:
    """State the criterion by which numbers of kinds are suggested, as JSON values."""
    text = (
        "kinds = 1 + #(merges of the Ward tree whose increase of the within sum of squares > price * spread)"
    )
    return {"formula": text, "usual_price": PRICE, "spread": spread}


def _class(group: CoarseClass, rows: Sequence[KindRow]) -> ClassSummary:
    used = [row for row in rows if row.role != "junk"]
    suggestion = group.suggestion
    summaries = [_kind(group, name, used) for name in dict.fromkeys(group.kinds)]
    return ClassSummary(
        coarse=group.name,
        images=len(used),
        junk=len(rows) - len(used),
        suggested=suggestion.kinds,
        price=suggestion.price,
        coarser=suggestion.coarser,
        finer=suggestion.finer,
        reason=suggestion.reason,
        evidence=None if suggestion.evidence is None else round(suggestion.evidence, 2),
        stability=None if group.stability is None else round(group.stability, 3),
        curve=tuple(enumerate(suggestion.curve, start=2)),
        kinds=tuple(sorted(summaries, key=lambda kind: -kind.size)),
    )


def _kind(group: CoarseClass, name: str, used: Sequence[KindRow]) -> KindSummary:
    own = sorted(
        (row for row in used if row.kind == name), key=lambda row: (-(row.confidence or 0), row.path)
    )
    sure = [row.confidence for row in own if row.confidence is not None]
    typical = [row.path for row in own if row.role == "typical"]
    borderline = [row.path for row in reversed(own) if row.role == "borderline"]
    return KindSummary(
        name,
        len(own),
        confused_with(group, name),
        round(float(np.mean(sure)), 3) if sure else None,
        tuple(typical[:TYPICAL_SHOWN]),
        tuple(borderline[:BORDERLINE_SHOWN]),
    )


def confused_with(group: CoarseClass, name: str) -> str | None:
    """Return the kind with the nearest centre; None in a class of one kind."""
    own = [place for place, kind in enumerate(group.kinds) if kind == name]
    others = [place for place, kind in enumerate(group.kinds) if kind != name]
    if not others:
        return None
    between = distances(group.centres[own], group.centres[others]).min(0)
    return group.kinds[others[int(between.argmin())]]
