"""Data about the kinds for the page: classes, a kind and images as JSON values; labels as bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskcon.data.kinds_file import UNNAMED
from maskcon.discovery.columns import NO_KIND, GoneError
from maskcon.discovery.editor import Editor
from maskcon.discovery.roles import ROLES
from maskcon.discovery.summary import BORDERLINE_SHOWN, TYPICAL_SHOWN, confused_with

NO_NUMBER = 0xFFFF  # number of the kind of an image without one
TYPICAL, BORDERLINE, OUTLIER, JUNK, NO_ROLE = range(len(ROLES))
KNOWN = 128
SHOWN_ORDER = np.array([0, 2, 3, 4, 1])  # of the roles: typical, none, borderline, outlier, junk
MOST_NUMBERS = NO_NUMBER - 1


class PageData:
    """Describes the state of an editor, cached per class until the class changes. The caller holds its lock."""

    def __init__(self, editor: Editor) -> None:
        self._editor = editor
        self._classes: dict[str, tuple[int, dict[str, Any]]] = {}

    def classes(self) -> list[dict[str, Any]]:
        """Describe every class and its kinds, the largest kind first."""
        return [self._class(name) for name in self._editor.groups]

    def kind(self, coarse: str, kind: str) -> NDArray[np.int64]:
        """Return the images of a kind: the most typical first, then borderline ones, outliers and junk."""
        editor = self._editor
        if coarse not in editor.groups:
            raise GoneError(f"there is no coarse class {coarse!r}")
        rows = editor.members[coarse]
        rows = rows[editor.kind[rows] == editor.code_of(kind)]
        if not len(rows):
            raise GoneError(f"there is no kind {kind!r} in {coarse!r} (any more)")
        confidence, role = editor.judged()
        sure = np.nan_to_num(confidence[rows], nan=-1.0)
        shown: NDArray[np.int64] = rows[np.lexsort((rows, -sure, SHOWN_ORDER[role[rows]]))]
        return shown

    def images(self, rows: Sequence[int]) -> list[dict[str, Any]]:
        """Describe images by their row."""
        editor = self._editor
        confidence, role = editor.judged()
        names = list(editor.groups)
        return [
            {
                "id": row,
                "path": editor.paths[row],
                "coarse": names[editor.coarse[row]],
                "kind": editor.name_of(int(editor.kind[row])),
                "confidence": _rounded(float(confidence[row])),
                "role": ROLES[role[row]],
            }
            for row in rows
        ]

    def labels(self) -> bytes:
        """Return uint16 coarse [N], uint16 kind [N], uint8 confidence [N], uint8 role [N], little-endian.

        Where a person set the kind, the role also has the bit KNOWN.
        """
        editor = self._editor
        confidence, role = editor.judged()
        numbers = np.full(len(editor.paths), NO_NUMBER, dtype="<u2")
        first = 0
        for name in editor.groups:
            kinds = [kind["name"] for kind in self._class(name)["kinds"]]
            rows = editor.members[name]
            codes = editor.kind[rows]
            table = np.full(int(codes.max(initial=NO_KIND)) + 1, NO_NUMBER, dtype="<u2")
            for place, kind in enumerate(kinds):
                if editor.code(kind) < len(table):
                    table[editor.code(kind)] = min(first + place, MOST_NUMBERS)
            numbers[rows] = table[codes]
            first += len(kinds)
        sure = np.rint(np.nan_to_num(confidence) * 255).astype(np.uint8)
        role = role.copy()
        role[list(editor.known())] |= KNOWN
        return editor.coarse.astype("<u2").tobytes() + numbers.tobytes() + sure.tobytes() + role.tobytes()

    def _class(self, name: str) -> dict[str, Any]:
        version = self._editor.versions[name]
        known = self._classes.get(name)
        if known is None or known[0] != version:
            known = version, self._describe(name)
            self._classes[name] = known
        return known[1]

    def _describe(self, name: str) -> dict[str, Any]:
        editor, group = self._editor, self._editor.group(name)
        rows = editor.members[name]
        junk = int(editor.junk[rows].sum())
        suggestion = group.suggestion
        confidence, role = editor.judged()
        used = rows[~editor.junk[rows]]
        sure = np.nan_to_num(confidence[used], nan=-1.0)
        order = used[np.lexsort((used, -sure))]
        kinds = []
        for kind, size in editor.kinds_of(name).items():
            own = order[editor.kind[order] == editor.code(kind)]
            mean = float(np.nanmean(confidence[own])) if np.isfinite(confidence[own]).any() else float("nan")
            kinds.append(
                {
                    "name": kind,
                    "named": UNNAMED.fullmatch(kind) is None,
                    "size": size,
                    "confidence": _rounded(mean),
                    "confused_with": confused_with(group, kind) if kind in group.kinds else None,
                    "typical": own[role[own] == TYPICAL][:TYPICAL_SHOWN].tolist(),
                    "borderline": own[role[own] == BORDERLINE][::-1][:BORDERLINE_SHOWN].tolist(),
                }
            )
        return {
            "name": name,
            "images": len(rows) - junk,
            "junk": junk,
            "stability": None if group.stability is None else round(group.stability, 3),
            "suggested": suggestion.kinds,
            "coarser": suggestion.coarser,
            "finer": suggestion.finer,
            "reason": suggestion.reason,
            "kinds": kinds,
        }


def _rounded(value: float) -> float | None:
    return None if np.isnan(value) else round(value, 3)
