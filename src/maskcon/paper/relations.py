"""Figure 1: the relations of a small batch under each method, against those of fine labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maskcon._utils.errors import DataError, UsageError
from maskcon.api import Run
from maskcon.methods.memory_bank import MemoryBank
from maskcon.methods.registry import RelationInputs, method_named
from maskcon.methods.relations import OWN_KEY, coarse_relation
from maskcon.paper.plans import paper_trial
from maskcon.paper.runs import Drawn, Setup
from maskcon.report.style import (
    INK,
    PAGE_INCHES,
    PALE,
    SMALL_POINTS,
    as_pixels,
    figure_style,
    new_figure,
    shorten,
)
from maskcon.training.checkpoint import load_latest
from maskcon.training.run_folder import CHECKPOINTS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FloatArray = NDArray[np.floating[Any]]
IntArray = NDArray[np.integer[Any]]

COARSE_CLASSES, FINE_OF_EACH, IMAGES_OF_EACH = 2, 3, 3
METHODS = ("selfcon", "nnclr", "ascl", "supcon", "grafit", "maskcon")
BATCH_SEED = 0
GAMMA = 0.5  # the root of a weight is shown, because Grafit's weights are small but not zero
# One hue from white to nearly black: for colour-blind readers, and for print without colour.
COLOURS = ("#ffffff", "#9ecae1", "#2878b5", "#08306b")
TICKS = (0.0, 0.02, 0.1, 0.3, 0.6, 1.0)


def draw(setup: Setup) -> Drawn:
    """Draw figure 1 from the last keys of its run; write d_z of each method and all weights as numbers."""
    run = next(iter(setup.open_methods().values()))
    data = setup.data_of([run])
    train = data.train
    if train.fine is None or data.fine_names is None:
        raise DataError(f"relations are compared with fine labels, and {data.name} has none")
    bank = bank_of_run(run)
    position = {number: row for row, number in enumerate(train.index.tolist())}
    places = np.array([position[number] for number in bank.index.tolist()])
    rows = small_batch(train.coarse[places], train.fine[places], bank.index.numpy())
    places, index, keys = places[rows], bank.index[rows], bank.compared[rows]
    batch = Batch(np.asarray(train.images[places]), train.coarse[places], train.fine[places], data.fine_names)
    coarse, fine = torch.from_numpy(batch.coarse), torch.from_numpy(batch.fine)
    truth = coarse_relation(fine, fine, index=index, bank_index=index)  # eq. 16 to 18, of the fine labels
    settings = {name: paper_trial(setup.ground.asked, name) for name in ("grafit", "maskcon")}
    tau = settings["maskcon"].tau  # also for ASCL
    panels = {"Fine labels (truth)": as_square(truth)}
    weights, distances = {}, {}
    for name in METHODS:
        method = method_named(name)
        w = settings[name].w if name in settings else None
        inputs = RelationInputs(
            keys=keys,
            coarse=coarse,
            index=index,
            bank_keys=keys,
            bank_coarse=coarse,
            bank_index=index,
            w=1.0 if w is None else w,
            tau=1.0 if tau is None else tau,
        )
        assert method.relation is not None  # all of METHODS contrast
        relation = method.relation(inputs)
        distances[method.title] = d_z = float((relation.float() - truth).norm(dim=1).mean())
        weights[method.title] = square = as_square(relation)
        values = [f"w = {w:g}"] if method.uses_w and w is not None else []
        values += [f"τ = {tau:g}"] if method.uses_tau and tau is not None else []
        panels[f"{method.title}\n{', '.join([*values, f'd_z = {d_z:.2f}'])}"] = square
    text = (
        f"Relations among {len(rows)} training images on the last keys of the MaskCon run; each row: the positive "
        "weights of that image. Sorted by coarse (dark lines), then fine class. d_z: mean distance from the truth."
    )
    numbers = {
        "samples": index.tolist(),
        "coarse": batch.coarse.tolist(),
        "fine": batch.fine.tolist(),
        "d_z": distances,
        "weights": {title: np.round(square.astype(float), 6).tolist() for title, square in weights.items()},
    }
    paths = setup.write(relation_panels(panels, batch, caption=setup.caption(run, text)), numbers)
    shown = ", ".join(f"{title} {d_z:.2f}" for title, d_z in distances.items())
    return paths, f"distance from the fine labels' relation: {shown}"


def bank_of_run(run: Run) -> MemoryBank:
    """Load the memory bank of a run's last checkpoint; relations need its keys, which the encoder file lacks."""
    if not method_named(run.config.method).contrasts:
        raise UsageError(
            f"the run in {run.folder} is of {run.config.method}, which has no keys; give a contrastive one"
        )
    checkpoint, notes = load_latest(run.folder / CHECKPOINTS)
    if checkpoint is None:
        raise UsageError(
            f"the run in {run.folder} has no whole checkpoint{''.join(f' ({note})' for note in notes)}, and its "
            "encoder file has no keys; delete the folder and train it again"
        )
    prefix = "bank."
    state = {key.removeprefix(prefix): t for key, t in checkpoint.tensors.items() if key.startswith(prefix)}
    compared = state.get("_compared")
    bank = MemoryBank(*state["_keys"].shape, compared_dim=None if compared is None else compared.shape[1])
    bank.load_state_dict(state)
    return bank


