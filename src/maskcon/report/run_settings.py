"""Settings of several runs, from their journals: which they share, in which they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from maskcon.report.formats import Table
from maskcon.report.tables import shown_name

Events = Sequence[Mapping[str, Any]]  # a journal, as read_journal gives it


def curve_names(journals: Mapping[str, Events]) -> dict[str, str]:
    """Name the curve of each run: runs that differ only in their seed share one.

    The name is the method's, or the first run's where the method appears with several settings.
    """
    kinds: dict[str, tuple[str, tuple[Any, ...]]] = {}
    for label, events in journals.items():
        settings = settings_of(events)
        method = settings.get("method")
        if method is None:
            kinds[label] = (label, ())
            continue
        rest = tuple(sorted((key, repr(value)) for key, value in settings.items() if key != "seed"))
        kinds[label] = (shown_name(str(method), float(settings.get("coarse_weight") or 0.0)), rest)
    firsts: dict[str, dict[tuple[Any, ...], str]] = {}  # name -> settings -> the first run that has them
    for label, (name, rest) in kinds.items():
        firsts.setdefault(name, {}).setdefault(rest, label)
    return {
        label: name if len(firsts[name]) == 1 else firsts[name][rest] for label, (name, rest) in kinds.items()
    }


def settings_of(events: Events) -> Mapping[str, Any]:
    """Read the settings of a run's `start` line; empty without one."""
    return next((event.get("settings", {}) for event in events if event.get("kind") == "start"), {})


def settings_tables(
    journals: Mapping[str, Events], reasons: Mapping[str, Mapping[str, str]] | None = None
) -> list[Table]:
    """Tabulate in what runs differ, and what all share. `reasons`: by run, where each setting comes from."""
    by_run = {label: settings for label, events in journals.items() if (settings := settings_of(events))}
    if not by_run:
        return []
    keys = list(dict.fromkeys(key for settings in by_run.values() for key in settings))
    shared = [key for key in keys if len({repr(settings.get(key)) for settings in by_run.values()}) == 1]
    apart = [key for key in keys if key not in shared]
    tables: list[Table] = []
    if apart:
        tables.append(Table(["Run", *apart], _rows_apart(by_run, apart), "Settings that differ"))
    label, first = next(iter(by_run.items()))
    if shared:
        title = "Settings that all runs share" if len(by_run) > 1 else ""
        why = (reasons or {}).get(label, {})
        origin = ["Comes from"] if why else []
        rows = [[key, setting_text(first[key]), *([why.get(key, "")] if why else [])] for key in shared]
        tables.append(Table(["Setting", "Value", *origin], rows, title))
    return tables


def setting_text(value: Any) -> str:
    """Format a value as `--set` takes it."""
    if value is None:
        return "none"
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def _rows_apart(by_run: Mapping[str, Mapping[str, Any]], keys: Sequence[str]) -> list[list[str]]:
    """Return one row for runs that differ only in their seed, with all their seeds."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for label, settings in by_run.items():
        values = tuple(repr(settings.get(key)) for key in keys if key != "seed")
        alike.setdefault(values, []).append(label)
    rows: list[list[str]] = []
    for labels in alike.values():
        row = [", ".join(labels)]
        for key in keys:
            values_of = (setting_text(by_run[label][key]) if key in by_run[label] else "" for label in labels)
            row.append(", ".join(dict.fromkeys(values_of)))
        rows.append(row)
    return rows
