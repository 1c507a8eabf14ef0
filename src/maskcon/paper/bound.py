"""d_z of theorem 1 over tau, on the keys of a finished run, and whether the tau it prefers retrieves best.

A run's `encoder.safetensors` is the query backbone alone, but relations are made of keys. So d_z is read from the
run's last checkpoint: its memory bank holds the projections that the key encoder gave in the last steps of training,
which are the keys that the relations of those steps were made of. Encoding the training images again, with other
views or without the projector, would measure relations that no step used.

On one run's keys the relation of every tau can be computed (`bound_over_tau`). A run trained at another tau
has other keys; `own_distance` gives its d_z on those. Each row holds d_z in both units of `maskcon.methods.bound`.
`bound_panels` draws d_z over tau above recall@1 over tau.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch

from maskcon._utils.errors import DataError, UsageError
from maskcon.api import Run
from maskcon.config.settings import RunConfig
from maskcon.data import Dataset, ImageSet
from maskcon.methods.bound import Recipe, SampleLabels, Unit, bank_distances
from maskcon.methods.memory_bank import MemoryBank
from maskcon.methods.registry import method_named
from maskcon.paper.heatmap import TAU_AXIS
from maskcon.paper.plans import Trial, with_seeds
from maskcon.paper.runs import Drawn, Setup, as_csv, shown_tau
from maskcon.report.style import (
    FONT_POINTS,
    HEIGHT_INCHES,
    INK,
    PALE,
    WIDTH_INCHES,
    Plate,
    label_ends,
    series_looks,
    style_axes,
)
from maskcon.training.callbacks import Callback
from maskcon.training.checkpoint import load_latest
from maskcon.training.run_folder import CHECKPOINTS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
    """Collect what `bound_panels` draws: rows over tau, and recall@1 and own d_z of the runs by tau.

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
    labels = _labels(train)
    return bank_distances(
        recipes, bank.compared, bank.index, labels, exclude_own_keys=run.config.exclude_own_keys, unit=unit
    )


class BoundTracker(Callback):
    """Compute d_z of theorem 1 at each evaluation of a run; changes no weights.

    `found` maps the step of an evaluation to d_z of the run's method ("run") and of others on the same keys, with the w
    that is set, also while the relation warm-up still holds it down. It stays empty for a method without relations.

        tracker = BoundTracker()
        maskcon.fit("embedded", method="maskcon", announce=tracker)
        tracker.found
    """

    def __init__(self) -> None:
        self.found: dict[int, dict[str, float]] = {}
        self._bank: MemoryBank | None = None

    def on_begin(self, config: RunConfig, data: Dataset, done: int, total: int) -> None:  # noqa: ARG002
        if data.train.fine is None:
            raise DataError(f"d_z compares relations with fine labels, and {data.name} has none")
        self._config, self._train = config, data.train

    def on_bank(self, bank: MemoryBank) -> None:
        self._bank = bank

    def on_evaluation(self, values: Mapping[str, Any]) -> None:
        if self._bank is None:
            return
        config, bank = self._config, self._bank
        names = {"run": config.method} | {name: name for name in ("selfcon", "supcon", "grafit", "maskcon")}
        self.found[values["step"]] = bank_distances(
            {name: Recipe(method, config.w, config.tau) for name, method in names.items()},
            bank.compared,
            bank.index,
            _labels(self._train, bank.index.device),
            exclude_own_keys=config.exclude_own_keys,
        )


def _labels(train: ImageSet, device: torch.device | str = "cpu") -> SampleLabels:
    assert train.fine is not None  # checked before
    parts = (train.index, train.coarse, train.fine)
    return SampleLabels(*(torch.from_numpy(part).to(device) for part in parts))


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


Values = Mapping[float, Sequence[float]]  # tau -> one value a run
NO_RUNS: Values = MappingProxyType({})

W = 1.0  # where the relation is all that is learnt from
REFERENCE_TAU = 0.1  # d_z over tau is measured on the keys of this run: the paper advises tau = tau0
TRIALS = tuple(Trial("maskcon", W, tau) for tau in TAU_AXIS)
LINES = {"grafit": ("Grafit", (0, (5, 2))), "selfcon": ("SelfCon", (0, (1, 1.5)))}  # title, dashes


@dataclass(frozen=True)
class BestTaus:
    """The taus with the smallest d_z and the one with the largest mean recall@1; the smaller tau of a tie."""

    by_d_z: float  # on the keys of one run
    by_d_z_own_key: float  # the same in units of the own key
    by_d_z_of_runs: float | None  # of each run on its own keys
    by_recall: float | None

    def sentence(self) -> str:
        """Summarise the result in one line.

        >>> BestTaus(0.5, 0.2, None, 0.05).sentence()
        'best tau by d_z: 0.5, in units of the own key 0.2; by recall@1: 0.05, the choice of none of these'
        """
        text = f"best tau by d_z: {self.by_d_z:g}, in units of the own key {self.by_d_z_own_key:g}"
        choices = {"first": self.by_d_z, "second": self.by_d_z_own_key}
        if self.by_d_z_of_runs is not None:
            text += f", of each run on its own keys {self.by_d_z_of_runs:g}"
            choices["third"] = self.by_d_z_of_runs
        if self.by_recall is None:
            return text
        agreeing = [which for which, tau in choices.items() if tau == self.by_recall]
        if agreeing in ([], list(choices)):
            chosen = f"{'all' if agreeing else 'none'} of these"
        else:
            chosen = f"the {' and the '.join(agreeing)} alone"
        return f"{text}; by recall@1: {self.by_recall:g}, the choice of {chosen}"