def as_square(relation: Tensor) -> NDArray[np.float32]:
    """Convert a relation [B, 1+B] of a batch with itself as bank to [B, B], the own key on the diagonal.

    >>> as_square(torch.tensor([[0.5, 0.0, 0.5], [0.75, 0.25, 0.0]])).tolist()
    [[0.5, 0.5], [0.25, 0.75]]
    """
    square = relation[:, OWN_KEY + 1 :].numpy().copy()
    np.fill_diagonal(square, relation[:, OWN_KEY].numpy())
    return square


def small_batch(
    coarse: NDArray[np.int64], fine: NDArray[np.int64], index: NDArray[np.int64], seed: int = BATCH_SEED
) -> NDArray[np.int64]:
    """Choose rows of a bank for a readable figure: two coarse classes, three fine ones of each, three images of each.

    The coarse classes are those with most fine classes, in a tie those with the smaller numbers; the rest is drawn at
    random, no image twice. Fewer rows if the bank has fewer.
    """
    _, first = np.unique(index, return_index=True)
    shuffled = np.random.default_rng(seed).permutation(first)
    kinds = {label: np.unique(fine[coarse == label]) for label in np.unique(coarse).tolist()}
    ordered = sorted(kinds, key=lambda label: (-len(kinds[label]), label))[:COARSE_CLASSES]
    rows: list[int] = []
    for label in sorted(ordered):
        drawn = list(dict.fromkeys(fine[row] for row in shuffled.tolist() if coarse[row] == label))[
            :FINE_OF_EACH
        ]
        for kind in sorted(drawn):
            rows += [row for row in shuffled.tolist() if fine[row] == kind][:IMAGES_OF_EACH]
    return np.array(rows, dtype=np.int64)


@dataclass(frozen=True)
class Batch:
    """The images [B, C, H, W] uint8 with their labels [B] and the names of the fine classes."""

    images: NDArray[np.uint8]
    coarse: IntArray
    fine: IntArray
    fine_names: Sequence[str]


@figure_style()
def relation_panels(panels: Mapping[str, FloatArray], batch: Batch, *, caption: str = "") -> Figure:
    """Draw the weights [B, B] of each panel by its title, with the images along its sides; the first panel large.

    Row i has the weights of image i, divided by that of its own key, which is in column i. Images are sorted by coarse,
    then fine label; dark lines separate coarse classes, pale ones fine classes.
    """
    from matplotlib.colors import LinearSegmentedColormap, PowerNorm

    order = np.lexsort((batch.fine, batch.coarse))  # by coarse, then by fine label
    coarse, fine = batch.coarse[order], batch.fine[order]
    images = [as_pixels(batch.images[row]) for row in order.tolist()]
    last = len(order) - 0.5
    columns = -(-(len(panels) - 1) // 2)
    figure = new_figure(PAGE_INCHES, 3.4, caption)
    grid = figure.add_gridspec(2, 2 + columns)
    places = [grid[:, :2], *(grid[row, 2 + column] for row in range(2) for column in range(columns))]
    for (title, weights), place in zip(panels.items(), places, strict=False):
        axes = figure.add_subplot(place)
        axes.grid(False)
        axes.set(xticks=[], yticks=[])
        axes.set_title(title, size=SMALL_POINTS)
        shown = axes.imshow(
            (weights / np.diagonal(weights)[:, None])[np.ix_(order, order)],
            cmap=LinearSegmentedColormap.from_list("weights", COLOURS),
            norm=PowerNorm(GAMMA, vmin=0, vmax=1),
            interpolation="nearest",
        )
        axes.imshow(np.concatenate(images, axis=0), extent=(-1.5, -0.5, last, -0.5))
        axes.imshow(np.concatenate(images, axis=1), extent=(-0.5, last, -0.5, -1.5))
        axes.set(xlim=(-1.5, last), ylim=(last, -1.5))
        for at in range(1, len(fine)):
            outer = coarse[at] != coarse[at - 1]
            if outer or fine[at] != fine[at - 1]:
                for line in (axes.axhline, axes.axvline):
                    line(at - 0.5, color=INK if outer else PALE, linewidth=0.9 if outer else 0.4)
        if place == places[0]:
            middles = {kind: float(np.flatnonzero(fine == kind).mean()) for kind in fine.tolist()}
            names = [shorten(batch.fine_names[kind], 13) for kind in middles]
            axes.set_yticks(list(middles.values()), names, size=SMALL_POINTS)
            scale = figure.colorbar(shown, ax=axes, location="bottom", ticks=TICKS, format="{x:g}")
            scale.set_label("weight, over that of the own key", size=SMALL_POINTS)
            scale.ax.tick_params(labelsize=SMALL_POINTS)
    return figure
