"""A whole report from plain data: page, tables and figures, for one run or for several compared.

write_report(ReportInputs(title="Run", command="maskcon train ...", results=[result],
                          journals={"maskcon": read_journal(path)}), "runs/first")
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskcon.errors import UsageError
from maskcon.report.figures import embedding_map, learning_curves, loss_curves, retrieval_grid, save
from maskcon.report.formats import Table
from maskcon.report.gallery import Images
from maskcon.report.maps import map_2d
from maskcon.report.page import PageFigure, PageMap, write_page
from maskcon.report.published import published_recall
from maskcon.report.run_settings import Events, curve_names, settings_tables
from maskcon.report.tables import Group, group_results, mean_and_spread, methods_table, scored_images


@dataclass(frozen=True)
class Sample:
    """Some test images and what encoders make of them, to look at.

    embeddings and neighbours carry one entry an encoder, under the label that the page shows.
    """

    images: Images  # N
    coarse: NDArray[Any]  # [N]
    coarse_names: Sequence[str]
    embeddings: Mapping[str, NDArray[Any]]  # each [N, D]
    queries: NDArray[Any] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))  # [Q] rows of images
    neighbours: Mapping[str, NDArray[Any]] = field(default_factory=dict)  # each [Q, k] rows of images
    fine: NDArray[Any] | None = None  # [N]
    fine_names: Sequence[str] | None = None


@dataclass(frozen=True)
class ReportInputs:
    """What a report tells: results of finished runs, journals by run label, and images to look at."""

    title: str
    command: str
    results: Sequence[Mapping[str, Any]]
    journals: Mapping[str, Events] = field(default_factory=dict)
    sample: Sample | None = None
    map_method: str = "tsne"
    seed: int = 0


def write_report(inputs: ReportInputs, folder: str | os.PathLike[str]) -> Path:
    """Write `report.html`, `figures/` (PNG and SVG) and `tables/` (txt, md, tex, csv); returns the page's path."""
    target = Path(folder)
    tables = [_results_table(inputs.results)] if inputs.results else []
    figures = _curve_figures(inputs)
    map_data, map_figures = _maps(inputs)
    galleries = _galleries(inputs.sample) if inputs.sample is not None else {}
    for name, item in {**figures, **map_figures, **galleries}.items():
        save(item.figure, target / "figures" / name)
    for table in tables:
        _save_table(table, target / "tables" / "recall")
    return write_page(
        target / "report.html",
        title=inputs.title,
        summary=_summary(inputs),
        tables=tables,
        figures=list(figures.values()),
        map_data=map_data,
        galleries=list(galleries.values()),
        settings=settings_tables(inputs.journals),
        how_to_rerun=inputs.command,
        footer="Written by maskcon. The figures and tables of this page stand beside it as files.",
    )


def _results_table(results: Sequence[Mapping[str, Any]]) -> Table:
    sources = {str(result.get("source")) for result in results}
    published = published_recall(sources.pop()) if len(sources) == 1 else None
    return methods_table(results, published=published)


def _save_table(table: Table, stem: Path) -> None:
    stem.parent.mkdir(parents=True, exist_ok=True)
    forms = {"txt": table.text(), "md": table.markdown(), "tex": table.latex(), "csv": table.csv()}
    for ending, content in forms.items():
        # newline="": csv brings its own line ends
        with stem.with_suffix(f".{ending}").open("w", encoding="utf-8", errors="replace", newline="") as file:
            file.write(content if content.endswith("\n") else content + "\n")


def _summary(inputs: ReportInputs) -> list[str]:
    groups = group_results(inputs.results)
    coarse = [
        (value, group)
        for group in groups
        if not group.fine_labels and (value := _first_recall(group)) is not None
    ]
    sentences: list[str] = []
    # A best over different data sets says nothing.
    if coarse and len({group.shared for group in groups}) == 1:
        value, group = max(coarse, key=lambda pair: pair[0])
        kind = "coarse class" if group.results[0].get("scored_by") == "coarse" else "fine class"
        name = group.label(groups)
        best = f"{name} is the best of {len(coarse)} trained without fine labels" if len(coarse) > 1 else name
        images = scored_images(inputs.results)
        share = f"for {_percent(value)} of the {images} the nearest other image is of the same {kind}"
        floor = _floor(inputs.results)
        compared = f"; by raw pixels for {_percent(floor)}." if floor is not None else "."
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
        str(e.get("message", ""))
        for events in inputs.journals.values()
        for e in events
        if e.get("kind") == "warning"
    }
    return [*sentences, *(f"Warning: {message}" for message in sorted(warnings) if message)]


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.2f}\N{NO-BREAK SPACE}%"


def _first_recall(group: Group) -> float | None:
    known = [result["recall"].get("1") for result in group.results]
    values = [float(value) for value in known if value is not None and math.isfinite(value)]
    return mean_and_spread(values)[0] if values else None


