"""The table that compares methods, from the `result.json` of runs: mean and spread over seeds, floor, ceiling."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from maskcon._utils.errors import UsageError
from maskcon._utils.text import full_title
from maskcon.report.formats import Cell, Table

Result = Mapping[str, Any]

# In the paper's order; the last is trained on fine labels and bounds the others from above.
METHOD_NAMES = {
    "selfcon": "SelfCon",
    "nnclr": "NNCLR",
    "ascl": "ASCL",
    "supce": "SupCE",
    "supcon": "SupCon",
    "grafit": "Grafit",
    "coins": "CoIns",
    "maskcon": "MaskCon",
    "bucsfr": "BuCSFR",
    "teachcon": "TeachCon",
    "supfine": "SupFINE",
}
MISSING = "–"  # noqa: RUF001 (an en dash is what is meant)

# Runs are averaged only if they agree in these; if they differ within a table, a column shows them.
SHARED_SETTINGS = {
    "source": "Data",
    "preset": "Preset",
    "epochs": "Epochs",
    "evaluated_on": "Scored on",
    "train_images": "Train images",
    "test_images": "Test images",
}
# Settings of a method, and their value in results that do not record them.
METHOD_SETTINGS: dict[str, Any] = {"w": None, "tau": None, "coarse_weight": 0.0}
SYMBOLS = {"tau": "τ"}
# Settings that other columns show.
SHOWN_ELSEWHERE = {"method", "seed", "source", "preset", "epochs", "evaluate_on", "train_limit", "test_limit"}


def shown_name(method: str, coarse_weight: float) -> str:
    """Return the title of a method, with "+ CE" where cross-entropy is added to its loss.

    >>> shown_name("maskcon", coarse_weight=0.0), shown_name("mine", coarse_weight=1.0)
    ('MaskCon', 'mine + CE')
    """
    return full_title(METHOD_NAMES.get(method, method), coarse_weight)


@dataclass(frozen=True)
class Group:
    """Runs that differ only in their seed.

    Runs are compared by METHOD_SETTINGS, and by all `settings` that their results record.
    """

    method: str
    fine_labels: bool
    shared: tuple[Any, ...]  # values of SHARED_SETTINGS
    own: tuple[tuple[str, Any], ...]  # settings and their values
    results: tuple[Result, ...]

    @property
    def name(self) -> str:
        name = shown_name(self.method, dict(self.own).get("coarse_weight") or 0.0)
        return f"{name}, fine labels" if self.fine_labels and self.method != "supfine" else name

    def recall(self, k: int) -> list[float | None]:
        """Return recall@k of each run; None where it is unknown."""
        return [_recall(result["recall"], k) for result in self.results]

    def label(self, others: Sequence[Group]) -> str:
        """Return the method's name, with the settings in which it differs from others of that name."""
        alike = [dict(other.own) for other in others if other.name == self.name]
        apart = [(key, value) for key, value in self.own if any(own.get(key) != value for own in alike)]
        if not apart:
            return self.name
        return (
            f"{self.name} ({', '.join(f'{SYMBOLS.get(key, key)}={_plain(value)}' for key, value in apart)})"
        )


def mean_and_spread(values: Sequence[float]) -> tuple[float, float | None]:
    """Compute mean and sample standard deviation (n - 1); None for a single value.

    >>> mean_and_spread([1.0, 3.0])
    (2.0, 1.4142135623730951)
    """
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None


def group_results(results: Sequence[Result]) -> list[Group]:
    """Group runs by method and settings, ordered by dataset, the paper's order of methods, then settings.

    Methods that are not in the paper come after its own, before those trained on fine labels.
    """
    runs: dict[tuple[str, bool, tuple[Any, ...], tuple[tuple[str, Any], ...]], list[Result]] = {}
    for result in results:
        method = str(result["method"])
        fine_labels = method == "supfine" or result.get("labels") == "fine"
        shared = tuple(_hashable(result.get(key)) for key in SHARED_SETTINGS)
        runs.setdefault((method, fine_labels, shared, _own(result)), []).append(result)
    groups = [Group(*key, tuple(members)) for key, members in runs.items()]
    shared_order = list(dict.fromkeys(group.shared for group in groups))
    method_order = [*METHOD_NAMES, *(g.method for g in groups if g.method not in METHOD_NAMES)]

    def place(group: Group) -> tuple[Any, ...]:
        own = [(math.inf, str(v)) if not isinstance(v, int | float) else (v, "") for _, v in group.own]
        block = shared_order.index(group.shared)
        return block, group.fine_labels, group.method == "supfine", method_order.index(group.method), own

    return sorted(groups, key=place)


