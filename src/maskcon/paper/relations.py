"""Figure 1 of the paper from a trained run: what each method would call a positive, on the same keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maskcon._utils.errors import DataError
from maskcon.methods.bound import SampleLabels, optimal_relation, relation_distance
from maskcon.methods.registry import RelationInputs, method_named
from maskcon.methods.relations import OWN_KEY
from maskcon.paper.bound import bank_of_run
from maskcon.report.relation_panels import Batch, Relation, relation_panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from maskcon.api import Run
    from maskcon.data import Dataset

COARSE_CLASSES, FINE_OF_EACH, IMAGES_OF_EACH = 2, 3, 3
METHODS = ("selfcon", "nnclr", "ascl", "supcon", "grafit", "maskcon")
BATCH_SEED = 0


def relations_figure(
    run: Run,
    data: Dataset,
    *,
    settings: Mapping[str, tuple[float | None, float | None]],
    caption: Callable[[str], str],
) -> tuple[Figure, dict[str, Any]]:
    """The figure, and its numbers: d_z of each method and every weight.

    Args:
        run: a finished contrastive run; its last keys are asked.
        data: what it was trained on.
        settings: method -> (w, tau), for those that have any; ASCL takes MaskCon's tau.
        caption: makes the line below the figure from what is shown.
    """
    train = data.train
    if train.fine is None or data.fine_names is None:
        raise DataError(f"relations are compared with fine labels, and {data.name} has none")
    bank = bank_of_run(run)
    labels = SampleLabels(*(torch.from_numpy(part) for part in (train.index, train.coarse, train.fine)))
    coarse, fine = labels.of(bank.index)
    rows = small_batch(coarse.numpy(), fine.numpy(), bank.index.numpy())
    index, keys = bank.index[rows], bank.compared[rows]
    coarse, fine = coarse[rows], fine[rows]
    truth = optimal_relation(fine, fine, index=index, bank_index=index)
    tau = settings["maskcon"][1]
    shown, distances = [], {}
    for name in METHODS:
        method = method_named(name)
        w, own_tau = settings.get(name, (None, tau))
        inputs = RelationInputs(
            keys=keys,
            coarse=coarse,
            index=index,
            bank_keys=keys,
            bank_coarse=coarse,
            bank_index=index,
            w=1.0 if w is None else w,
            tau=1.0 if own_tau is None else own_tau,
        )
        assert method.relation is not None  # all of METHODS contrast
        relation = method.relation(inputs)
        distances[method.title] = float(relation_distance(relation, truth).mean())
        told = [f"w = {w:g}"] if method.uses_w and w is not None else []
        told += [f"τ = {own_tau:g}"] if method.uses_tau and own_tau is not None else []
        shown.append(Relation(method.title, as_square(relation), ", ".join(told), distances[method.title]))
    position = {int(number): row for row, number in enumerate(train.index.tolist())}
    images = train.images[[position[int(number)] for number in index.tolist()]]
    batch = Batch(np.asarray(images), coarse.numpy(), fine.numpy(), data.fine_names)
    words = (
        f"Relations among {len(rows)} training images on the last keys of the MaskCon run; each row: who is how much a "
        "positive of that image. Sorted by coarse (dark lines), then fine class. d_z: mean distance from the truth."
    )
    figure = relation_panels(
        Relation("Fine labels (truth)", as_square(truth)), shown, batch, caption=caption(words)
    )
    numbers = {
        "samples": index.tolist(),
        "coarse": coarse.tolist(),
        "fine": fine.tolist(),
        "d_z": distances,
        "weights": {one.title: np.round(one.weights.astype(float), 6).tolist() for one in shown},
    }
    return figure, numbers


def as_square(relation: Tensor) -> NDArray[np.float32]:
    """A relation [B, 1+B] of a batch with itself as the bank as [B, B]: the own key goes to the diagonal.

    >>> as_square(torch.tensor([[0.5, 0.0, 0.5], [0.75, 0.25, 0.0]])).tolist()
    [[0.5, 0.5], [0.25, 0.75]]
    """
    square = relation[:, OWN_KEY + 1 :].numpy().copy()
    np.fill_diagonal(square, relation[:, OWN_KEY].numpy())
    return square


def small_batch(
    coarse: NDArray[np.int64], fine: NDArray[np.int64], index: NDArray[np.int64], seed: int = BATCH_SEED
) -> NDArray[np.int64]:
    """Rows of a bank for a readable picture: two coarse classes, three fine ones of each, three images of each.

    The coarse classes with most fine classes are taken, the smaller number of a tie; the rest is drawn at random. No
    image comes twice. Where the bank has less, fewer rows.
    """
    _, first = np.unique(index, return_index=True)
    kept = np.random.default_rng(seed).permutation(first)
    kinds = {label: np.unique(fine[coarse == label]) for label in np.unique(coarse).tolist()}
    ordered = sorted(kinds, key=lambda label: (-len(kinds[label]), label))[:COARSE_CLASSES]
    rows: list[int] = []
    for label in sorted(ordered):
        drawn = list(dict.fromkeys(fine[row] for row in kept.tolist() if coarse[row] == label))[:FINE_OF_EACH]
        for kind in sorted(drawn):
            rows += [row for row in kept.tolist() if fine[row] == kind][:IMAGES_OF_EACH]
    return np.array(rows, dtype=np.int64)
