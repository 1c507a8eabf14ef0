"""A table of the paper with our results beside it, as text, Markdown, LaTeX and CSV."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from maskcon._utils.files import write_atomically
from maskcon._utils.text import counted
from maskcon.config.settings import VALIDATION_FRACTION, RunConfig
from maskcon.paper.ground import Ground
from maskcon.paper.plans import (
    CHOICE_SEED,
    IMAGENET_GRID,
    PaperTable,
    Trial,
    candidates,
    on_validation,
    with_seeds,
)
from maskcon.paper.runs import PlannedRun, start_of
from maskcon.report.formats import Cell, Table
from maskcon.report.published import PublishedRow, appendix_rows, main_rows, published_notes
from maskcon.report.tables import METHOD_NAMES, MISSING, recall_cell
from maskcon.training.run_folder import make_writable

Result = Mapping[str, Any]


def notes_for(table: PaperTable, ground: Ground, config: RunConfig, result: Result, seeds: int) -> list[str]:
    """Write the notes of one dataset's section, the most important first."""
    notes = [ground.warning] if ground.warning else []
    ramp = config.relation_warmup_epochs
    epochs = counted(config.epochs, "epoch")
    notes.append(
        f"Ours: scale {ground.scale}, preset {config.preset}, {result['source']} with {result['train_images']:,} "
        f"training and {result['test_images']:,} test images, {config.backbone} of width {config.width} from "
        f"{start_of(config)}, {epochs} in batches of {config.batch_size}, a bank of {config.bank_size:,}."
    )
    if ramp:
        notes[-1] += f" w of Grafit (so of SupCon too) and MaskCon rises from 0 over {ramp:g} epochs."
    spread = f"Mean ± sample standard deviation over {seeds} seeds."
    spread = "One seed: differences of a few points may be chance." if seeds == 1 else spread
    notes.append(spread + ("" if ground.stands_in else " diff: ours minus the paper's, in points."))
    if table.kind == "main":
        notes.append(
            "Chosen by test (oracle): the w and tau with the best recall@1 on the test images, as the paper reports "
            "them, which is impossible without test labels. Chosen by validation: the best recall@1 on a share of "
            f"{VALIDATION_FRACTION:g} of the training images, held out (seed {CHOICE_SEED}), then trained on all."
        )
        notes.append(_paper_settings(ground.asked))
    notes.append("SupCon is Grafit with w = 1 and SupCE is CoIns with w = 1: one run serves both.")
    return notes + published_notes(ground.asked, table.kind)


def _paper_settings(source: str) -> str:
    chosen = [
        f"{METHOD_NAMES[row.method]} w={row.w:g}" + ("" if row.tau is None else f" tau={row.tau:g}")
        for row in main_rows(source)
        if row.w is not None
    ]
    if chosen:
        return f"The paper's own settings: {', '.join(chosen)}."
    grid = ", ".join(f"({w:g}, {tau:g})" for w, tau in IMAGENET_GRID)
    return f"The paper does not name its settings here; the (w, tau) tried for MaskCon are ours: {grid}."


KS = (1, 2, 5, 10)
ORACLE, HONEST = "test (oracle)", "validation"


@dataclass(frozen=True)
class Line:
    """One row: a method, how its w and tau were chosen, our results (one per seed), the paper's percentages."""

    name: str
    w: float | None
    tau: float | None
    chosen_by: str
    results: tuple[Result, ...]
    paper: tuple[float, ...] | None
    muted: bool = False  # the floor and the ceiling
    group: str = ""  # rows among which the best is bold

    def ours(self, k: int, *, bold: bool = False) -> Cell:
        """Return mean and spread of recall@k in percent."""
        shares = [float(result["recall"][str(k)]) for result in self.results]
        return recall_cell(shares, muted=self.muted, bold=bold)


@dataclass(frozen=True)
class Section:
    """The part of a table for one dataset."""

    ground: Ground
    title: str
    lines: tuple[Line, ...]
    notes: tuple[str, ...]


def section_for(table: PaperTable, ground: Ground, runs: Mapping[Trial, PlannedRun], seeds: int) -> Section:
    """Read the finished runs of one dataset and pair them with the paper's rows.

    Args:
        table: which table.
        ground: data and settings of the runs.
        runs: the run of every trial that `plans.trials_of` names.
        seeds: how many seeds each trial was run with.
    """

    def results_of(trial: Trial) -> tuple[Result, ...]:
        return tuple(runs[one.canonical()].result() for one in with_seeds(trial, seeds))

    def on_test(trial: Trial) -> float:  # the paper selects by this, which needs test labels
        return fmean(result["recall"]["1"] for result in results_of(trial))

    def validated(trial: Trial) -> float:
        return float(runs[on_validation(trial).canonical()].result()["recall"]["1"])

    def line(row: PublishedRow, trial: Trial, chosen_by: str = "", group: str = "") -> Line:
        name, muted = METHOD_NAMES[row.method], row.method == "supfine"
        return Line(name, trial.w, trial.tau, chosen_by, results_of(trial), row.percent, muted, group)

    lines: list[Line] = []
    if table.kind == "appendix":
        for row in appendix_rows(ground.asked):
            lines.append(line(row, Trial(row.method, row.w, row.tau), group=row.method))
    else:
        for row in main_rows(ground.asked):
            choices = candidates(ground.asked, row.method)
            if len(choices) == 1:
                lines.append(line(row, choices[0]))
            else:
                lines.append(line(row, max(choices, key=on_test), ORACLE))
                lines.append(line(row, max(choices, key=validated), HONEST))
    some = lines[0].results[0]
    floor = Line("Raw pixels", None, None, "", ({"recall": some["raw_pixels"]},), None, muted=True)
    config = next(iter(runs.values())).config
    notes = notes_for(table, ground, config, some, seeds)
    title = f"{table.title}, {ground.title}: recall@K in percent, ours and the paper's"
    return Section(ground, title, (floor, *lines), tuple(notes))


