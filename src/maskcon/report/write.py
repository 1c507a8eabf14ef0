"""Write a report from plain data: page, tables and figures, for one run or for several compared.

write_report(ReportInputs(title="Run", runs=[RunRecord("maskcon", result, read_journal(path))]), "runs/first")
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from maskcon.report.figures import PageFigure, learning_curves, loss_curves, save
from maskcon.report.formats import Table
from maskcon.report.gallery import retrieval_grid
from maskcon.report.maps import map_of
from maskcon.report.page import Section, figure_html, joined, part, table_html, write_page
from maskcon.report.published import published_recall
from maskcon.report.run_settings import RunRecord, curve_names, settings_tables
from maskcon.report.sample import (
    PageRetrieval,
    Sample,
    file_part,
    neighbours_of,
    retrieval_html,
    retrievals_of,
)
from maskcon.report.tables import Group, Result, group_results, methods_table, recall_cell, scored_images

FOOTER = "Written by maskcon. The figures and tables of this page are in files beside it."
# Files that carry the number of an encoder, see `sample.file_part`.
NUMBERED = re.compile(r"(map|retrieval)_\d+(_.*)?\.(png|svg)")


@dataclass(frozen=True)
class ReportInputs:
    """Content of a report: finished runs and a sample of images.

    about: names and texts on data and training; rerun: texts with their commands.
    """

    title: str
    runs: Sequence[RunRecord]
    sample: Sample | None = None
    about: Sequence[tuple[str, str]] = ()
    rerun: Sequence[tuple[str, str]] = ()
    seed: int = 0

    @property
    def results(self) -> list[Result]:
        return [run.result for run in self.runs]


def write_report(inputs: ReportInputs, folder: str | os.PathLike[str]) -> Path:
    """Write `report.html`, `figures/` (PNG and SVG) and `tables/` (txt, md, tex, csv); returns the page's path."""
    target = Path(folder)
    tables = {"recall": _results_table(inputs.results)} if inputs.results else {}
    figures = _curve_figures(inputs)
    results = [
        part("paragraphs", _result_notes(inputs.results)),
        *(part("table", table) for table in tables.values()),
    ]
    curves = [figure_html(item, f"c{number}-") for number, item in enumerate(figures.values())]
    sections = [
        Section("about", "What was trained", part("facts", inputs.about) if inputs.about else ""),
        Section("results", "Results", joined(results) if tables else ""),
        Section("curves", "Curves", joined(curves)),
    ]
    data = None
    grids: list[PageRetrieval] = []
    sample = inputs.sample
    if sample is not None and len(sample.images) and sample.embeddings:
        near = neighbours_of(sample)
        map_html, data, maps = map_of(sample, near, inputs.seed)
        grids = retrievals_of(sample, near)
        sections += [
            Section("map", "Map of the images", map_html),
            Section("retrieval", "Retrieved neighbours", joined([retrieval_html(grid) for grid in grids])),
        ]
        figures |= maps
    sections += [
        Section(
            "settings", "Settings", joined([table_html(table) for table in settings_tables(inputs.runs)])
        ),
        Section("rerun", "How to run it again", part("commands", inputs.rerun) if inputs.rerun else ""),
    ]
    _remove_former(target)
    for name, item in figures.items():
        save(item.figure, target / "figures" / name)
    for number, grid in enumerate(grids):
        drawn = retrieval_grid(grid.sample.images, grid.queries, grid.neighbours, grid.marks)
        path = target / "figures" / f"retrieval_{file_part(grid.title, number)}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        drawn.save(path, optimize=True)
    for name, table in tables.items():
        _save_table(table, target / "tables" / name)
    return write_page(
        target / "report.html", inputs.title, _summary(inputs), sections, footer=FOOTER, data=data
    )


def _remove_former(target: Path) -> None:
    """Remove the files per encoder of an earlier page, which may show other runs."""
    for path in (target / "figures").glob("*"):
        if NUMBERED.fullmatch(path.name):
            path.unlink(missing_ok=True)


def _results_table(results: Sequence[Result]) -> Table:
    sources = {str(result.get("source")) for result in results}
    published = published_recall(sources.pop()) if len(sources) == 1 else None
    return methods_table(results, published=published)


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


def _save_table(table: Table, stem: Path) -> None:
    stem.parent.mkdir(parents=True, exist_ok=True)
    for extension, content in table.files().items():
        stem.with_suffix(f".{extension}").write_bytes(content.encode("utf-8", errors="replace"))


