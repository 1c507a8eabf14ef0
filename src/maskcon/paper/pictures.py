"""The figures that need trained runs: runs in, PNG, SVG and the numbers out."""

from __future__ import annotations

import csv
import io
import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.errors import DataError
from maskcon.api import Run, data_of
from maskcon.config.settings import Machine
from maskcon.data import Dataset
from maskcon.paper.bound import bound_and_recalls
from maskcon.paper.figures import (
    BOUND_W,
    REFERENCE_TAU,
    TAU_AXIS,
    W_AXIS,
    PaperFigure,
    caption_for,
    paper_trial,
)
from maskcon.paper.plans import Trial, with_seeds
from maskcon.paper.relations import relations_figure
from maskcon.paper.runs import PlannedRun
from maskcon.paper.scales import Ground
from maskcon.report.bound import best_taus, csv_text, draw
from maskcon.report.figures import save
from maskcon.report.map_panels import Classes, map_panels
from maskcon.report.maps import map_2d
from maskcon.report.published import appendix_rows
from maskcon.report.retrieval_sheet import Query, retrieval_sheet
from maskcon.report.settings_heatmap import Grid, settings_heatmap
from maskcon.report.tables import METHOD_NAMES
from maskcon.retrieval.nearest import nearest_others, unit_rows
from maskcon.training.checkpoint import write_atomically

QUERIES = 3
NEIGHBOURS = 10
QUERY_SEED = 0


@dataclass(frozen=True)
class Setup:
    """What a figure is made from: its ground, its finished runs, and where the files go."""

    figure: PaperFigure
    ground: Ground
    runs: Mapping[Trial, PlannedRun]
    seeds: int
    folder: Path
    machine: Machine

    @property
    def stem(self) -> Path:
        return self.folder / self.figure.name

    def opened(self, trial: Trial) -> Run:
        return Run.open(self.runs[trial.canonical()].folder)

    def methods(self) -> dict[str, Run]:
        """Title -> run of each method of the figure."""
        assert self.figure.source is not None  # only such figures have methods
        return {
            METHOD_NAMES[method]: self.opened(paper_trial(self.figure.source, method))
            for method in self.figure.methods
        }

    def settings(self) -> str:
        """The w and tau of the figure's methods, in words."""
        assert self.figure.source is not None  # as above
        trials = [paper_trial(self.figure.source, method) for method in self.figure.methods]
        told = [
            f"{METHOD_NAMES[trial.method]} w = {trial.w:g}"
            + ("" if trial.tau is None else f", τ = {trial.tau:g}")
            + _same_as(trial)
            for trial in trials
            if trial.w is not None
        ]
        return f"Settings of the paper's table: {'; '.join(told)}."

    def caption(self, run: Run, words: str) -> str:
        return caption_for(self.ground, run.config, run.result, self.seeds, words)

    def with_numbers(self, figure: Any, ending: str, numbers: str) -> list[Path]:
        """Write the figure and, beside it, its numbers."""
        paths = [*save(figure, self.stem), self.stem.with_suffix(f".{ending}")]
        write_atomically(paths[-1], numbers.encode())
        return paths


def _same_as(trial: Trial) -> str:
    """Which method without a w this is the very run of, in words; none for most.

    >>> _same_as(Trial("coins", 1.0)), _same_as(Trial("coins", 0.8))
    (' (that is SupCE)', '')
    """
    same = [name for name in ("selfcon", "supcon", "supce") if Trial(name).canonical() == trial.canonical()]
    return f" (that is {METHOD_NAMES[same[0]]})" if same else ""


def make(setup: Setup) -> tuple[list[Path], str]:
    """Draw the figure of finished runs; the files written, and one line of what is to be seen."""
    makers: dict[str, Callable[[Setup], tuple[list[Path], str]]] = {
        "relations": _relations,
        "heatmap": _heatmap,
        "tsne": _tsne,
        "retrieval": _retrieval,
        "bound": _bound,
    }
    return makers[setup.figure.name](setup)


def _relations(setup: Setup) -> tuple[list[Path], str]:
    run = next(iter(setup.methods().values()))
    data = data_of(run, setup.machine)
    figure, numbers = relations_figure(
        run, data, settings=_paper_settings(setup), caption=lambda words: setup.caption(run, words)
    )
    text = json.dumps(numbers, indent=1, allow_nan=False) + "\n"
    distances = ", ".join(f"{title} {d_z:.2f}" for title, d_z in numbers["d_z"].items())
    return setup.with_numbers(figure, "json", text), f"distance from the fine labels' relation: {distances}"


