"""Images to check and names to suggest, found by the embeddings.

mislabelled   of the NEIGHBOURS nearest images at least DISAGREE have one other coarse label, and at most AGREE its own
duplicates    embeddings with a cosine of at least SAME, and images that `maskcon inspect` calls near-duplicates
outliers      farther from the centre of their kind than its third quartile + 1.5 interquartile ranges
suggestions   unnamed images where at least VOTES of the VOTERS nearest named images share a name that was not rejected
              for them, and which are no farther from these than images of that name usually are from named images
              (all but the farthest tenth)

In large datasets, neighbours are searched among at most REFERENCES images, drawn at random.
Letters in shapes: N images, D embedding, R references, P pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskcon.app.background import Report
from maskcon.app.images import MissingImageError
from maskcon.app.page_data import OUTLIER
from maskcon.data.kinds_file import UNNAMED
from maskcon.discovery.columns import GoneError
from maskcon.discovery.edit_kinds import Take
from maskcon.discovery.editor import Editor
from maskcon.discovery.journal import take_of
from maskcon.discovery.kinds import Embedded, Kinds
from maskcon.discovery.questions import apply_answers, choose_questions
from maskcon.report.inspection.near_duplicates import (
    HASH_BITS,
    RADIUS,
    compared_by,
    confirmed,
    groups_of,
    near_pairs,
)
from maskcon.retrieval.nearest import rough_nearest

NEIGHBOURS, DISAGREE, AGREE = 10, 7, 1
REFERENCES = 10_000
BLOCK = 512
SAME = 0.95
COMPARED_SIDE = 128
MOST_PAIRS = 2_000  # the nearest pairs, whose images are compared
MOST_ITEMS = 1_000
VOTERS, VOTES = 5, 4
NAMED_AT_MOST = 2_000  # named images per class that are compared
SUGGESTED_AT_MOST = 200  # images per name
LOWEST = 0.1  # quantile of the mean cosines of named images to their nearest ones

Vectors = NDArray[np.float32]
Item = dict[str, Any]
Found = tuple[list[int], str]  # images, and the reason


def mislabelled(vectors: Vectors, coarse: NDArray[np.int64], names: list[str], report: Report) -> list[Found]:
    """Find images whose neighbours have another coarse label; the clearest first."""
    references = np.arange(len(vectors))
    if len(vectors) > REFERENCES:
        references = np.sort(np.random.default_rng(0).permutation(len(vectors))[:REFERENCES])
    found, compared = [], vectors[references]
    for start in range(0, len(vectors), BLOCK):
        report(start, len(vectors))
        rows = np.arange(start, min(start + BLOCK, len(vectors)))
        near, cosines = rough_nearest(compared, vectors[rows], NEIGHBOURS + 1)
        for row, places, sure in zip(rows.tolist(), references[near], cosines, strict=True):
            others = places != row
            labels = coarse[places[others][:NEIGHBOURS]]
            votes = np.bincount(labels, minlength=len(names))
            own, votes[coarse[row]] = votes[coarse[row]], 0
            other = int(votes.argmax()) if len(votes) else 0
            needed = DISAGREE * len(labels) / NEIGHBOURS
            if len(labels) >= VOTERS and votes[other] >= needed and own <= AGREE:
                reason = f"{votes[other]} of the {len(labels)} nearest images are {names[other]}"
                found.append((-int(votes[other]), -float(sure[others].mean()), row, reason))
    return [([row], reason) for _, _, row, reason in sorted(found)[:MOST_ITEMS]]


def duplicates(
    vectors: Vectors, image: Callable[[int, int], NDArray[np.uint8]], report: Report
) -> list[Found]:
    """Find groups of near-duplicates, the nearest first.

    Args:
        image: (row, side) -> image [3, h, w].
    """
    pairs, cosines = _similar_pairs(vectors)
    hashes: dict[int, int] = {}
    tiny: dict[int, NDArray[np.uint8]] = {}
    rows = np.unique(pairs).tolist()
    for number, row in enumerate(rows):
        report(number, len(rows))
        try:
            hashed, tiny[row] = compared_by(image(row, COMPARED_SIDE))
        except MissingImageError:
            continue
        if hashed is not None:
            hashes[row] = hashed
    cosine_of: dict[tuple[int, int], float] = {}
    for (first, second), cosine in zip(pairs.tolist(), cosines.tolist(), strict=True):
        near = first in hashes and second in hashes
        if near and (hashes[first] ^ hashes[second]).bit_count() <= RADIUS:
            cosine_of[first, second] = cosine
    if not cosine_of:
        return []
    back = np.array(sorted(tiny), dtype=np.int64)
    places = np.searchsorted(back, np.array(list(cosine_of), dtype=np.int64))
    sure = back[confirmed(places, np.stack([tiny[row] for row in back.tolist()]))].tolist()
    best: dict[int, float] = {}
    for first, second in sure:
        best[first] = max(best.get(first, 0.0), cosine_of[first, second])
    found = []
    for group in groups_of(sure) if sure else []:
        cosine = max(best.get(row, 0.0) for row in group)
        found.append((-cosine, list(group), f"{len(group)} near-duplicates, cosine {cosine:.3f}"))
    return [(group, reason) for _, group, reason in sorted(found)[:MOST_ITEMS]]


def outliers(editor: Editor) -> list[Found]:
    """List outliers, those of the largest kinds first, the least sure first within a kind."""
    confidence, role = editor.judged()
    rows = np.flatnonzero(role == OUTLIER)
    sizes = np.zeros(len(editor.paths), dtype=np.int64)
    for name, members in editor.members.items():
        kinds = editor.kinds_of(name)
        own = members[role[members] == OUTLIER]
        sizes[own] = [kinds.get(editor.name_of(code), 0) for code in editor.kind[own].tolist()]
    order = np.lexsort((rows, np.nan_to_num(confidence[rows]), -sizes[rows]))
    return [([row], "far from the other images of its kind") for row in rows[order][:MOST_ITEMS].tolist()]


def open_items(editor: Editor, queue: str, found: list[Found]) -> list[Item]:
    """Describe the items of a queue that are still to be judged: neither junk nor kept."""
    settled, least = editor.kept(queue), 2 if queue == "duplicates" else 1
    items = []
    for images, reason in found:
        ids = [row for row in images if not editor.junk[row]]
        if len(ids) >= least and not settled.issuperset(ids):
            items.append({"ids": ids, "reason": reason})
    return items


def questions(kinds: Kinds, embedded: Embedded, count: int) -> list[Item]:
    """Describe the images whose names would help most, each answer with its edit."""
    row_of = {path: row for row, path in enumerate(embedded.paths)}
    items = []
    for question in choose_questions(kinds, embedded, count):
        ids = [row_of[question.path]]
        answers: list[Item] = []
        for name in question.choices:
            move = {"action": "move", "ids": ids, "to": name}
            keep = {"action": "keep", "ids": ids, "queue": "ask"}
            answers.append({"label": name, "edit": keep if name == question.kind else move})
        items.append(
            {
                "ids": ids,
                "coarse": question.coarse,
                "kind": question.kind,
                "reason": question.reason,
                "answers": answers,
            }
        )
    return items


def following(editor: Editor, embedded: Embedded) -> Take:
    """Apply the answers to the other images, as `maskcon kinds --names` does; return the moves as one edit."""
    kinds = editor.kinds()
    before = {editor.paths[row]: kind for row, kind in editor.kinds_before().items()}
    unanswered = tuple(replace(row, kind=before.get(row.path, row.kind)) for row in kinds.rows)
    answers = [row for row in kinds.rows if row.path in before]
    after = apply_answers(
        replace(kinds, rows=unanswered, answered=kinds.answered - before.keys()), answers, embedded
    )
    return take_of(editor, after.rows).model_copy(update={"of": "answers"})


def suggestions(editor: Editor, vectors: Vectors, coarse: str) -> list[Item]:
    """Suggest names of a class for its unnamed images; see the module."""
    if coarse not in editor.groups:
        raise GoneError(f"there is no coarse class {coarse!r}")
    members = editor.members[coarse]
    members = members[~editor.junk[members]]
    codes = editor.kind[members]
    is_named = np.array(
        [bool(name := editor.name_of(code)) and UNNAMED.fullmatch(name) is None for code in codes.tolist()],
        dtype=bool,
    )
    named, unnamed = members[is_named], members[~is_named]
    if len(named) > NAMED_AT_MOST:
        named = np.sort(np.random.default_rng(0).permutation(named)[:NAMED_AT_MOST])
    if len(named) <= VOTERS or not len(unnamed):
        return []
    codes = editor.kind[named]
    _, among = rough_nearest(vectors[named], vectors[named], VOTERS + 1)
    usual = among[:, 1:].mean(1)  # the image itself comes first
    items = []
    near, cosines = rough_nearest(vectors[named], vectors[unnamed], VOTERS)
    votes, scores = codes[near], cosines.mean(1)
    for code in np.unique(codes).tolist():
        limit = float(np.quantile(usual[codes == code], LOWEST))
        sure = ((votes == code).sum(1) >= VOTES) & (scores >= limit)
        sure &= ~np.isin(unnamed, list(editor.rejected(editor.name_of(code))))
        rows = np.flatnonzero(sure)
        rows = rows[np.lexsort((unnamed[rows], -scores[rows]))][:SUGGESTED_AT_MOST]
        if len(rows):
            items.append(
                {
                    "coarse": coarse,
                    "kind": editor.name_of(code),
                    "ids": unnamed[rows].tolist(),
                    "score": round(float(scores[rows].mean()), 3),
                }
            )
    return sorted(items, key=lambda item: (-len(item["ids"]), item["kind"]))


def _similar_pairs(vectors: Vectors) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Find pairs [P, 2] with a cosine of at least SAME; return them and their cosines, the nearest first.

    Candidates agree in the signs of all but RADIUS of 64 random directions, each split at its median: at a cosine of
    0.99 from the mean about nine of ten pairs do.
    """
    random = np.random.default_rng(0).standard_normal((vectors.shape[1], HASH_BITS)).astype(np.float32)
    projected = vectors @ random
    bits = projected > np.median(projected, axis=0)
    hashes = np.packbits(bits, axis=1).view(">u8").ravel().astype(np.uint64)
    pairs, _ = near_pairs(hashes)
    cosines = np.empty(len(pairs), dtype=np.float32)
    for start in range(0, len(pairs), BLOCK):
        part = pairs[start : start + BLOCK]
        cosines[start : start + BLOCK] = (vectors[part[:, 0]] * vectors[part[:, 1]]).sum(1)
    order = np.argsort(-cosines, kind="stable")
    order = order[cosines[order] >= SAME][:MOST_PAIRS]
    return pairs[order], cosines[order]
