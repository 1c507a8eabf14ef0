"""What has to be said beside a table: the scale, how settings were chosen, and the paper's own slips."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from maskcon.config.settings import RunConfig
from maskcon.paper.plans import CHOICE_SEED, IMAGENET_GRID, PaperTable
from maskcon.paper.scales import Ground
from maskcon.report.published import CORRECTIONS, DOUBTS, disagreements, main_rows
from maskcon.report.tables import METHOD_NAMES

Result = Mapping[str, Any]


def notes_for(table: PaperTable, ground: Ground, config: RunConfig, result: Result, seeds: int) -> list[str]:
    """Notes of one data set's section, the most important first."""
    notes = [ground.warning] if ground.warning else []
    notes += [_size(ground, config, result), _seeds(seeds, ground)]
    if table.kind == "main":
        share = f"{config.validation_fraction:g}"
        notes.append(
            "Chosen by test (oracle): the w and tau with the best recall@1 on the test images, as the paper reports "
            "them; no one can choose so without the test labels. Chosen by validation: the best recall@1 on a share "
            f"of {share} of the training images, held out (seed {CHOICE_SEED}), then trained on all of them."
        )
        notes.append(_papers_choice(ground.asked))
    notes.append("SupCon is Grafit with w = 1 and SupCE is CoIns with w = 1: one run serves both.")
    return notes + _slips(table, ground.asked)


def _size(ground: Ground, config: RunConfig, result: Result) -> str:
    lines = [
        f"Ours: scale {ground.scale}, preset {config.preset}, {result['source']} with {result['train_images']:,} "
        f"training and {result['test_images']:,} test images",
        f"{config.backbone} of width {config.width} from {_start(config)}",
        f"{config.epochs} epochs in batches of {config.batch_size}",
        f"a bank of {config.bank_size:,}",
    ]
    ramp = config.relation_rise
    rise = f" w of Grafit (so of SupCon too) and MaskCon rises from 0 over {ramp:g} epoch{'' if ramp == 1 else 's'}."
    return ", ".join(lines) + "." + (rise if ramp else "")


def _start(config: RunConfig) -> str:
    return "random weights" if config.weights is None else f"weights {config.weights!r}"


def _seeds(seeds: int, ground: Ground) -> str:
    told = f"Mean ± sample standard deviation over {seeds} seeds."
    if seeds == 1:
        told = "One seed: differences of a few points may be chance."
    return told if ground.stands_in else f"{told} diff: ours minus the paper's, in points."


def _papers_choice(source: str) -> str:
    chosen = [
        f"{METHOD_NAMES[row.method]} w={row.w:g}" + ("" if row.tau is None else f" tau={row.tau:g}")
        for row in main_rows(source)
        if row.w is not None
    ]
    if chosen:
        return f"The paper's own settings: {', '.join(chosen)}."
    grid = ", ".join(f"({w:g}, {tau:g})" for w, tau in IMAGENET_GRID)
    return f"The paper does not name its settings here; MaskCon's (w, tau) tried are ours: {grid}."


def _slips(table: PaperTable, source: str) -> list[str]:
    """Misprints and contradictions of the paper that touch this table."""
    part = "main" if table.kind == "main" else "appendix"
    notes = [
        f"Corrected: {slip.place}: printed {slip.printed}, should be {slip.corrected} ({slip.because})."
        for slip in CORRECTIONS
        if slip.source == source and slip.place.startswith(part)
    ]
    notes += [f"The paper differs from itself on {source}, {line}." for line in disagreements(source)]
    if source in DOUBTS and part == "main":
        notes.append(DOUBTS[source])
    return notes
