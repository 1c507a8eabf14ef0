"""Choose images to ask a person about, and apply the answers to other images.

    need(i)   = min(spread, d(i, nearest image of its kind whose name is known)^2)
    worth(x)  = sum of max(0, need(i) - d(i, x)^2) over the images i of the kind of x

d is the distance on the principal axes of the class, spread the mean squared distance of its images to their centre.
The image of the largest worth is asked about first, the next one as if its name were known, and so on: first one image
in the middle of every large kind, by which kinds of one name merge, then images far from all known ones. Questions come
class by class, PER_KIND for each of its kinds, first where their mean worth is largest: a few answers in one class tell
more than one in each. In a class of one kind, the worth counts a third.

Answers count for the images around them:

1. In a kind with named images, every other image takes the name whose known images have the nearest mean. The kind's
   own name is a candidate too if a person gave it.
2. ROUNDS of k-means follow in the class, starting from these kinds: known images are fixed and count as KNOWN_WEIGHT
   images. Images of a kind that a person named as a whole, and of which no image is known, are fixed too.

Junk takes no part, even if it was answered before it was marked.

Letters in shapes: S images of a sample, N of a class, A axes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from maskcon._utils.errors import UsageError
from maskcon._utils.text import counted
from maskcon.data.kinds_file import UNNAMED, KindRow, read_kinds
from maskcon.discovery.clusters import Floats, distances
from maskcon.discovery.edits import apply_edits
from maskcon.discovery.kinds import CoarseClass, Embedded, Kinds, sample_rows

ONE_KIND = 1 / 3  # weight of classes of one kind: most of them do have a single one
PER_KIND = 4
ROUNDS, KNOWN_WEIGHT = 3, 20


@dataclass(frozen=True)
class Question:
    """An image whose name would help.

    Attributes:
        kind: the image's present kind.
        reason: why it is asked about, in words.
        choices: kinds of its class, that of the image first, then the nearest.
    """

    path: str
    coarse: str
    kind: str
    reason: str
    choices: tuple[str, ...]


def choose_questions(kinds: Kinds, embedded: Embedded, count: int) -> list[Question]:
    """Choose the images whose names would help most, the most helpful first.

    Args:
        embedded: the images of these kinds.
        count: fewer are returned where fewer images are unknown.
    """
    known = kinds.known()
    classes = [
        _Class(group, kinds, known, embedded)
        for name, group in kinds.classes.items()
        if name in embedded.rows_of
    ]
    batches = [group.ask(PER_KIND * len(set(group.group.kinds))) for group in classes]
    batches.sort(key=lambda batch: -batch[0])
    questions = [question for _, batch in batches for question in batch]
    for group in classes:  # beyond PER_KIND
        if len(questions) >= count:
            break
        questions += group.ask(count - len(questions))[1]
    return questions[:count]


def question_rows(questions: Sequence[Question], kinds: Kinds) -> list[KindRow]:
    """Return the rows of a file to fill in.

    The kind is empty; the question gives the reason and the present kind.
    """
    known = kinds.known()
    return [
        replace(known[item.path], kind="", question=f"{number}: {item.reason}; now {item.kind or 'no kind'}")
        for number, item in enumerate(questions, start=1)
    ]


def check_replaced(file: Path, kinds: Kinds) -> None:
    """Refuse to overwrite a file of questions whose answers were not taken over.

    Raises:
        UsageError: with the way out.
    """
    if not file.exists():
        return
    waiting = [row for row in read_kinds(file) if row.kind and row.path not in kinds.answered]
    if waiting:
        answers = counted(len(waiting), "answer")
        raise UsageError(
            f"{file} holds {answers} not taken over yet; run `maskcon kinds RUN --names {file}` first, or choose "
            "another --out"
        )


def apply_answers(before: Kinds, answers: Sequence[KindRow], embedded: Embedded) -> Kinds:
    """Apply answers to their images and to the images around them; see above.

    Args:
        answers: rows that passed `check_edits`; a row that has no kind and is not junk is not answered.
        embedded: the images.
    """
    given = {row.path: row for row in answers if row.kind or row.role == "junk"}
    known = before.known()
    junk = {path for path, row in given.items() if row.role == "junk"}
    answered = (before.answered | given.keys()) - junk
    name_of = {path: known[path].kind for path in answered if known[path].role != "junk"}
    name_of |= {path: row.kind for path, row in given.items()}
    edits = [
        replace(known[path], kind=row.kind or known[path].kind, role=row.role) for path, row in given.items()
    ]
    place = {path: row for row, path in enumerate(embedded.paths)}
    for coarse in sorted({row.coarse for row in given.values()}):
        group = before.classes[coarse]
        rows = [
            row for row in before.rows if row.coarse == coarse and row.path in place and row.path not in junk
        ]
        points = group.space.project(embedded.vectors[[place[row.path] for row in rows]])
        edits += _spread(rows, points, {row.path: name_of[row.path] for row in rows if row.path in name_of})
    return replace(apply_edits(before, edits, embedded), answered=frozenset(answered))


def _spread(rows: Sequence[KindRow], points: Floats, name_of: Mapping[str, str]) -> list[KindRow]:
    """Return the rows of a class whose kind changes by the answers.

    Args:
        points: of these images, [N, A].
        name_of: names of known images by path.
    """
    before = [row.kind for row in rows]
    found = np.array([name_of.get(row.path, row.kind) for row in rows], dtype=object)
    is_known = np.array([row.path in name_of for row in rows], dtype=bool)
    used = np.array([row.role != "junk" for row in rows], dtype=bool) | is_known
    means = {name: points[is_known & (found == name)].mean(0) for name in sorted(set(found[is_known]))}
    free = used & ~is_known
    for kind in sorted(set(before)):
        own = np.array([was == kind for was in before], dtype=bool)
        centres = {name: means[name] for name in sorted(set(found[own & is_known]))}
        is_name = bool(kind) and UNNAMED.fullmatch(kind) is None
        if not centres:
            free &= ~own | (not is_name)
            continue
        if is_name and (own & used).any():
            centres.setdefault(kind, points[own & used].mean(0))
        near = distances(points[own & free], np.stack(list(centres.values()))).argmin(1)
        found[own & free] = np.array(list(centres), dtype=object)[near]
    weight = np.where(is_known, KNOWN_WEIGHT, 1.0) * used
    for _ in range(ROUNDS):
        names = sorted({name for name, own in zip(found, used, strict=True) if own and name})
        if not names:  # nothing but junk
            break
        total = [np.average(points, 0, weight * (found == name)) for name in names]
        found[free] = np.array(names, dtype=object)[distances(points[free], np.stack(total)).argmin(1)]
    return [
        replace(row, kind=str(now))
        for row, now, can in zip(rows, found, free, strict=True)
        if can and now != row.kind
    ]


class _Class:
    """A sample of the images of a coarse class, and the need of each (see above)."""

    def __init__(
        self, group: CoarseClass, kinds: Kinds, known: Mapping[str, KindRow], embedded: Embedded
    ) -> None:
        junk = frozenset(path for path, row in known.items() if row.role == "junk")
        sample = [
            row
            for row in sample_rows(embedded, group.name, junk).tolist()
            if embedded.paths[row] in known and embedded.paths[row] not in junk
        ]
        self.group, self.known = group, known
        self.paths = [embedded.paths[row] for row in sample]
        self.kinds = np.array([known[path].kind for path in self.paths])
        self.points = group.space.project(embedded.vectors[sample]).astype(np.float64)  # [S, A]
        self.squares = distances(self.points, self.points) ** 2  # [S, S]
        share = len(embedded.rows_of[group.name]) / max(1, len(sample))
        self.weight = share * (1.0 if len(set(group.kinds)) > 1 else ONE_KIND)
        spread = ((self.points - self.points.mean(0)) ** 2).sum(1).mean() if sample else 0.0
        self.need = np.full(len(sample), spread)
        self.is_free = np.array([path not in kinds.answered for path in self.paths], dtype=bool)
        answered = kinds.answered - junk
        rows = [row for row in embedded.rows_of[group.name].tolist() if embedded.paths[row] in answered]
        answered_points = group.space.project(embedded.vectors[rows]).astype(np.float64)
        answered_kinds = np.array([known[embedded.paths[row]].kind for row in rows])
        self.has_known = dict.fromkeys(self.kinds.tolist(), False)  # kind -> whether an image of it is known
        for kind in self.has_known:
            own, near = self.kinds == kind, answered_points[answered_kinds == kind]
            if not len(near) and UNNAMED.fullmatch(kind) is None:  # named as a whole: its middle is known
                near = self.points[own].mean(0, keepdims=True)
            if len(near):
                self.has_known[kind] = True
                self.need[own] = np.minimum(self.need[own], (distances(self.points[own], near) ** 2).min(1))

    def ask(self, count: int) -> tuple[float, list[Question]]:
        """Choose questions, then known; return their mean worth and the questions."""
        same = self.kinds[:, None] == self.kinds[None]
        questions: list[Question] = []
        total = 0.0
        while len(questions) < count and self.is_free.any():
            worth = (np.maximum(self.need[:, None] - self.squares, 0) * same).sum(0)
            worth[~self.is_free] = -1
            chosen = int(worth.argmax())
            total += self.weight * float(worth[chosen])
            questions.append(self._question(chosen))
        return total / max(1, len(questions)), questions

    def _question(self, chosen: int) -> Question:
        """Turn an image into a question."""
        kind = str(self.kinds[chosen])
        own = self.kinds == kind
        nearer = int((own & (self.squares[chosen] < self.need)).sum())
        size = counted(int(own.sum()), "image")
        reason = f"closer to {nearer:,} of the {size} of {kind} than any known one"
        if not self.has_known[kind]:
            reason = f"no image of {kind} is known yet ({size})"
        self.has_known[kind], self.is_free[chosen] = True, False
        self.need[own] = np.minimum(self.need[own], self.squares[chosen][own])
        names = [*dict.fromkeys(self.group.kinds)]
        to_centres = distances(self.points[[chosen]], self.group.centres)[0]
        distance_of = {
            name: to_centres[[place for place, k in enumerate(self.group.kinds) if k == name]].min()
            for name in names
        }
        choices = sorted(names, key=lambda name: (name != kind, distance_of[name]))
        return Question(self.paths[chosen], self.group.name, kind, reason, tuple(choices))