def _paper_settings(setup: Setup) -> dict[str, tuple[float | None, float | None]]:
    """Method -> (w, tau) of the paper's table for the data set asked for."""
    trials = {method: paper_trial(setup.ground.asked, method) for method in ("grafit", "maskcon")}
    return {method: (trial.w, trial.tau) for method, trial in trials.items()}


def _heatmap(setup: Setup) -> tuple[list[Path], str]:
    shares = {
        (w, tau): [setup.opened(one).recall[1] for one in with_seeds(Trial("maskcon", w, tau), setup.seeds)]
        for w in W_AXIS
        for tau in TAU_AXIS
    }
    means = np.array([[100 * statistics.fmean(shares[w, tau]) for tau in TAU_AXIS] for w in W_AXIS])
    spreads = None
    if setup.seeds > 1:
        spreads = np.array([[100 * statistics.stdev(shares[w, tau]) for tau in TAU_AXIS] for w in W_AXIS])
    paper = paper_grid(setup.ground.asked)
    grids = [Grid("Ours: recall@1, %", means, spreads)]
    words = "Recall@1 on the test images over w and τ; framed: the best, chosen on these very images."
    if setup.ground.warning is None:
        grids.append(Grid("Paper: recall@1, %", paper))
        words += " Paper: what its appendix B prints; a dash where it prints no number."
    run = setup.opened(Trial("maskcon", 1.0, 0.1))
    figure = settings_heatmap(grids, W_AXIS, TAU_AXIS, caption=setup.caption(run, words))
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["data", "w", "tau", "recall_at_1", "sd", "runs", "paper_recall_at_1"])
    for row, w in enumerate(W_AXIS):
        for column, tau in enumerate(TAU_AXIS):
            spread = "" if spreads is None else f"{spreads[row, column]:.2f}"
            printed = "" if math.isnan(paper[row, column]) else f"{paper[row, column]:.2f}"
            mean = f"{means[row, column]:.2f}"
            writer.writerow([setup.ground.title, f"{w:g}", f"{tau:g}", mean, spread, setup.seeds, printed])
    row, column = grids[0].best
    best = f"w = {W_AXIS[row]:g}, tau = {TAU_AXIS[column]:g}: {means[row, column]:.2f} %"
    said = f"best on the test images (oracle): {best}"
    return setup.with_numbers(figure, "csv", stream.getvalue()), said


def paper_grid(source: str) -> NDArray[np.float64]:
    """The paper's recall@1 in percent over `W_AXIS` and `TAU_AXIS`, NaN where appendix B has no row.

    >>> paper_grid("cifar100")[4].tolist()
    [nan, 61.41, 65.52, 62.52, 59.76, 58.65]
    """
    printed = {Trial(row.method, row.w, row.tau).canonical(): row.percent[0] for row in appendix_rows(source)}
    return np.array(
        [[printed.get(Trial("maskcon", w, tau).canonical(), math.nan) for tau in TAU_AXIS] for w in W_AXIS]
    )


def _tsne(setup: Setup) -> tuple[list[Path], str]:
    runs = setup.methods()
    first = next(iter(runs.values()))
    data, fine = _test_part(setup, list(runs.values()))
    maps, notes = {}, {}
    for title, run in runs.items():
        maps[title] = map_2d(run.encode_set(data.test, device=setup.machine.device).numpy())
        notes[title] = f"R@1 {100 * run.recall[1]:.1f}"
    words = (
        f"t-SNE of the features of {len(fine):,} test images; one colour a fine class, one marker a coarse class. "
        f"R@1: recall@1 on them, %. {setup.settings()}"
    )
    classes = Classes(data.test.coarse, fine, data.coarse_names, data.fine_names or ())
    figure = map_panels(maps, classes, notes=notes, caption=setup.caption(first, words))
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["method", "sample", "coarse", "fine", "x", "y"])
    for title, points in maps.items():
        for row, (x, y) in enumerate(points.tolist()):
            part = data.test
            writer.writerow(
                [title, int(part.index[row]), int(part.coarse[row]), int(fine[row]), f"{x:.3f}", f"{y:.3f}"]
            )
    said = "recall@1: " + ", ".join(f"{title} {note.removeprefix('R@1 ')}" for title, note in notes.items())
    return setup.with_numbers(figure, "csv", stream.getvalue()), said


