"""Figure 1: the relations of a small batch under each method, against those of fine labels."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maskcon._utils.errors import DataError, UsageError
from maskcon.api import Run
from maskcon.methods.bound import SampleLabels, optimal_relation, relation_distance
from maskcon.methods.memory_bank import MemoryBank
from maskcon.methods.registry import RelationInputs, method_named
from maskcon.methods.relations import OWN_KEY
from maskcon.paper.plans import paper_trial
from maskcon.paper.runs import Drawn, Setup
from maskcon.report.style import (
    INK,
    PAGE_INCHES,
    PALE,
    SMALL_POINTS,
    SMALLEST_POINTS,
    Plate,
    as_pixels,
    shorten,
)
from maskcon.training.checkpoint import load_latest
from maskcon.training.run_folder import CHECKPOINTS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage


COARSE_CLASSES, FINE_OF_EACH, IMAGES_OF_EACH = 2, 3, 3
METHODS = ("selfcon", "nnclr", "ascl", "supcon", "grafit", "maskcon")
BATCH_SEED = 0


def draw(setup: Setup) -> Drawn:
    """Draw figure 1 from the last keys of its run; its numbers are d_z of each method and every weight."""
    run = next(iter(setup.open_methods().values()))
    data = setup.data_of([run])
    settings = {
        method: (trial.w, trial.tau)
        for method in ("grafit", "maskcon")
        for trial in [paper_trial(setup.ground.asked, method)]
    }
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
    tau = settings["maskcon"][1]  # which ASCL takes too
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
        values = [f"w = {w:g}"] if method.uses_w and w is not None else []
        values += [f"τ = {own_tau:g}"] if method.uses_tau and own_tau is not None else []
        shown.append(Relation(method.title, as_square(relation), ", ".join(values), distances[method.title]))
    position = {int(number): row for row, number in enumerate(train.index.tolist())}
    images = train.images[[position[int(number)] for number in index.tolist()]]
    batch = Batch(np.asarray(images), coarse.numpy(), fine.numpy(), data.fine_names)
    words = (
        f"Relations among {len(rows)} training images on the last keys of the MaskCon run; each row: the positive "
        "weights of that image. Sorted by coarse (dark lines), then fine class. d_z: mean distance from the truth."
    )
    large = Relation("Fine labels (truth)", as_square(truth))
    figure = relation_panels(large, shown, batch, caption=setup.caption(run, words))
    numbers = {
        "samples": index.tolist(),
        "coarse": coarse.tolist(),
        "fine": fine.tolist(),
        "d_z": distances,
        "weights": {one.title: np.round(one.weights.astype(float), 6).tolist() for one in shown},
    }
    paths = setup.write(figure, "json", json.dumps(numbers, indent=1, allow_nan=False) + "\n")
    told = ", ".join(f"{title} {d_z:.2f}" for title, d_z in distances.items())
    return paths, f"distance from the fine labels' relation: {told}"


def bank_of_run(run: Run) -> MemoryBank:
    """Load the memory bank of a run's last checkpoint: relations are made of keys, and the encoder file has none."""
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


FloatArray = NDArray[np.floating[Any]]
IntArray = NDArray[np.integer[Any]]

NAMES_INCHES = 0.72  # of the fine classes, at the left of the large panel
LARGE_INCHES, SMALL_INCHES = 2.2, 1.02
COLUMNS = 3  # of small panels
TITLE_INCHES = 0.34
GAMMA = 0.5  # the root of a weight is shown: Grafit's are small, and must not look like none
# One hue from white to nearly black: seen by all, and in print without colour.
COLOURS = ("#ffffff", "#9ecae1", "#2878b5", "#08306b")
TICKS = (0.0, 0.02, 0.1, 0.3, 0.6, 1.0)


@dataclass(frozen=True)
class Relation:
    """A method's relations within a batch: weights [B, B], in row i those of image i, its own key at column i."""

    title: str
    weights: FloatArray
    settings: str = ""  # such as "w = 0.5"
    d_z: float | None = None  # its mean distance from the truth


@dataclass(frozen=True)
class Batch:
    """The images [B, C, H, W] uint8 with their labels [B] and the names of the fine classes."""

    images: NDArray[np.uint8]
    coarse: IntArray
    fine: IntArray
    fine_names: Sequence[str]

    @property
    def order(self) -> IntArray:
        """Return rows sorted by coarse, then by fine label."""
        return np.lexsort((self.fine, self.coarse))


def over_own_key(weights: FloatArray) -> FloatArray:
    """Divide each row by its diagonal entry, the weight of the own key, which no other exceeds.

    >>> over_own_key(np.array([[0.5, 0.25], [0.1, 0.9]]))[0].tolist()
    [1.0, 0.5]
    """
    return weights / np.diagonal(weights)[:, None]


