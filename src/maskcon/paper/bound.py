"""d_z of theorem 1 over tau, on the keys of a finished run, and whether the tau it prefers retrieves best.

A run's `encoder.safetensors` is the query backbone alone, but relations are made of keys. So d_z is read from the
run's last checkpoint: its memory bank holds the projections that the key encoder gave in the last steps of training,
which are the keys that the relations of those steps were made of. Encoding the training images again, with other
views or without the projector, would measure relations that no step used.

On one run's keys the relation of every tau can be computed (`bound_over_tau`). A run trained at another tau
has other keys; `own_distance` gives its d_z on those. Each row holds d_z in both units of `maskcon.methods.bound`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from maskcon._utils.errors import DataError, UsageError
from maskcon.api import Run
from maskcon.data import Dataset
from maskcon.methods.bound import Recipe, SampleLabels, Unit, bank_distances
from maskcon.methods.memory_bank import MemoryBank
from maskcon.methods.registry import method_named
from maskcon.training.checkpoint import load_latest
from maskcon.training.run_folder import CHECKPOINTS

TAUS = (0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, math.inf)


@dataclass(frozen=True)
class BoundRow:
    """d_z of one method with its w and tau, None where it has none."""

    method: str
    w: float | None
    tau: float | None
    d_z: float  # rows divided by their sums, as the loss sees them
    d_z_own_key: float  # own key 1, as the equations write relations


def bound_over_tau(
    run: Run,
    data: Dataset,
    taus: Sequence[float] = TAUS,
    *,
    w: float | None = None,
    grafit_w: float | None = None,
) -> list[BoundRow]:
    """Compute d_z on the keys of one finished run: MaskCon at each tau, ascending, then Grafit, SupCon and SelfCon.

    Args:
        run: a finished run of any contrastive method, with its checkpoints.
        data: what it was trained on (`maskcon.api.data_of`), with fine labels.
        taus: temperatures >= 0; 0 and ``math.inf`` are allowed.
        w: MaskCon's weight; by default the run's, or 1 where its method has none.
        grafit_w: Grafit's; by default the same.
    """
    if not taus or any(not tau >= 0 for tau in taus):
        raise UsageError(f"taus must be one or more numbers >= 0 (0 and inf are allowed), got {list(taus)}")
    mask_w = _weight(run) if w is None else w
    line_w = mask_w if grafit_w is None else grafit_w
    for weight in (mask_w, line_w):
        if not 0 <= weight <= 1:
            raise UsageError(f"w must lie in 0..1, got {weight}")
    wanted: list[tuple[str, float | None, float | None]] = [
        *(("maskcon", mask_w, tau) for tau in sorted({float(tau) for tau in taus})),
        ("grafit", line_w, None),
        ("supcon", None, None),
        ("selfcon", None, None),
    ]
    recipes = {
        str(number): Recipe(method, 1.0 if weight is None else weight, 0.0 if tau is None else tau)
        for number, (method, weight, tau) in enumerate(wanted)
    }
    by_row, by_own_key = _distances(run, data, recipes), _distances(run, data, recipes, unit="own key")
    return [BoundRow(*row, by_row[str(i)], by_own_key[str(i)]) for i, row in enumerate(wanted)]


def own_distance(run: Run, data: Dataset, tau: float) -> float:
    """Compute d_z of MaskCon's relation at `tau` on the run's own keys, with its own w.

    For the run of tau = inf, which may be kept as a run of Grafit, pass ``math.inf``: the relation is the same.
    """
    return _distances(run, data, {"": Recipe("maskcon", _weight(run), tau)})[""]


def bound_and_recalls(
    runs_by_tau: Mapping[float, Sequence[Run]], reference_run: Run, data: Dataset
) -> tuple[list[BoundRow], dict[float, list[float]], dict[float, list[float]]]:
    """Collect what `bound_figure` draws: rows over tau, and recall@1 and own d_z of the runs by tau.

    Args:
        runs_by_tau: finished MaskCon runs by their tau, one or several seeds each; they must share w. May be empty:
            then there is no recall to compare with.
        reference_run: whose keys the rows are of; often the run at a middle tau, or a SelfCon run.
        data: what all of them were trained on, with fine labels.
    """
    weights = {_weight(run) for runs in runs_by_tau.values() for run in runs}
    if len(weights) > 1:
        raise UsageError(f"runs to compare over tau must share one w, these have {sorted(weights)}")
    shared_w = weights.pop() if weights else None
    rows = bound_over_tau(reference_run, data, [*TAUS, *runs_by_tau], w=shared_w)
    recalls = {tau: [run.recall[1] for run in runs] for tau, runs in runs_by_tau.items()}
    own = {tau: [own_distance(run, data, tau) for run in runs] for tau, runs in runs_by_tau.items()}
    return rows, recalls, own


def _weight(run: Run) -> float:
    """Return the w of a run, 1 where its method has none."""
    return run.config.w if method_named(run.config.method).uses_w else 1.0


def _distances(
    run: Run, data: Dataset, recipes: Mapping[str, Recipe], unit: Unit = "row"
) -> dict[str, float]:
    """Compute d_z of recipes on the bank of a run's newest whole checkpoint."""
    train = data.train
    if train.fine is None:
        raise DataError(f"d_z compares relations with fine labels, and {data.name} has none")
    bank = bank_of_run(run)
    labels = SampleLabels(*(torch.from_numpy(part) for part in (train.index, train.coarse, train.fine)))
    return bank_distances(
        recipes, bank.compared, bank.index, labels, exclude_own_keys=run.config.exclude_own_keys, unit=unit
    )


def bank_of_run(run: Run) -> MemoryBank:
    """Load the memory bank of a run's last checkpoint."""
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