def methods_table(
    results: Sequence[Result],
    ks: Sequence[int] = (1, 2, 5, 10),
    *,
    published: Mapping[str, Mapping[str, float]] | None = None,
) -> Table:
    """Tabulate recall@K in percent, one row per method: mean over seeds ± sample standard deviation.

    Raw pixels come first as the floor, then a frozen backbone alone where there is one; training on fine labels comes
    last as the ceiling. Per dataset and column the best method trained without fine labels is bold.

    Args:
        results: of one or more runs.
        ks: the columns.
        published: the paper's recall by method, `{"maskcon": {"1": 0.65}}`; adds a column for the first K.
    """
    if not results:
        raise UsageError("no results to compare; give the folder of at least one finished run")
    groups = group_results(results)
    varying = [
        index for index in range(len(SHARED_SETTINGS)) if len({group.shared[index] for group in groups}) > 1
    ]
    columns = ["Method", *(list(SHARED_SETTINGS.values())[index] for index in varying)]
    columns += [f"R@{k}" for k in ks]
    columns += [f"R@{ks[0]}, paper"] if published else []
    rows: list[list[str | Cell]] = []
    for shared in dict.fromkeys(group.shared for group in groups):
        block = [group for group in groups if group.shared == shared]
        middle = [_plain(shared[index]) for index in varying]
        rows += _block_rows(block, middle, ks, published, several=len(groups) > 1)
    by_coarse = " by coarse class" if all(r.get("scored_by") == "coarse" for r in results) else ""
    title = f"Recall@K{by_coarse} on the {scored_images(results)}, in percent"
    return Table([*columns, "n"], rows, title, _notes(groups))


def scored_images(results: Sequence[Result]) -> str:
    """Name the images that were scored.

    >>> scored_images([{"evaluated_on": "validation"}])
    'validation images'
    """
    parts = dict.fromkeys(str(result.get("evaluated_on", "test")) for result in results)
    return f"{' and '.join(parts) or 'test'} images"


def _block_rows(
    block: Sequence[Group],
    middle: list[str],
    ks: Sequence[int],
    published: Mapping[str, Mapping[str, float]] | None,
    *,
    several: bool,
) -> list[list[str | Cell]]:
    """Return the rows of one dataset: floor, methods, ceiling. several: mark the best."""
    rows: list[list[str | Cell]] = []
    for key, name in (("raw_pixels", "Raw pixels"), ("frozen_backbone", "Frozen backbone alone")):
        given = [result[key] for group in block for result in group.results if result.get(key)]
        if not given:
            continue
        # Usually one deterministic number, repeated in each run's result.
        distinct = list({json.dumps(dict(item), sort_keys=True): item for item in given}.values())
        cells = [recall_cell([_recall(item, k) for item in distinct], muted=True) for k in ks]
        paper = [Cell(MISSING, muted=True)] if published else []
        count = Cell(str(len(distinct)) if len(distinct) > 1 else MISSING, muted=True)
        rows.append([Cell(name, muted=True), *middle, *cells, *paper, count])
    best = {k: max((_shown_mean(g, k) for g in block if not g.fine_labels), default=-math.inf) for k in ks}
    for group in block:
        muted = group.fine_labels
        cells = [
            recall_cell(
                group.recall(k),
                muted=muted,
                bold=several and not muted and math.isfinite(best[k]) and _shown_mean(group, k) == best[k],
            )
            for k in ks
        ]
        paper = []
        if published:
            value = published.get(group.method, {}).get(str(ks[0]))
            paper = [recall_cell([value], muted=muted)]
        label = Cell(group.label(block), muted=muted)
        rows.append([label, *middle, *cells, *paper, Cell(str(len(group.results)), muted=muted)])
    return rows


def _notes(groups: Sequence[Group]) -> list[str]:
    notes: list[str] = []
    if any(len(group.results) > 1 for group in groups):
        notes.append("Mean ± sample standard deviation over n runs with different seeds.")
    if len(groups) > 1 and any(not group.fine_labels for group in groups):
        notes.append("Bold (or a star): the best method trained without fine labels.")
    if any(group.fine_labels for group in groups):
        notes.append("SupFINE and other runs on fine labels show what full labelling would reach.")
    for group in groups:
        seeds = [result.get("seed") for result in group.results]
        repeated = sorted({str(seed) for seed in seeds if seed is not None and seeds.count(seed) > 1})
        if repeated:
            shown = f"{group.label(groups)}: several runs with seed {', '.join(repeated)}"
            notes.append(f"{shown}; the spread over seeds is larger than shown.")
    return notes


def recall_cell(values: Sequence[float | None], *, muted: bool, bold: bool = False) -> Cell:
    """Format fractions as percent."""
    known = [100.0 * value for value in values if value is not None]
    if not known:
        return Cell(MISSING, muted=muted)
    mean, spread = mean_and_spread(known)
    text = f"{mean:.2f}" if spread is None else f"{mean:.2f} ± {spread:.2f}"
    return Cell(text, bold=bold, muted=muted, value=mean, spread=spread)


def _shown_mean(group: Group, k: int) -> float:
    """Return the mean as printed: methods that print the same number are both bold."""
    mean = recall_cell(group.recall(k), muted=False).value
    return -math.inf if mean is None else float(f"{mean:.2f}")


def _recall(recall: Mapping[Any, Any], k: int) -> float | None:
    value = recall.get(str(k), recall.get(k))
    if value is None or not math.isfinite(float(value)):
        return None
    return float(value)


def _own(result: Result) -> tuple[tuple[str, Any], ...]:
    first = [(key, result.get(key, default)) for key, default in METHOD_SETTINGS.items()]
    known = {*SHOWN_ELSEWHERE, *METHOD_SETTINGS}
    more = sorted(
        (item for item in result.get("settings", {}).items() if item[0] not in known), key=itemgetter(0)
    )
    return tuple((key, _hashable(value)) for key, value in (*first, *more))


def _hashable(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool | None) else json.dumps(value, sort_keys=True)


def _plain(value: Any) -> str:
    if value is None:
        return MISSING
    return f"{value:g}" if isinstance(value, float) else str(value)