def _floor(results: Sequence[Mapping[str, Any]]) -> float | None:
    """Raw-pixel recall@1, if the results agree on one."""
    values = {
        float(r["raw_pixels"]["1"])
        for r in results
        if r.get("raw_pixels") and r["raw_pixels"].get("1") is not None
    }
    return values.pop() if len(values) == 1 else None


def _ceiling(results: Sequence[Mapping[str, Any]], drawn: Sequence[str]) -> float | None:
    """SupFINE's final recall@1, unless its own curve shows it already."""
    groups = [group for group in group_results(results) if group.method == "supfine"]
    return _first_recall(groups[0]) if len(groups) == 1 and "SupFINE" not in drawn else None


def _curve_figures(inputs: ReportInputs) -> dict[str, PageFigure]:
    recalls: dict[str, list[list[tuple[float, float | None]]]] = {}
    losses: dict[str, list[tuple[float, float | None]]] = {}
    names = curve_names(inputs.journals)
    for label, events in inputs.journals.items():
        curve = [
            (float(e.get("epoch") or 0), (e.get("recall") or {}).get("1"))
            for e in events
            if e.get("kind") == "evaluation"
        ]
        if curve:
            recalls.setdefault(names[label], []).append(curve)
        steps = [
            (float(e["step"]), e.get("loss"))
            for e in events
            if e.get("kind") == "step" and e.get("step") is not None
        ]
        if steps:
            losses.setdefault(names[label], steps)  # one seed stands for its kind: averaged losses hide jumps
    figures: dict[str, PageFigure] = {}
    if recalls:
        drawn = list(recalls)
        figure = learning_curves(recalls, _floor(inputs.results), _ceiling(inputs.results, drawn))
        several = any(len(seeds) > 1 for seeds in recalls.values())
        spread = " Bands: ± one sample standard deviation over seeds." if several else ""
        caption = f"Recall@1 on the {scored_images(inputs.results)} by epoch.{spread}"
        figures["recall_by_epoch"] = PageFigure(figure, f"Recall@1 by epoch for {', '.join(drawn)}.", caption)
    if losses:
        figure = loss_curves(losses)
        alt = f"Training loss by step for {', '.join(losses)}."
        figures["loss_by_step"] = PageFigure(
            figure, alt, "Training loss by step. Losses of different methods do not compare."
        )
    return figures


def _maps(inputs: ReportInputs) -> tuple[PageMap | None, dict[str, PageFigure]]:
    sample = inputs.sample
    if sample is None or not sample.embeddings or not len(sample.images):
        return None, {}
    layouts: dict[str, NDArray[Any]] = {}
    for label, embeddings in sample.embeddings.items():
        if len(embeddings) != len(sample.images):
            raise UsageError(
                f"{label!r} has {len(embeddings)} embeddings for {len(sample.images)} images of the sample"
            )
        layouts[label] = map_2d(embeddings, inputs.seed, inputs.map_method)
    labels: dict[str, tuple[NDArray[Any], Sequence[str]]] = {
        "Coarse label": (sample.coarse, sample.coarse_names)
    }
    if sample.fine is not None and sample.fine_names is not None:
        labels = {"Fine label": (sample.fine, sample.fine_names), **labels}
    kinds, names = next(iter(labels.values()))
    figures = {
        f"map_{_file_part(label, number)}": PageFigure(
            embedding_map(
                points, kinds, names, coarse=sample.coarse, coarse_names=sample.coarse_names, title=label
            ),
            f"Map of the embeddings of {label}.",
        )
        for number, (label, points) in enumerate(layouts.items())
    }
    return PageMap(layouts, sample.images, labels), figures


def _galleries(sample: Sample) -> dict[str, PageFigure]:
    truth = None if sample.fine is None else np.asarray(sample.fine)
    found: dict[str, PageFigure] = {}
    queries = np.asarray(sample.queries, dtype=np.int64)
    for number, (label, given) in enumerate(sample.neighbours.items()):
        neighbours = np.asarray(given, dtype=np.int64)
        if not neighbours.size:
            continue
        correct = None if truth is None else truth[neighbours] == truth[queries][:, None]
        grid = retrieval_grid(sample.images, queries, neighbours, correct)
        words = (
            f"{label}: {len(queries)} queries at the left, each with its {neighbours.shape[1]} nearest "
            f"of the other {len(sample.images) - 1} images of the map."
        )
        alt = (
            words
            if correct is None
            else f"{words} {int(correct.sum())} of {correct.size} are of the query's fine class."
        )
        marks = "" if correct is None else " Tick: the same fine class; cross: another."
        found[f"retrieval_{_file_part(label, number)}"] = PageFigure(grid, alt, alt + marks)
    return found


def _file_part(label: str, number: int) -> str:
    """A label as a part of a file name: letters and digits only, told apart by its number."""
    plain = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in label.lower())
    return f"{number}_{plain[:40]}".rstrip("_")
