"""Write a report from plain data: page, tables and figures, for one run or for several compared.

write_report(ReportInputs(title="Run", results=[result], journals={"maskcon": read_journal(path)}), "runs/first")
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.errors import UsageError
from maskcon.report.figures import (
    embedding_map,
    learning_curves,
    loss_curves,
    retrieval_grid,
    save,
    similarity_figure,
)
from maskcon.report.formats import Table
from maskcon.report.gallery import Images
from maskcon.report.maps import map_2d
from maskcon.report.neighbourhood import (
    Labels,
    Neighbourhood,
    classes_table,
    measures_table,
    neighbourhood,
    random_pairs,
    suspect_labels,
)
from maskcon.report.page import Page, PageFigure, PageMap, PageRetrieval, write_page
from maskcon.report.published import published_recall
from maskcon.report.run_settings import Events, curve_names, settings_tables
from maskcon.report.tables import Group, group_results, mean_and_spread, methods_table, scored_images

SUSPECTS = 8  # images shown whose neighbours carry another label
# Files that carry the number of an encoder, see `_file_part`.
NUMBERED = re.compile(r"(map|similarity|retrieval|classes)_\d+(_.*)?\.(png|svg|txt|md|tex|csv)")


@dataclass(frozen=True)
class Sample:
    """A sample of test images and their embeddings by each encoder.

    embeddings has one entry per encoder, under the label that the page shows; ids name the images, mostly by path;
    note is shown beside everything that comes from these images.
    """

    images: Images  # N
    coarse: NDArray[Any]  # [N]
    coarse_names: Sequence[str]
    embeddings: Mapping[str, NDArray[Any]]  # each [N, D]
    queries: NDArray[Any] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))  # [Q] rows of images
    fine: NDArray[Any] | None = None  # [N]
    fine_names: Sequence[str] | None = None
    ids: Sequence[str] = ()
    note: str = ""

    @property
    def finest(self) -> tuple[str, NDArray[Any], Sequence[str]]:
        """Return the finest labels known: the kind of label, the labels [N], and their names."""
        if self.fine is None or self.fine_names is None:
            return "coarse class", np.asarray(self.coarse), self.coarse_names
        return "fine class", np.asarray(self.fine), self.fine_names


@dataclass(frozen=True)
class ReportInputs:
    """Content of a report: results of finished runs, journals by run label, and a sample of images.

    about: names and texts on data and training; reasons: by run label, where each setting comes from;
    rerun: texts with their commands.
    """

    title: str
    results: Sequence[Mapping[str, Any]]
    journals: Mapping[str, Events] = field(default_factory=dict)
    sample: Sample | None = None
    about: Sequence[tuple[str, str]] = ()
    reasons: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    rerun: Sequence[tuple[str, str]] = ()
    seed: int = 0


def write_report(inputs: ReportInputs, folder: str | os.PathLike[str]) -> Path:
    """Write `report.html`, `figures/` (PNG and SVG) and `tables/` (txt, md, tex, csv); returns the page's path."""
    target = Path(folder)
    tables = {"recall": _results_table(inputs.results)} if inputs.results else {}
    figures = _curve_figures(inputs)
    page = Page(
        title=inputs.title,
        summary=_summary(inputs),
        about=inputs.about,
        result_notes=_result_notes(inputs.results),
        tables=list(tables.values()),
        figures=list(figures.values()),
        settings=settings_tables(inputs.journals, inputs.reasons),
        rerun=inputs.rerun,
        footer="Written by maskcon. The figures and tables of this page are in files beside it.",
    )
    sample = inputs.sample
    if sample is not None and len(sample.images) and sample.embeddings:
        near = _neighbours(sample)
        map_data, maps = _maps(sample, near, inputs.seed)
        statistics, similarities = _statistics(sample, near)
        figures |= maps | similarities
        tables |= statistics
        page = replace(
            page,
            map_data=map_data,
            retrievals=_retrievals(sample, near),
            statistics=list(statistics.values()),
            similarities=list(similarities.values()),
        )
    _remove_former(target)
    for name, item in figures.items():
        save(item.figure, target / "figures" / name)
    for number, grid in enumerate(page.retrievals):
        picture = retrieval_grid(grid.images, grid.queries, grid.neighbours, grid.marks)
        save(picture, target / "figures" / f"retrieval_{_file_part(grid.title, number)}")
    for name, table in tables.items():
        _save_table(table, target / "tables" / name)
    return write_page(target / "report.html", page)


def _remove_former(target: Path) -> None:
    """Remove the files per encoder of an earlier page, which may show other runs."""
    for path in (*(target / "figures").glob("*"), *(target / "tables").glob("*")):
        if NUMBERED.fullmatch(path.name):
            path.unlink(missing_ok=True)


def _results_table(results: Sequence[Mapping[str, Any]]) -> Table:
    sources = {str(result.get("source")) for result in results}
    published = published_recall(sources.pop()) if len(sources) == 1 else None
    return methods_table(results, published=published)


def _result_notes(results: Sequence[Mapping[str, Any]]) -> list[str]:
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
        str(e.get("message", ""))
        for events in inputs.journals.values()
        for e in events
        if e.get("kind") == "warning"
    }
    if inputs.sample is not None and inputs.sample.note:
        sentences.append(inputs.sample.note)
    return [*sentences, *(f"Warning: {message}" for message in sorted(warnings) if message)]


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.2f}\N{NO-BREAK SPACE}%"