def _summary(inputs: ReportInputs) -> list[str]:
    groups = group_results(inputs.results)
    coarse = [
        (value, group)
        for group in groups
        if not group.fine_labels and (value := _first_recall(group)) is not None
    ]
    sentences: list[str] = []
    # A best over different datasets says nothing.
    if coarse and len({group.shared for group in groups}) == 1:
        value, group = max(coarse, key=lambda pair: pair[0])
        kind = "coarse class" if group.results[0].get("scored_by") == "coarse" else "fine class"
        name = group.label(groups)
        best = (
            f"{name} is the best of {len(coarse)} methods trained without fine labels"
            if len(coarse) > 1
            else name
        )
        images = scored_images(inputs.results)
        share = f"for {_percent(value)} of the {images} the nearest other image is of the same {kind}"
        floor = _agreed(inputs.results, "raw_pixels")
        backbone = _agreed(inputs.results, "frozen_backbone")
        others = [(floor, "by raw pixels"), (backbone, "by the frozen backbone alone")]
        known = [f"{words} for {_percent(value)}" for value, words in others if value is not None]
        compared = f"; {', '.join(known)}." if known else "."
        sentences.append(f"{best}: {share}{compared}")
    facts = [f"{len(inputs.results)} finished {'run' if len(inputs.results) == 1 else 'runs'}"]
    for key, words in (("source", "data: {}"), ("epochs", "epochs: {}"), ("preset", "preset: {}")):
        values = list(
            dict.fromkeys(str(result[key]) for result in inputs.results if result.get(key) is not None)
        )
        if values:
            facts.append(words.format(", ".join(values)))
    sentences.append("; ".join(facts) + ".")
    warnings = {
        str(e.get("message", "")) for run in inputs.runs for e in run.journal if e.get("kind") == "warning"
    }
    if inputs.sample is not None and inputs.sample.note:
        sentences.append(inputs.sample.note)
    return [*sentences, *(f"Warning: {message}" for message in sorted(warnings) if message)]


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.2f}\N{NO-BREAK SPACE}%"


def _first_recall(group: Group) -> float | None:
    mean = recall_cell(group.recall(1), muted=False).value
    return None if mean is None else mean / 100


def _agreed(results: Sequence[Result], key: str) -> float | None:
    """Return recall@1 of `raw_pixels` or `frozen_backbone`, if the results agree on one."""
    values = {float(r[key]["1"]) for r in results if r.get(key) and r[key].get("1") is not None}
    return values.pop() if len(values) == 1 else None


def _ceiling(results: Sequence[Result], drawn: Sequence[str]) -> float | None:
    """Return SupFINE's final recall@1, unless its own curve shows it already."""
    groups = [group for group in group_results(results) if group.method == "supfine"]
    return _first_recall(groups[0]) if len(groups) == 1 and "SupFINE" not in drawn else None


def _curve_figures(inputs: ReportInputs) -> dict[str, PageFigure]:
    recalls: dict[str, list[list[tuple[float, float | None]]]] = {}
    losses: dict[str, list[tuple[float, float | None]]] = {}
    names = curve_names(inputs.runs)
    for run in inputs.runs:
        curve = [
            (float(e.get("epoch") or 0), (e.get("recall") or {}).get("1"))
            for e in run.journal
            if e.get("kind") == "evaluation"
        ]
        if curve:
            recalls.setdefault(names[run.label], []).append(curve)
        steps = [
            (float(e["step"]), e.get("loss"))
            for e in run.journal
            if e.get("kind") == "step" and e.get("step") is not None
        ]
        if steps:
            losses.setdefault(names[run.label], steps)  # one seed is shown: averages hide jumps
    figures: dict[str, PageFigure] = {}
    if recalls:
        drawn = list(recalls)
        figure = learning_curves(
            recalls,
            _agreed(inputs.results, "raw_pixels"),
            _ceiling(inputs.results, drawn),
            backbone=_agreed(inputs.results, "frozen_backbone"),
        )
        several = any(len(seeds) > 1 for seeds in recalls.values())
        spread = " Bands: ± one sample standard deviation over seeds." if several else ""
        by_coarse = inputs.results and all(r.get("scored_by") == "coarse" for r in inputs.results)
        hit = " A hit is a neighbour of the same coarse class." if by_coarse else ""
        caption = f"Recall@1 on the {scored_images(inputs.results)} by epoch.{hit}{spread}"
        figures["recall_by_epoch"] = PageFigure(figure, f"Recall@1 by epoch for {', '.join(drawn)}.", caption)
    if losses:
        figure = loss_curves(losses)
        alt = f"Training loss by step for {', '.join(losses)}."
        figures["loss_by_step"] = PageFigure(
            figure, alt, "Training loss by step. Losses of different methods cannot be compared."
        )
    return figures
