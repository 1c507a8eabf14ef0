"""Write a report from plain data: page, tables and figures, for one run or for several compared.

write_report(ReportInputs(title="Run", runs=[RunRecord("maskcon", result, read_journal(path))]), "runs/first")
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from maskcon._utils.files import make_folder, write_atomically
from maskcon._utils.text import counted
from maskcon.report.figures import Curve, PageFigure, learning_curves, loss_curves, png_bytes, svg_text
from maskcon.report.formats import Table
from maskcon.report.gallery import as_png, retrieval_grid
from maskcon.report.maps import map_of
from maskcon.report.page import Section, figure_html, joined, part, table_html, write_page
from maskcon.report.published import published_recall
from maskcon.report.sample import (
    PageRetrieval,
    Sample,
    file_part,
    neighbours_of,
    retrieval_html,
    retrievals_of,
)
from maskcon.report.tables import Result, group_results, methods_table, recall_cell, scored_images

FOOTER = "Written by maskcon. The figures and tables of this page are in files beside it."
# Files with the number of an encoder in their name, see `sample.file_part`.
NUMBERED = re.compile(r"(map|retrieval)_\d+(_.*)?\.(png|svg)")


@dataclass(frozen=True)
class RunRecord:
    """A finished run: its result with all `settings`, its journal, and where each setting comes from."""

    label: str
    result: Result
    journal: Sequence[Mapping[str, Any]] = ()
    reasons: Mapping[str, str] = field(default_factory=dict)

    @property
    def settings(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.result.get("settings", {})
        return found


@dataclass(frozen=True)
class ReportInputs:
    """Content of a report: finished runs and a sample of images.

    about: names and texts on data and training; rerun: texts with their commands; verdict: sentences that open the
    page; kinds: section of the finer kinds.
    """

    title: str
    runs: Sequence[RunRecord]
    sample: Sample | None = None
    about: Sequence[tuple[str, str]] = ()
    rerun: Sequence[tuple[str, str]] = ()
    seed: int = 0
    verdict: Sequence[str] = ()
    kinds: Section | None = None

    @property
    def results(self) -> list[Result]:
        return [run.result for run in self.runs]


def write_report(inputs: ReportInputs, folder: str | os.PathLike[str]) -> Path:
    """Write `report.html`, `figures/` (PNG and SVG) and `tables/` (txt, md, tex, csv); return the page's path."""
    target = Path(folder)
    table = _results_table(inputs.results) if inputs.results else None
    figures = _curve_figures(inputs)
    curves = [figure_html(item, f"c{number}-") for number, item in enumerate(figures.values())]
    results = [part("paragraphs", _result_notes(inputs.results)), part("table", table)] if table else []
    sections = [
        Section("about", "What was trained", part("facts", inputs.about) if inputs.about else ""),
        Section("results", "Results", joined(results)),
        *([inputs.kinds] if inputs.kinds is not None else []),
        Section("curves", "Curves", joined(curves)),
    ]
    data = None
    grids: list[PageRetrieval] = []
    sample = inputs.sample
    if sample is not None and len(sample.images) and sample.embeddings:
        near = neighbours_of(sample)
        map_html, data, maps = map_of(sample, near, inputs.seed)
        grids = retrievals_of(sample, near)
        sections.append(Section("map", "Map of the images", map_html))
        sections.append(
            Section("retrieval", "Retrieved neighbours", joined(list(map(retrieval_html, grids))))
        )
        figures |= maps
    settings = [table_html(one) for one in settings_tables(inputs.runs)]
    commands = part("commands", inputs.rerun) if inputs.rerun else ""
    sections += [
        Section("settings", "Settings", joined(settings)),
        Section("rerun", "How to run it again", commands),
    ]
    files = {f"tables/recall.{ending}": text.encode("utf-8", "replace") for ending, text in _formats(table)}
    for name, item in figures.items():
        files[f"figures/{name}.png"] = png_bytes(item.figure)
        files[f"figures/{name}.svg"] = svg_text(item.figure).encode()
    for number, grid in enumerate(grids):
        drawn = retrieval_grid(grid.sample.images, grid.queries, grid.neighbours, grid.marks)
        files[f"figures/retrieval_{file_part(grid.title, number)}.png"] = as_png(drawn)
    for path in (target / "figures").glob("*"):  # an earlier page may have shown other runs
        if NUMBERED.fullmatch(path.name):
            path.unlink(missing_ok=True)
    for name, content in files.items():
        make_folder((target / name).parent)
        write_atomically(target / name, content)
    return write_page(
        target / "report.html",
        inputs.title,
        [*inputs.verdict, *_summary(inputs)],
        sections,
        footer=FOOTER,
        data=data,
    )


