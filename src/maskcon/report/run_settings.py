"""Finished runs as a page shows them: names of their curves, settings that they share or differ in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from maskcon.report.formats import Table
from maskcon.report.tables import Result, group_results


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
    """Tabulate in what runs differ, one row for runs that differ only in their seed, and what all share."""
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
