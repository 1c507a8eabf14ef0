"""Kinds found without fine labels, scored by fine labels: frozen runs against their backbone alone.

    python benchmarks/kinds.py runs/c100-maskcon runs/c100-supce ... [--part all] [--data-root PATH] [--json FILE]

Runs on the same data are compared: one line per encoder, the first for the backbone without a head. Images are embedded
once per dataset.

accuracy      share of images whose kind is the fine label that it is matched with (Hungarian) inside its coarse class,
              at the true numbers of kinds; coarse classes of several fine labels only
k-means       the same by scikit-learn's k-means (10 starts) on embeddings of length 1
ARI           adjusted Rand index inside coarse classes of several fine labels, weighted by images: at the true numbers,
              and at those suggested
within        share of coarse classes whose suggested number is within 25 % of the true one, or within 1
whole         share of coarse classes of one fine label that are left whole
kinds         suggested in all, of how many fine labels
between seeds ARI between runs of one method, mean over pairs: at the true numbers, and at those suggested
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score
from torch import Tensor

from maskcon._utils.errors import UsageError
from maskcon.api import Run, data_of, features_of
from maskcon.config.settings import Machine
from maskcon.data import ImageSet
from maskcon.discovery.clusters import unit_rows
from maskcon.discovery.kinds import Embedded, Wanted, find_kinds
from maskcon.models import Backbone, FrozenEncoder
from maskcon.models.encoder_file import read_encoder
from maskcon.training.run_folder import ENCODER

Labels = NDArray[np.int64]


class Levels(Backbone):
    """What the head of a frozen encoder sees of images."""

    def __init__(self, encoder: FrozenEncoder) -> None:
        super().__init__()
        self.backbone, self.weight = encoder.backbone, encoder.earlier_weight
        self.name, self.in_channels = encoder.name, encoder.in_channels
        self.features = self.backbone.level_features(self.weight)

    def forward(self, images: Tensor) -> Tensor:
        return self.backbone.levels(images, self.weight)


def matched(truth: Labels, found: Labels) -> int:
    """Count images whose kind is matched with their fine label."""
    table = np.zeros((truth.max() + 1, found.max() + 1), dtype=np.int64)
    np.add.at(table, (truth, found), 1)
    rows, columns = linear_sum_assignment(-table)
    return int(table[rows, columns].sum())


def numbered(values: Sequence[str] | Labels) -> Labels:
    return np.unique(np.array(values), return_inverse=True)[1].astype(np.int64)


def mean_ari(coarse: Labels, one: Labels, other: Labels, classes: Sequence[int]) -> float:
    """Return the ARI inside these coarse classes, weighted by images."""
    scores = [adjusted_rand_score(one[coarse == c], other[coarse == c]) for c in classes]
    return float(np.average(scores, weights=[(coarse == c).sum() for c in classes]))


def accuracy(coarse: Labels, fine: Labels, kinds: Labels, classes: Sequence[int]) -> float:
    """Return the share of images of these coarse classes whose kind is matched with their fine label, in percent."""
    right = sum(matched(numbered(fine[coarse == c]), numbered(kinds[coarse == c])) for c in classes)
    return round(100 * right / int(np.isin(coarse, classes).sum()), 1)


def score(vectors: NDArray[np.float32], coarse: Labels, fine: Labels) -> tuple[dict[str, Any], list[Labels]]:
    """Score one embedding; also return the kinds at the true and at the suggested numbers, [N] each."""
    names = [f"{c:04}" for c in coarse]
    embedded = Embedded([f"{row}" for row in range(len(vectors))], names, vectors)
    classes = sorted(set(coarse.tolist()))
    true = {c: len(np.unique(fine[coarse == c])) for c in classes}
    several = [c for c in classes if true[c] > 1]
    at_true = find_kinds(embedded, Wanted(by_class={f"{c:04}": true[c] for c in classes}))
    suggested = find_kinds(embedded)
    kinds = [numbered([row.kind for row in found.rows]) for found in (at_true, suggested)]
    number = {c: len(suggested.classes[f"{c:04}"].kinds) for c in classes}
    plain, rows = np.zeros(len(fine), dtype=np.int64), unit_rows(vectors)
    for c in several:
        plain[coarse == c] = KMeans(true[c], n_init=10, random_state=0).fit_predict(rows[coarse == c])
    single = [number[c] == 1 for c in classes if true[c] == 1]
    result = {
        "accuracy": accuracy(coarse, fine, kinds[0], several),
        "k-means": accuracy(coarse, fine, plain, several),
        "ari_true": round(mean_ari(coarse, fine, kinds[0], several), 3),
        "ari_suggested": round(mean_ari(coarse, fine, kinds[1], several), 3),
        "within": round(
            float(np.mean([abs(number[c] - true[c]) <= max(1, true[c] / 4) for c in classes])), 2
        ),
        "whole": round(float(np.mean(single)), 2) if single else None,
        "kinds": sum(number.values()),
        "fine_labels": sum(true.values()),
    }
    return result, kinds


def compare(runs: Sequence[Run], machine: Machine, part: str) -> dict[str, Any]:
    """Score runs on the same data, and the backbone that they share."""
    data = data_of(runs[0], machine)
    parts: list[ImageSet] = [data.test] if part == "test" else [data.train, data.test]
    if any(images.fine is None for images in parts):
        raise UsageError(f"{data.name} has no fine labels to score by")
    seen, rows, coarse, fine = (
        None,
        {},
        *(np.concatenate([getattr(images, name) for images in parts]) for name in ("coarse", "fine")),
    )
    found: dict[str, list[list[Labels]]] = {}
    for run in runs:
        encoder, facts = read_encoder(run.folder / ENCODER)
        if not isinstance(encoder, FrozenEncoder):
            raise UsageError(f"{run.folder} is not a run on a frozen backbone")
        if seen is None:
            levels = Levels(encoder)
            seen = torch.cat([features_of(levels, facts, s.images, s.sizes, "cpu") for s in parts])
            rows["backbone"], _ = score(seen[:, : encoder.backbone.features].numpy(), coarse, fine)
        with torch.no_grad():
            vectors = encoder.head(encoder.axes(seen)).numpy()
        label = f"{run.config.method} seed {run.config.seed}"
        rows[label], kinds = score(vectors, coarse, fine)
        found.setdefault(run.config.method, []).append(kinds)
    several = [c for c in sorted(set(coarse.tolist())) if len(np.unique(fine[coarse == c])) > 1]
    between = {
        method: [
            round(
                float(np.mean([mean_ari(coarse, a, b, several) for a, b in itertools.combinations(same, 2)])),
                3,
            )
            for same in zip(*all_, strict=True)
        ]
        for method, all_ in found.items()
        if len(all_) > 1
    }
    return {"data": data.name, "images": len(coarse), "encoders": rows, "between_seeds": between}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--part", choices=("test", "all"), default="test")
    parser.add_argument("--data-root")
    parser.add_argument("--json", type=Path, help="write the result to this file")
    chosen = parser.parse_args()
    by_data: dict[str, list[Run]] = {}
    for folder in chosen.runs:
        run = Run.open(folder)
        by_data.setdefault(str(run.result["data"]), []).append(run)
    results = []
    for runs in by_data.values():
        results.append(compare(runs, Machine(data_root=chosen.data_root), chosen.part))
        print(json.dumps(results[-1], indent=1), flush=True)
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