def best_taus(rows: Sequence[BoundRow], recalls: Values = NO_RUNS, own: Values = NO_RUNS) -> BestTaus:
    """Best tau by d_z and by recall. With runs at several taus, d_z chooses among those only, as recall must."""
    curve = _curve(rows)
    if len(recalls) > 1 and set(recalls) <= set(curve):
        curve = {tau: row for tau, row in curve.items() if tau in recalls}
    return BestTaus(
        _smallest({tau: row.d_z for tau, row in curve.items()}),
        _smallest({tau: row.d_z_own_key for tau, row in curve.items()}),
        _smallest(_means(own)) if own else None,
        _smallest({tau: -share for tau, share in _means(recalls).items()}) if recalls else None,
    )


def bound_panels(
    rows: Sequence[BoundRow], recalls: Values = NO_RUNS, own: Values = NO_RUNS, *, caption: str = ""
) -> Figure:
    """Draw d_z of MaskCon over tau, Grafit and SelfCon as horizontal lines, in both units; below, recall@1.

    The best tau of each panel is starred: the best of those that were trained, where several were.

    Args:
        rows: from `bound_over_tau`.
        recalls: recall@1 (fractions) of runs trained at each tau; empty leaves the lowest panel out.
        own: d_z of those runs, each on its own keys; drawn as rings.
        caption: words below the figure.

    The steps of the horizontal axis are equal, whatever the taus: 0 and infinity have no place on a scale.
    """
    taus = sorted({*_curve(rows), *recalls, *own})
    panels = 3 if recalls else 2
    height = HEIGHT_INCHES * 0.72 * panels
    plate = Plate(width=WIDTH_INCHES, height=height, caption=caption)
    upper, middle, *lower = plate.figure.subplots(panels, 1, sharex=True)
    bottom = 1 - (height - 0.45) / plate.height  # above the caption, with room for the name of the axis
    plate.figure.subplots_adjust(left=0.12, top=1 - 0.1 / plate.height, bottom=bottom, hspace=0.1)
    best = best_taus(rows, recalls, own)
    style_axes(upper, "", "", "d_z")
    _draw_distances(upper, rows, taus, best.by_d_z, "d_z")
    if own:
        _draw_rings(upper, own, taus)
    style_axes(middle, "", "", "d_z, own key = 1")
    _draw_distances(middle, rows, taus, best.by_d_z_own_key, "d_z_own_key")
    for axes in lower:
        style_axes(axes, "", "", "recall@1, %")
        _draw_recalls(axes, recalls, taus, best)
    last = lower[0] if lower else middle
    last.set_xlabel("tau", fontsize=FONT_POINTS, color=INK)
    last.set_xticks(range(len(taus)), [shown_tau(tau) for tau in taus])
    last.set_xlim(-0.35, len(taus) - 0.65)
    return plate.figure


def csv_text(rows: Sequence[BoundRow], recalls: Values = NO_RUNS, own: Values = NO_RUNS) -> str:
    """Format the numbers as CSV, one line per method and tau; recall and own d_z are means over runs."""
    header = [
        "method", "w", "tau", "d_z", "d_z_own_key_1", "d_z_of_runs", "recall_at_1", "recall_at_1_sd", "runs"
    ]  # fmt: skip
    lines = []
    for row in rows:
        tau = row.tau if row.method == "maskcon" and row.tau is not None else math.nan  # NaN is in no mapping
        shares, theirs = recalls.get(tau, ()), own.get(tau, ())
        lines.append(
            [
                row.method,
                "" if row.w is None else f"{row.w:g}",
                "" if row.tau is None else f"{row.tau:g}",
                f"{row.d_z:.6f}",
                f"{row.d_z_own_key:.6f}",
                f"{statistics.fmean(theirs):.6f}" if theirs else "",
                f"{statistics.fmean(shares):.6f}" if shares else "",
                f"{statistics.stdev(shares):.6f}" if len(shares) > 1 else "",
                len(shares) or "",
            ]
        )
    return as_csv(header, lines)