def _first_recall(group: Group) -> float | None:
    known = [result["recall"].get("1") for result in group.results]
    values = [float(value) for value in known if value is not None and math.isfinite(value)]
    return mean_and_spread(values)[0] if values else None


def _agreed(results: Sequence[Mapping[str, Any]], key: str) -> float | None:
    """Return recall@1 of `raw_pixels` or `frozen_backbone`, if the results agree on one."""
    values = {float(r[key]["1"]) for r in results if r.get(key) and r[key].get("1") is not None}
    return values.pop() if len(values) == 1 else None


def _ceiling(results: Sequence[Mapping[str, Any]], drawn: Sequence[str]) -> float | None:
    """Return SupFINE's final recall@1, unless its own curve shows it already."""
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
            losses.setdefault(names[label], steps)  # one seed is shown: averages hide jumps
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


def _neighbours(sample: Sample) -> dict[str, Neighbourhood]:
    """Find the neighbours of all images, by encoder."""
    for label, embeddings in sample.embeddings.items():
        if len(embeddings) != len(sample.images):
            raise UsageError(
                f"{label!r} has {len(embeddings)} embeddings for {len(sample.images)} images of the sample"
            )
    return {label: neighbourhood(embeddings) for label, embeddings in sample.embeddings.items()}


def _maps(
    sample: Sample, near: Mapping[str, Neighbourhood], seed: int
) -> tuple[PageMap, dict[str, PageFigure]]:
    """Make the map of the page, and the same as figures by file name."""
    layouts = {label: map_2d(embeddings, seed) for label, embeddings in sample.embeddings.items()}
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
    return PageMap(layouts, sample.images, labels, sample.ids, near), figures


def _statistics(
    sample: Sample, near: Mapping[str, Neighbourhood]
) -> tuple[dict[str, Table], dict[str, PageFigure]]:
    """Make the tables and figures of the embeddings, by file name."""
    if len(sample.images) < 2:
        return {}, {}
    labels = Labels(np.asarray(sample.coarse), sample.coarse_names, sample.fine)
    pairs = {label: random_pairs(given, labels.coarse) for label, given in sample.embeddings.items()}
    tables = {"neighbours": measures_table(near, {label: c for label, (c, _) in pairs.items()}, labels)}
    figures = {}
    for number, (label, found) in enumerate(near.items()):
        part = _file_part(label, number)
        tables[f"classes_{part}"] = classes_table(label, found, labels)
        figures[f"similarity_{part}"] = PageFigure(
            similarity_figure(found.cosines[:, 0], *pairs[label], title=label),
            f"Distribution of cosines for {label}: of nearest neighbours, and of random pairs of images.",
            f"{label}: cosine of an image and its nearest neighbour, and of any two images.",
        )
    return tables, figures


def _retrievals(sample: Sample, near: Mapping[str, Neighbourhood]) -> list[PageRetrieval]:
    """Collect the neighbours of the queries per encoder; for a single encoder also of images with a suspect label."""
    kind, labels, names = sample.finest
    others = len(sample.images) - 1
    if not others or not len(sample.queries):
        return []
    signs = (
        "Tick: the same fine class; cross: another."
        if sample.fine is not None
        else "A cross and a dashed frame mark another coarse class."
    )
    found = []
    for label, around in near.items():
        queries = np.asarray(sample.queries, dtype=np.int64)
        grid = _grid(sample, around, queries, labels, names, both_ways=sample.fine is not None)
        same = labels[grid.neighbours] == labels[grid.queries][:, None]
        note = (
            f"{len(grid.queries)} queries on the left, each with its {grid.neighbours.shape[1]} nearest by "
            f"cosine among the other {others:,} images. {int(same.sum())} of {same.size} are of the query's {kind}. "
        )
        found.append(replace(grid, title=label, note=note + signs))
    if len(near) == 1:
        (around,) = near.values()
        coarse = np.asarray(sample.coarse)
        rows = suspect_labels(around, coarse, SUSPECTS)
        if len(rows):
            grid = _grid(sample, around, rows, coarse, sample.coarse_names, both_ways=False)
            note = (
                "Most of the nearest images carry one other coarse label: the label may be wrong, or the two classes "
                "may look alike. A cross marks another coarse class."
            )
            found.append(replace(grid, title="Suspect coarse labels", note=note))
    return found


def _grid(
    sample: Sample,
    around: Neighbourhood,
    queries: NDArray[np.int64],
    labels: NDArray[Any],
    names: Sequence[str],
    *,
    both_ways: bool,
) -> PageRetrieval:
    """Collect neighbours, marked where their label differs from the query's; both_ways: also where it is the same."""
    neighbours = around.positions[queries]
    same = labels[neighbours] == labels[queries][:, None]
    return PageRetrieval(
        title="",
        note="",
        images=sample.images,
        queries=queries,
        neighbours=neighbours,
        cosines=around.cosines[queries],
        names=[str(names[label]) for label in labels.tolist()],
        ids=list(sample.ids) or [f"image {row}" for row in range(len(sample.images))],
        marks=np.where(same, 1 if both_ways else 0, -1),
    )


def _file_part(label: str, number: int) -> str:
    """Turn a label into a part of a file name: letters and digits only, made unique by its number."""
    plain = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in label.lower())
    return f"{number}_{plain[:40]}".rstrip("_")