def _retrieval(setup: Setup) -> tuple[list[Path], str]:
    runs = setup.methods()
    data, fine = _test_part(setup, list(runs.values()))
    asked = queries_from(data.test.coarse, fine, QUERIES)
    if not len(asked):
        raise DataError(
            f"no two of the {len(fine)} test images share a fine class: there is nothing to be found"
        )
    found: dict[str, NDArray[np.int64]] = {}
    for title, run in runs.items():
        features = run.encode_set(data.test, device=setup.machine.device)
        found[title] = nearest_others(unit_rows(features.numpy()), asked, NEIGHBOURS)[0]
    depth = min(NEIGHBOURS, len(fine) - 1)
    right = {title: fine[near] == fine[asked][:, None] for title, near in found.items()}  # [Q, depth]
    names = data.fine_names or ()
    queries = [
        Query(
            data.test.picture(row),
            f"{names[fine[row]]} / {data.coarse_names[data.test.coarse[row]]}",
            {
                title: (
                    [data.test.picture(other) for other in near[place].tolist()],
                    right[title][place].tolist(),
                )
                for title, near in found.items()
            },
        )
        for place, row in enumerate(asked.tolist())
    ]
    words = (
        f"The {depth} nearest of {len(fine):,} test images by each method. Tick: of the query's fine class. "
        f"Queries are drawn at random (seed {QUERY_SEED}), each from another coarse class; none was picked by hand. "
        f"{setup.settings()}"
    )
    figure = retrieval_sheet(queries, caption=setup.caption(next(iter(runs.values())), words))
    part = data.test
    numbers = {
        "queries": [
            {
                "sample": int(part.index[row]),
                "fine": int(fine[row]),
                "neighbours": {title: part.index[near[place]].tolist() for title, near in found.items()},
                "right": {title: int(hits[place].sum()) for title, hits in right.items()},
            }
            for place, row in enumerate(asked.tolist())
        ]
    }
    said = f"right of {depth * len(asked)}: " + ", ".join(
        f"{title} {int(hits.sum())}" for title, hits in right.items()
    )
    return setup.with_numbers(figure, "json", json.dumps(numbers, indent=1) + "\n"), said


def queries_from(
    coarse: NDArray[np.int64], fine: NDArray[np.int64], count: int, seed: int = QUERY_SEED
) -> NDArray[np.int64]:
    """Rows to ask for, drawn at random: each of another coarse class, none the only image of its fine class.

    Fewer than `count` where there are fewer such coarse classes.
    """
    sizes = np.bincount(fine)
    chosen: dict[int, int] = {}
    for row in np.random.default_rng(seed).permutation(len(fine)).tolist():
        if sizes[fine[row]] > 1:
            chosen.setdefault(int(coarse[row]), row)
    return np.array(list(chosen.values())[:count], dtype=np.int64)


def _bound(setup: Setup) -> tuple[list[Path], str]:
    runs_by_tau = {
        tau: [setup.opened(one) for one in with_seeds(Trial("maskcon", BOUND_W, tau), setup.seeds)]
        for tau in TAU_AXIS
    }
    reference = runs_by_tau[REFERENCE_TAU][0]
    data = _shared_data(setup, [reference, *(run for runs in runs_by_tau.values() for run in runs)])
    rows, recalls, own = bound_and_recalls(runs_by_tau, reference, data)
    words = (
        f"d_z over τ at w = {BOUND_W:g}, on the keys of the run of τ = {REFERENCE_TAU:g}: of relations as the loss "
        "sees them, rows divided by their sums (top), and as the equations write them (middle). Bottom: recall@1 on "
        "the test images. Stars: the best τ among those trained."
    )
    figure = draw(rows, recalls, own, caption=setup.caption(reference, words))
    paths = setup.with_numbers(figure, "csv", csv_text(rows, recalls, own))
    return paths, best_taus(rows, recalls, own).sentence()


def _test_part(setup: Setup, runs: Sequence[Run]) -> tuple[Dataset, NDArray[np.int64]]:
    """The data whose test images all runs were scored on, and the fine labels of those."""
    data = _shared_data(setup, runs)
    if data.test.fine is None:
        raise DataError(f"{data.name} has no fine labels to colour or judge by")
    return data, data.test.fine


def _shared_data(setup: Setup, runs: Sequence[Run]) -> Dataset:
    """The data that all these runs were trained and scored on."""
    strangers = [run.folder for run in runs if run.result["data"] != runs[0].result["data"]]
    if strangers:
        raise DataError(
            f"{strangers[0]} was trained on other data than {runs[0].folder}; delete the older of the two folders"
        )
    return data_of(runs[0], setup.machine)