def as_table(
    sections: Sequence[Section], ks: Sequence[int] = KS, *, full_names: bool = False, title: str = ""
) -> Table:
    """Combine the rows of one or several datasets; full_names: unambiguous column names (CSV)."""
    columns = ["Method", "w", "τ"]
    columns = ["Data", *columns] if full_names else columns
    chosen = any(line.chosen_by for section in sections for line in section.lines)
    columns += ["chosen by"] if chosen else []
    for k in ks:
        prefix = f"R@{k} " if full_names else ""
        columns += [f"R@{k}", f"{prefix}paper", f"{prefix}diff"]
    rows: list[list[str | Cell]] = []
    for section in sections:
        best = _best(section.lines, ks)
        for line in section.lines:
            head = [Cell(section.ground.title)] if full_names else []
            head += [Cell(line.name, muted=line.muted), _setting(line.w), _setting(line.tau)]
            head += [Cell(line.chosen_by or MISSING)] if chosen else []
            comparable = not section.ground.stands_in
            cells = [cell for k in ks for cell in _recall_cells(line, k, best, comparable)]
            rows.append([*head, *cells, str(len(line.results))])
    notes = [note for section in sections for note in section.notes]
    return Table([*columns, "n"], rows, title, list(dict.fromkeys(notes)))


def as_records(sections: Sequence[Section]) -> list[dict[str, str | float | None]]:
    """Convert the rows to plain values by column name, for `--json`; None where there is no value."""
    table = as_table(sections, full_names=True)
    records = []
    for row in table.rows:
        cells = [cell if isinstance(cell, Cell) else Cell(cell) for cell in row]
        values = [
            None if c.text == MISSING else c.text if c.value is None else round(c.value, 6) for c in cells
        ]
        record: dict[str, str | float | None] = dict(zip(table.columns, values, strict=True))
        record |= {
            f"{n} sd": c.spread for n, c in zip(table.columns, cells, strict=True) if c.spread is not None
        }
        records.append(record)
    return records


def text_of(sections: Sequence[Section]) -> str:
    """Render for a terminal: two recalls per table, so that a row fits; notes at the end of a section."""
    parts: list[str] = []
    for section in sections:
        bare = replace(section, notes=())
        parts += [as_table([bare], KS[:2], title=section.title).text(), as_table([section], KS[2:]).text()]
    return "\n\n".join(parts)


def write_files(folder: Path, name: str, sections: Sequence[Section]) -> list[Path]:
    """Write NAME.txt, .md, .tex and .csv into `folder`; returns their paths."""
    parts = [as_table([section], title=section.title).files() for section in sections]
    contents = {
        "txt": text_of(sections) + "\n",
        **{ending: "\n".join(part[ending] for part in parts) for ending in ("md", "tex")},
        "csv": as_table(sections, full_names=True).csv(),
    }
    make_writable(folder)
    written = []
    for ending, content in contents.items():
        written.append(folder / f"{name}.{ending}")
        write_atomically(written[-1], content.encode())
    return written


def _best(lines: Sequence[Line], ks: Sequence[int]) -> dict[tuple[str, int], str]:
    """Return (group, k) -> the highest of our recalls as printed, without muted rows and groups of one row."""
    best: dict[tuple[str, int], str] = {}
    for group in {line.group for line in lines}:
        rivals = [line for line in lines if line.group == group and not line.muted]
        if len(rivals) > 1:
            best |= {(group, k): f"{max(line.ours(k).value or 0.0 for line in rivals):.2f}" for k in ks}
    return best


def _recall_cells(line: Line, k: int, best: Mapping[tuple[str, int], str], comparable: bool) -> list[Cell]:
    """Return our recall, the paper's, and the difference in points, which is left out on a stand-in."""
    mean = line.ours(k).value or 0.0
    ours = line.ours(k, bold=not line.muted and best.get((line.group, k)) == f"{mean:.2f}")
    if line.paper is None:
        return [ours, Cell(MISSING, muted=True), Cell(MISSING, muted=True)]
    paper = line.paper[KS.index(k)]
    difference = mean - paper
    return [
        ours,
        Cell(f"{paper:.2f}", muted=line.muted, value=paper),
        Cell(f"{difference:+.2f}", muted=line.muted, value=difference) if comparable else Cell(MISSING),
    ]


def _setting(value: float | None) -> Cell:
    return Cell(MISSING) if value is None else Cell(f"{value:g}", value=value)