def _draw_distances(
    axes: Axes, rows: Sequence[BoundRow], taus: Sequence[float], best: float, field: str
) -> None:
    """Draw MaskCon's curve with its star, the other methods as horizontal lines, names at the ends."""
    curve = {tau: getattr(row, field) for tau, row in _curve(rows).items()}
    colour, marker = series_looks(["MaskCon"])["MaskCon"]
    places = [taus.index(tau) for tau in curve]
    axes.plot(places, list(curve.values()), color=colour, marker=marker, markersize=4, linewidth=1.6)
    _mark(axes, taus.index(best), curve[best], colour)
    ends = [(curve[max(curve)], "MaskCon", colour)]
    for row in rows:
        if row.method in LINES:
            title, dashes = LINES[row.method]
            line_colour, _ = series_looks([title])[title]
            value = getattr(row, field)
            axes.axhline(value, color=line_colour, linewidth=1.4, linestyle=dashes)
            ends.append((value, title if row.w is None else f"{title}, w = {row.w:g}", line_colour))
    label_ends(axes, ends)


def _draw_rings(axes: Axes, own: Values, taus: Sequence[float]) -> None:
    """Draw d_z of the runs on their own keys as rings, with a legend."""
    for number, (tau, values) in enumerate(own.items()):
        axes.plot(
            [taus.index(tau)] * len(values),
            values,
            linestyle="none",
            marker="o",
            markersize=9,
            markerfacecolor="none",
            markeredgecolor=INK,
            zorder=6,
            label="trained at this tau: on its own keys" if number == 0 else None,
        )
    axes.legend(
        loc="upper right",
        bbox_to_anchor=(1.0, 0.9),  # under the line of SelfCon
        fontsize=FONT_POINTS - 1,
        frameon=False,
        labelcolor=INK,
        handletextpad=0.2,
    )


def _draw_recalls(axes: Axes, recalls: Values, taus: Sequence[float], best: BestTaus) -> None:
    """Draw mean recall@1 ± one sample standard deviation, a star, and the tau that d_z selects."""
    ordered = sorted(recalls)
    means = [100 * statistics.fmean(recalls[tau]) for tau in ordered]
    spreads = [100 * statistics.stdev(recalls[tau]) if len(recalls[tau]) > 1 else 0.0 for tau in ordered]
    colour, marker = series_looks(["MaskCon"])["MaskCon"]
    axes.errorbar(
        [taus.index(tau) for tau in ordered],
        means,
        yerr=spreads if any(spreads) else None,
        color=colour,
        marker=marker,
        markersize=4,
        linewidth=1.6,
        capsize=2,
    )
    assert best.by_recall is not None  # there are recalls
    _mark(axes, taus.index(best.by_recall), means[ordered.index(best.by_recall)], colour)
    choices: dict[float, list[str]] = {}
    for tau, name in ((best.by_d_z, "d_z"), (best.by_d_z_own_key, "d_z, own key = 1")):
        if tau != best.by_recall:
            choices.setdefault(tau, []).append(name)
    for number, (tau, names) in enumerate(choices.items()):
        place = taus.index(tau)
        on_the_left = place >= len(taus) / 2  # where there is room for the words
        axes.axvline(place, color=PALE, linewidth=1.2, linestyle=(0, (2, 2)))
        axes.annotate(
            f"smallest {' and '.join(names)}",
            (place, 0.05 + 0.12 * number),
            xycoords=("data", "axes fraction"),
            xytext=(-3 if on_the_left else 3, 0),
            textcoords="offset points",
            ha="right" if on_the_left else "left",
            fontsize=FONT_POINTS - 1,
            color=INK,
        )


def _mark(axes: Axes, place: int, value: float, colour: str) -> None:
    """Mark the best with a star; its dark rim is visible without colour."""
    axes.plot([place], [value], marker="*", markersize=13, color=colour, markeredgecolor=INK, zorder=5)


def _curve(rows: Sequence[BoundRow]) -> dict[float, BoundRow]:
    """Return MaskCon's rows by tau, ascending."""
    curve = {row.tau: row for row in rows if row.method == "maskcon" and row.tau is not None}
    if not curve:
        raise UsageError("there is no row of MaskCon to draw over tau")
    return dict(sorted(curve.items()))


def _means(values: Values) -> dict[float, float]:
    return {tau: statistics.fmean(given) for tau, given in values.items()}


def _smallest(values: Mapping[float, float]) -> float:
    return min(sorted(values), key=lambda tau: values[tau])


def draw(setup: Setup) -> Drawn:
    """Draw d_z and recall@1 over tau from the runs of the figure."""
    runs_by_tau = {
        tau: [setup.open(one) for one in with_seeds(Trial("maskcon", W, tau), setup.seeds)]
        for tau in TAU_AXIS
    }
    reference = runs_by_tau[REFERENCE_TAU][0]
    data = setup.data_of([reference, *(run for runs in runs_by_tau.values() for run in runs)])
    rows, recalls, own = bound_and_recalls(runs_by_tau, reference, data)
    text = (
        f"d_z over τ at w = {W:g}, on the keys of the run of τ = {REFERENCE_TAU:g}: of relations as the loss "
        "sees them, rows divided by their sums (top), and as the equations write them (middle). Bottom: recall@1 on "
        "the test images. Stars: the best τ among those trained."
    )
    figure = bound_panels(rows, recalls, own, caption=setup.caption(reference, text))
    paths = setup.write(figure, "csv", csv_text(rows, recalls, own))
    return paths, best_taus(rows, recalls, own).sentence()