def relation_panels(
    truth: Relation, methods: Sequence[Relation], batch: Batch, *, caption: str = ""
) -> Figure:
    """Draw the truth large, with images along its sides, and each method small beside it, in the same order.

    Images are sorted by coarse, then fine label; dark lines part coarse classes, pale ones fine classes. Shown is the
    weight over that of the own key.
    """
    count = len(batch.images)
    rows = -(-len(methods) // COLUMNS)
    block = SMALL_INCHES + TITLE_INCHES + SMALL_INCHES / count
    cell = LARGE_INCHES / count
    height = max(TITLE_INCHES + cell + LARGE_INCHES, rows * block) + 0.42
    plate = Plate(width=PAGE_INCHES, height=height, caption=caption)
    left = NAMES_INCHES + cell
    shown = _panel(plate, truth, batch, left, TITLE_INCHES + cell, LARGE_INCHES)
    _names(plate, batch, NAMES_INCHES - 0.04, TITLE_INCHES + cell, cell)
    first = left + LARGE_INCHES + 0.2
    step = (PAGE_INCHES - first - 0.06) / COLUMNS
    for number, method in enumerate(methods):
        row, column = divmod(number, COLUMNS)
        inner = SMALL_INCHES / count
        beside = first + column * step + inner
        _panel(plate, method, batch, beside, row * block + TITLE_INCHES + inner, SMALL_INCHES)
    _scale(plate, shown, left, height - 0.3)
    return plate.figure


def _panel(plate: Plate, relation: Relation, batch: Batch, left: float, top: float, side: float) -> AxesImage:
    """Draw one square of weights with a strip of images on its left and above."""
    from matplotlib.colors import LinearSegmentedColormap, PowerNorm

    order = batch.order
    cell = side / len(order)
    axes = plate.axes(left=left, top=top, width=side, height=side)
    weights = over_own_key(relation.weights)[np.ix_(order, order)]
    norm = PowerNorm(GAMMA, vmin=0, vmax=1)
    colours = LinearSegmentedColormap.from_list("weights", COLOURS)
    shown = axes.imshow(weights, cmap=colours, norm=norm, interpolation="nearest", aspect="auto")
    axes.set_gid(f"relation-{relation.title}")
    _boundaries(axes, batch.coarse[order], batch.fine[order])
    images = [as_pixels(batch.images[row]) for row in order.tolist()]
    beside = plate.axes(left=left - cell, top=top, width=cell * 0.94, height=side)
    above = plate.axes(left=left, top=top - cell, width=side, height=cell * 0.94)
    beside.imshow(np.concatenate(images, axis=0), aspect="auto", interpolation="antialiased")
    above.imshow(np.concatenate(images, axis=1), aspect="auto", interpolation="antialiased")
    large = side == LARGE_INCHES
    plate.write(
        left, top - cell - (0.11 if large else 0.21), relation.title, size=SMALL_POINTS + large, weight="bold"
    )
    below = [relation.settings] if relation.settings else []
    below += [] if relation.d_z is None else [f"d_z = {relation.d_z:.2f}"]
    if below:
        plate.write(left, top - cell - 0.08, "; ".join(below), size=SMALLEST_POINTS - 0.5)
    return shown


def _boundaries(axes: Axes, coarse: IntArray, fine: IntArray) -> None:
    for place in range(1, len(fine)):
        if fine[place] == fine[place - 1] and coarse[place] == coarse[place - 1]:
            continue
        outer = coarse[place] != coarse[place - 1]
        for line in (axes.axhline, axes.axvline):
            line(place - 0.5, color=INK if outer else PALE, linewidth=0.9 if outer else 0.4)
    for spine in axes.spines.values():
        spine.set(visible=True, color=INK, linewidth=0.9)


def _names(plate: Plate, batch: Batch, right: float, top: float, cell: float) -> None:
    """Write the name of each fine class beside the middle of its rows."""
    fine = batch.fine[batch.order]
    for label in dict.fromkeys(fine.tolist()):
        places = np.flatnonzero(fine == label)
        middle = top + cell * (float(places.mean()) + 0.5)
        plate.write(right, middle, shorten(batch.fine_names[label], 13), size=SMALLEST_POINTS, ha="right")


def _scale(plate: Plate, shown: AxesImage, left: float, top: float) -> None:
    """Draw the colour scale below the large panel."""
    axes = plate.axes(left=left, top=top, width=LARGE_INCHES, height=0.09)
    plate.figure.colorbar(shown, cax=axes, orientation="horizontal", ticks=TICKS, format="{x:g}")
    axes.tick_params(labelsize=SMALLEST_POINTS, colors=INK, length=0, pad=2)
    right = left + LARGE_INCHES + 0.12
    plate.write(right, top + 0.05, "weight, over that of the own key", size=SMALLEST_POINTS)
