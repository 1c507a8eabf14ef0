"""The finer kinds and the diagnosis of a run, for its page."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

from maskcon._utils.errors import MaskconError
from maskcon._utils.text import counted
from maskcon.discovery.diagnosis import diagnose, measure
from maskcon.discovery.kinds import Kinds
from maskcon.discovery.kinds_folder import read_folder
from maskcon.discovery.summary import ClassSummary, summarise
from maskcon.report.formats import Table
from maskcon.report.gallery import image_uri
from maskcon.report.page import Section, joined, part, table_html
from maskcon.report.sample import Sample

SHEETS_SHOWN = 30  # of the largest classes; the table lists all
NOTE = (
    "Found inside each coarse class without fine labels. A row is a kind: typical images on the left, those between "
    "two kinds on the right, and the kind with which it is most confused."
)


def kinds_of(folder: Path, encoder: str) -> tuple[Kinds, dict[str, Path]] | None:
    """Read the kinds of a run with their contact sheets; None without kinds of this encoder."""
    try:
        found = read_folder(folder)
    except MaskconError:
        return None
    if found is None or found[1].encoder != encoder:
        return None
    return found[0], {coarse: folder / name for coarse, (name, _) in found[1].sheets.items()}


def kinds_section(kinds: Kinds, sheets: dict[str, Path]) -> Section:
    """Show every class in a table, and the contact sheets of classes with several kinds."""
    summaries = sorted(summarise(kinds), key=lambda summary: -summary.images)
    rows = [
        [
            summary.coarse,
            f"{summary.images:,}",
            str(len(summary.kinds)),
            "" if summary.stability is None else f"{summary.stability:.2f}",
            _sizes(summary) if len(summary.kinds) > 1 else summary.reason,
        ]
        for summary in summaries
    ]
    table = Table(["Coarse class", "Images", "Kinds", "Stability", "Sizes"], rows, "Kinds of each class")
    shown = [
        part("sheet", summary.coarse, uri, f"{summary.coarse}: {_sizes(summary)}")
        for summary in [one for one in summaries if len(one.kinds) > 1][:SHEETS_SHOWN]
        if (uri := _uri(sheets.get(summary.coarse)))
    ]
    return Section("kinds", "Finer kinds", joined([part("paragraphs", [NOTE]), table_html(table), *shown]))


def verdict(sample: Sample, settings: dict[str, object], kinds: Kinds | None, name: str) -> list[str]:
    """Diagnose the first embedding of a sample in a few sentences."""
    vectors = next(iter(sample.embeddings.values()))
    kind_of = None
    if kinds is not None and sample.ids:
        known = kinds.known()
        kind_of = [known[path].kind if path in known else "" for path in sample.ids]
    found = measure(
        vectors,
        sample.coarse,
        kinds=kinds,
        fine=sample.fine,
        fine_names=sample.fine_names or (),
        kind_of=kind_of,
    )
    diagnosis = diagnose(found, settings, name)
    answers = [
        f"{finding.question} {finding.answer}" for finding in diagnosis.findings if finding.state != "unknown"
    ]
    advice = [f"To try: {'; '.join(diagnosis.advice)}."] if diagnosis.advice else []
    return [f"{diagnosis.verdict} {'; '.join(answers)}.", *advice]


def _sizes(summary: ClassSummary) -> str:
    return ", ".join(f"{kind.name} ({counted(kind.size, 'image')})" for kind in summary.kinds)


def _uri(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        with Image.open(path) as sheet:
            return image_uri(sheet.convert("RGB"), exact=False)
    except OSError:
        return ""