def _results_table(results: Sequence[Result]) -> Table:
    sources = {str(result.get("source")) for result in results}
    published = published_recall(sources.pop()) if len(sources) == 1 else None
    return methods_table(results, published=published)


def _formats(table: Table | None) -> Iterable[tuple[str, str]]:
    return () if table is None else table.files().items()


def _result_notes(results: Sequence[Result]) -> list[str]:
    """Explain what recall means where no fine labels are known."""
    if not any(result.get("scored_by") == "coarse" for result in results):
        return []
    return [
        "No fine labels are known for these images, so a hit is a neighbour of the same coarse class. This checks "
        "that training works; it does not measure whether finer kinds separate, and a method may score higher here and "
        "lower on finer kinds.",
        "To see the finer kinds, look at the map and the retrieved neighbours below. To measure them, sort some "
        "images into folders of finer kinds, photos/cat/siamese/..., and train again: fine labels are used for "
        "scoring alone.",
    ]


def _summary(inputs: ReportInputs) -> list[str]:
    """Summarise results, runs and warnings in a few sentences."""
    results = inputs.results
    groups = group_results(results)
    coarse = {
        group.label(groups): recall
        for group in groups
        if not group.fine_labels and (recall := recall_cell(group.recall(1), muted=False).value) is not None
    }
    sentences: list[str] = []
    # A best over different datasets says nothing.
    if coarse and len({group.shared for group in groups}) == 1:
        best = max(coarse, key=lambda name: coarse[name])
        kind = "coarse" if results[0].get("scored_by") == "coarse" else "fine"
        among = (
            f" is the best of {len(coarse)} methods trained without fine labels" if len(coarse) > 1 else ""
        )
        floors = {"raw pixels": "raw_pixels", "the frozen backbone alone": "frozen_backbone"}
        known = {words: _agreed(results, key) for words, key in floors.items()}
        compared = [
            f", by {words} for {_percent(100 * value)}" for words, value in known.items() if value is not None
        ]
        sentences.append(
            f"{best}{among}: for {_percent(coarse[best])} of the {scored_images(results)} the nearest other image is "
            f"of the same {kind} class{';' if compared else ''}{''.join(compared)[1:]}."
        )
    facts = [f"{counted(len(results), 'finished run')}"]
    for key, words in (("source", "data"), ("epochs", "epochs"), ("preset", "preset")):
        values = dict.fromkeys(str(result[key]) for result in results if result.get(key) is not None)
        facts += [f"{words}: {', '.join(values)}"] if values else []
    sentences.append("; ".join(facts) + ".")
    if inputs.sample is not None and inputs.sample.note:
        sentences.append(inputs.sample.note)
    events = (event for run in inputs.runs for event in run.journal if event.get("kind") == "warning")
    warnings = {str(event.get("message", "")) for event in events} - {""}
    return [*sentences, *(f"Warning: {message}" for message in sorted(warnings))]


def _percent(value: float) -> str:
    return f"{value:.2f}\N{NO-BREAK SPACE}%"


def _agreed(results: Sequence[Result], key: str) -> float | None:
    """Return recall@1 of `raw_pixels` or `frozen_backbone`, if the results agree on one."""
    values = {float(r[key]["1"]) for r in results if r.get(key) and r[key].get("1") is not None}
    return values.pop() if len(values) == 1 else None


