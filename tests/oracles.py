"""Slow, obvious versions of every formula: loops and plain numbers, straight from the paper."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def dot(a: Sequence[float], b: Sequence[float]) -> float:
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def masked_row(
    key: Sequence[float],
    bank: Sequence[Sequence[float]],
    label: int,
    bank_labels: Sequence[int],
    tau: float,
    number: int | None = None,
    bank_numbers: Sequence[int] | None = None,
) -> list[float]:
    """One row of z^mask by eq. 11 to 14 and the remark on normalisation, in double precision."""
    allowed = [
        j
        for j in range(len(bank))
        if bank_labels[j] == label and (bank_numbers is None or bank_numbers[j] != number)
    ]
    similarity = {j: dot(key, bank[j]) for j in allowed}
    row = [0.0] * (1 + len(bank))
    row[0] = 1.0
    if allowed:
        top = max(similarity.values())
        for j in allowed:
            if tau == math.inf:
                row[1 + j] = 1.0
            elif tau == 0:
                row[1 + j] = 1.0 if similarity[j] == top else 0.0
            else:
                row[1 + j] = math.exp((similarity[j] - top) / tau)
    total = math.fsum(row)
    return [value / total for value in row]


def named_row(
    key: Sequence[float],
    bank: Sequence[Sequence[float]],
    label: int,
    bank_labels: Sequence[int],
    name: int,
    bank_names: Sequence[int],
    tau: float,
    number: int | None = None,
    bank_numbers: Sequence[int] | None = None,
) -> list[float]:
    """One row of z^mask with known names: pair by pair, in double precision."""
    row = [1.0] + [0.0] * len(bank)
    candidates = []
    for j in range(len(bank)):
        other_class = bank_labels[j] != label
        own = bank_numbers is not None and bank_numbers[j] == number
        other_name = name >= 0 and bank_names[j] >= 0 and bank_names[j] != name
        if not (other_class or own or other_name):
            candidates.append(j)
    for j in candidates:
        similarity, top = dot(key, bank[j]), max(dot(key, bank[k]) for k in candidates)
        if tau == math.inf or (name >= 0 and bank_names[j] == name):
            row[1 + j] = 1.0
        elif tau == 0:
            row[1 + j] = 1.0 if similarity == top else 0.0
        else:
            row[1 + j] = math.exp((similarity - top) / tau)
    total = math.fsum(row)
    return [value / total for value in row]


def adaptive_row(
    key: Sequence[float],
    bank: Sequence[Sequence[float]],
    tau: float,
    number: int | None = None,
    bank_numbers: Sequence[int] | None = None,
) -> list[float]:
    """ASCL as a special case: everything in one class, w the normalised entropy of z' before the own key joins."""
    zeros = [0] * len(bank)
    soft = masked_row(key, bank, 0, zeros, tau, number, bank_numbers)
    others = soft[1:]
    total = math.fsum(others)
    count = sum(1 for j in range(len(bank)) if bank_numbers is None or bank_numbers[j] != number)
    w = 0.0
    if count > 1 and total > 0:
        shares = [value / total for value in others]
        w = -math.fsum(p * math.log(p) for p in shares if p > 0) / math.log(count)
    return [w * value + (1 - w) * (1.0 if j == 0 else 0.0) for j, value in enumerate(soft)]


def loss_row(
    query: Sequence[float],
    key: Sequence[float],
    bank: Sequence[Sequence[float]],
    relation: Sequence[float],
    tau0: float,
) -> float:
    """Eq. 5 for one sample: minus the sum of z times log-softmax."""
    logits = [dot(query, other) / tau0 for other in (key, *bank)]
    top = max(logits)
    log_total = top + math.log(math.fsum(math.exp(value - top) for value in logits))
    return -math.fsum(z * (value - log_total) for z, value in zip(relation, logits, strict=True))


def relation_loss_by_autograd(
    queries: Tensor, keys: Tensor, bank: Tensor, relation: Tensor, tau0: float
) -> Tensor:
    """Eq. 5 with materialised logits, for comparing gradients."""
    logits = torch.cat([(queries * keys).sum(1, keepdim=True), queries @ bank.T], dim=1) / tau0
    return -(relation * torch.log_softmax(logits, dim=1)).sum(1)


def recall(embeddings: Tensor, labels: Sequence[int], k: int) -> float:
    """Recall@K by sorting every row: similarity first, position second, oneself left out by position."""
    rows = [[float(x) for x in row] for row in embeddings.double()]
    units = []
    for row in rows:
        length = math.sqrt(dot(row, row)) or 1.0
        units.append([x / length for x in row])
    hits = 0
    for i in range(len(units)):
        others = [j for j in range(len(units)) if j != i]
        others.sort(key=lambda j: (-round(dot(units[i], units[j]), 6), j))
        hits += any(labels[j] == labels[i] for j in others[:k])
    return hits / len(units)


class ListBank:
    """The bank as a list that forgets from the front."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.entries: list[tuple[tuple[float, ...], int, int]] = []

    def enqueue(self, keys: Tensor, coarse: Tensor, index: Tensor) -> None:
        for key, label, number in zip(keys.tolist(), coarse.tolist(), index.tolist(), strict=True):
            self.entries.append((tuple(key), label, number))
        self.entries = self.entries[-self.size :]


def spread_names(vectors, coarse, names, nearest=20, power=3, kept=0.95, times=60):
    """Label spreading within classes, with dense lists; every unnamed image may take a name."""
    filled = list(names)
    for label in set(coarse):
        rows = [i for i in range(len(names)) if coarse[i] == label]
        present = sorted({names[i] for i in rows if names[i] >= 0})
        if len(present) < 2:
            continue
        size = range(len(vectors[0]))
        mean = [sum(vectors[i][f] for i in rows) / len(rows) for f in size]
        unit = []
        for i in rows:
            centred = [vectors[i][f] - mean[f] for f in size]
            length = math.sqrt(sum(value * value for value in centred))
            unit.append([value / length for value in centred])
        n = range(len(rows))
        d = [[sum(a * b for a, b in zip(unit[i], unit[j], strict=True)) for j in n] for i in n]
        near = [sorted((j for j in n if j != i), key=lambda j: -d[i][j])[:nearest] for i in n]
        weight = [[max(d[i][j], 0) ** power if j in near[i] or i in near[j] else 0.0 for j in n] for i in n]
        degree = [sum(row) for row in weight]
        given = [[float(names[i] == name) for name in present] for i in rows]
        reached = given
        for _ in range(times):
            reached = [
                [
                    kept
                    * sum(
                        weight[i][j] / math.sqrt(degree[i] * degree[j]) * reached[j][c]
                        for j in n
                        if weight[i][j]
                    )
                    + (1 - kept) * given[i][c]
                    for c in range(len(present))
                ]
                for i in n
            ]
        total = [sum(row[c] for row in reached) for c in range(len(present))]
        for place, i in enumerate(rows):
            if names[i] < 0 and any(reached[place]):
                shares = [reached[place][c] / total[c] for c in range(len(present))]
                filled[i] = present[shares.index(max(shares))]
    return filled