def _curve_figures(inputs: ReportInputs) -> dict[str, PageFigure]:
    """Draw recall by epoch and loss by step, by file name; without data in any journal they are left out."""
    recalls: dict[str, list[Curve]] = {}
    losses: dict[str, Curve] = {}
    names = curve_names(inputs.runs)
    for run in inputs.runs:
        scored = [event for event in run.journal if event.get("kind") == "evaluation"]
        steps = [
            event for event in run.journal if event.get("kind") == "step" and event.get("step") is not None
        ]
        if scored:
            curve = [(float(e.get("epoch") or 0), (e.get("recall") or {}).get("1")) for e in scored]
            recalls.setdefault(names[run.label], []).append(curve)
        if steps:  # one seed is shown: averages hide jumps
            losses.setdefault(names[run.label], [(float(e["step"]), e.get("loss")) for e in steps])
    figures: dict[str, PageFigure] = {}
    if recalls:
        lines = {"raw pixels": "raw_pixels", "backbone alone": "frozen_backbone"}
        figure = learning_curves(recalls, {name: _agreed(inputs.results, key) for name, key in lines.items()})
        several = any(len(seeds) > 1 for seeds in recalls.values())
        spread = " Bands: ± one sample standard deviation over seeds." if several else ""
        by_coarse = inputs.results and all(r.get("scored_by") == "coarse" for r in inputs.results)
        hit = " A hit is a neighbour of the same coarse class." if by_coarse else ""
        caption = f"Recall@1 on the {scored_images(inputs.results)} by epoch.{hit}{spread}"
        figures["recall_by_epoch"] = PageFigure(
            figure, f"Recall@1 by epoch for {', '.join(recalls)}.", caption
        )
    if losses:
        alt = f"Training loss by step for {', '.join(losses)}."
        caption = "Training loss by step. Losses of different methods cannot be compared."
        figures["loss_by_step"] = PageFigure(loss_curves(losses), alt, caption)
    return figures


def curve_names(runs: Sequence[RunRecord]) -> dict[str, str]:
    """Name the curve of each run, by label: runs that differ only in their seed share one.

    The name is the method's, or the first run's where the method appears with several settings.
    """
    groups = group_results([run.result for run in runs])
    label_of = {id(run.result): run.label for run in runs}
    count = Counter(group.name for group in groups)
    names: dict[str, str] = {}
    for group in groups:
        labels = [label_of[id(result)] for result in group.results]
        names |= dict.fromkeys(labels, group.name if count[group.name] == 1 else labels[0])
    return {run.label: names[run.label] for run in runs}


def settings_tables(runs: Sequence[RunRecord]) -> list[Table]:
    """Tabulate the settings that differ, one row for runs that differ only in their seed, and those all share."""
    known = [run for run in runs if run.settings]
    keys = list(dict.fromkeys(key for run in known for key in run.settings))
    shared = [key for key in keys if len({repr(run.settings.get(key)) for run in known}) == 1]
    apart = [key for key in keys if key not in shared]
    tables: list[Table] = []
    if apart:
        alike: dict[tuple[str, ...], list[RunRecord]] = {}
        for run in known:
            alike.setdefault(tuple(repr(run.settings.get(key)) for key in apart if key != "seed"), []).append(
                run
            )
        rows = []
        for members in alike.values():
            texts = [
                dict.fromkeys(setting_text(run.settings.get(key, "")) for run in members) for key in apart
            ]
            rows.append([", ".join(run.label for run in members), *map(", ".join, texts)])
        tables.append(Table(["Run", *apart], rows, "Settings that differ"))
    if shared:
        first = known[0]
        title = "Settings that all runs share" if len(known) > 1 else ""
        origin = ["Comes from"] if first.reasons else []
        rows = [
            [key, setting_text(first.settings[key]), *(first.reasons.get(key, "") for _ in origin)]
            for key in shared
        ]
        tables.append(Table(["Setting", "Value", *origin], rows, title))
    return tables


def setting_text(value: Any) -> str:
    """Format a value as `--set` takes it."""
    if value is None:
        return "none"
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)
