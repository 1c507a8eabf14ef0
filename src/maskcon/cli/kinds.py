"""`maskcon kinds`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from maskcon._utils.errors import UsageError, unknown
from maskcon.cli import options
from maskcon.cli.embed import print_left_out, print_unreadable
from maskcon.cli.printing import echo

if TYPE_CHECKING:
    from maskcon.discovery.kinds import Kinds, Wanted

COARSER, FINER = 2.0, 0.5  # times the price of a kind
SHOWN_AT_MOST = 40  # changes, one per line


def kinds(
    run: options.Run,
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="SOURCE",
            help="Images to find kinds in, as for `maskcon embed`; by default those given last, or else the images the "
            "run was trained and scored on.",
        ),
    ] = None,
    number: Annotated[
        list[str] | None,
        typer.Option(
            "--kinds",
            metavar="N or CLASS=N,...",
            help="Number of kinds of every class, or of the named ones; may be repeated. By default suggested.",
        ),
    ] = None,
    coarser: Annotated[
        bool, typer.Option("--coarser", help="Suggest fewer kinds: at twice the price.")
    ] = False,
    finer: Annotated[bool, typer.Option("--finer", help="Suggest more kinds: at half the price.")] = False,
    refresh: Annotated[
        bool,
        typer.Option(
            "--refresh",
            help="Find kinds anew; each takes the name of the kind with which it shares most images.",
        ),
    ] = False,
    names: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Apply an edited kinds.csv: names, merges, moved images, junk."),
    ] = None,
    split: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CLASS/KIND[=N]", help="Split one kind in two or more, such as apple/3; may be repeated."
        ),
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Also copy the images without junk into FOLDER/CLASS/KIND, with a metadata.jsonl that Hugging Face "
            "`datasets` reads.",
        ),
    ] = None,
    links: Annotated[
        bool, typer.Option("--links", help="With --export: make symbolic links instead of copies.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder to write or update; by default RUN/kinds.")
    ] = None,
    data_root: options.DataRoot = None,
    download: options.Download = False,
    strict: options.Strict = False,
    device: options.Device = "auto",
    as_json: options.Json = False,
) -> None:
    """Find the finer kinds inside each coarse class.

    Writes kinds.csv, which you can edit, kinds.json and contact sheets. Rerun it to assign added images to existing
    kinds, and to apply your changes of kinds.csv.

    Example: `maskcon kinds runs/photos-teachcon-seed0 --kinds apple=5`
    """
    from maskcon._utils.text import counted
    from maskcon.api import Run
    from maskcon.api.kinds import images_to_export, open_kinds
    from maskcon.cli.progress import Meter
    from maskcon.discovery.edits import changes_by_class, list_changes
    from maskcon.discovery.kinds_export import export_kinds
    from maskcon.discovery.kinds_folder import BACKUP, CSV, describe_bytes
    from maskcon.discovery.revision import split_kind
    from maskcon.report.contact_sheet import SHEETS, draw_sheets

    if coarser and finer:
        raise UsageError("--coarser and --finer exclude each other")
    wants_numbers = bool(number) or coarser or finer
    if links and export is None:
        raise UsageError("--links needs an export; add --export FOLDER")
    if names is not None and (refresh or wants_numbers):
        raise UsageError("--names only applies a file; find kinds anew in a second command")
    opened = Run.open(run)
    machine = options.machine(data_root=data_root, download=download, strict=strict, device=device)
    with ExitStack() as stack:
        reading = stack.enter_context(Meter("reading", "images"))
        embedding = stack.enter_context(Meter("embedding", "images"))
        clustering = stack.enter_context(Meter("finding kinds", "classes"))
        exporting = stack.enter_context(Meter("exporting", "images"))
        session, done = stack.enter_context(
            open_kinds(
                opened,
                source,
                out,
                machine=machine,
                needs_kinds=names is not None or bool(split),
                refresh=refresh,
                reading=reading.show,
                embedding=embedding.show,
            )
        )
        print_left_out(done)
        old, folder = session.before, session.folder
        scale = COARSER if coarser else FINER if finer else 1.0
        wanted = _wanted(number, scale, sorted(session.embedded.rows_of))
        anew = wanted if refresh or wants_numbers or old is None else None
        found = session.next_kinds(anew, names=names, progress=clustering.show)
        for kind in split or []:
            found, coarse, parts = split_kind(found, session.embedded, kind)
            echo(f"split {coarse}: {', '.join(parts)}", err=True)
        changes = [] if old is None else list_changes(old.rows, found.rows)
        has_removed = any(change.what == "removed" for change in changes)
        backup = old is not None and (has_removed or anew is not None or names is not None)
        sheets = draw_sheets(folder, found, session.read_pixels, session.origin.sheets)
        origin = session.save(found, sheets=sheets, keep_backup=backup)
        exported = None
        if export is not None:
            files = images_to_export(opened, session, machine)
            exported = export_kinds(export, found.rows, files, links=links, progress=exporting.show)
    if as_json:
        record = json.loads(describe_bytes(found, origin))
        if exported is not None:
            record["export"] = asdict(exported) | {"folder": str(exported.folder)}
        record |= {"folder": str(folder), "changes": [change.as_json() for change in changes]}
        echo(json.dumps(record))
        return
    _print_classes(found, anew)
    if old is not None:
        _print_changes(changes_by_class(old.rows, found.rows) if anew is not None else changes)
        if backup:
            echo(f"earlier kinds.csv: {folder / BACKUP}")
    classes = counted(len(found.classes), "coarse class", "coarse classes")
    total = counted(sum(len(set(group.kinds)) for group in found.classes.values()), "kind")
    echo(f"kinds: {folder / CSV}, {total} in {classes}; sheets: {folder / SHEETS}")
    if exported is not None:
        echo(
            f"exported: {exported.folder}, {counted(exported.images, 'image')} ({exported.written:,} written, "
            f"{exported.removed:,} removed)"
        )
        print_unreadable(exported.left_out)


def _wanted(number: list[str] | None, scale: float, classes: list[str]) -> Wanted:
    """Read `--kinds 3` and `--kinds apple=5,pear=2`; class names may hold commas and equals signs."""
    from maskcon.discovery.kinds import Wanted

    every, by_class = None, {}
    for text in number or []:
        whole = text.rpartition("=")[0] in classes
        for part in [text] if whole else text.split(","):
            name, sign, count = part.strip().rpartition("=")
            if not count.isdecimal() or int(count) < 1:
                raise UsageError(
                    f"--kinds {part!r}: give a number from 1, or CLASS=NUMBER such as {classes[0]}=3"
                )
            if sign and name not in classes:
                raise unknown("coarse class", name, classes)
            if sign:
                by_class[name] = int(count)
            else:
                every = int(count)
    return Wanted(every, by_class, scale)


def _print_classes(found: Kinds, anew: Wanted | None) -> None:
    from maskcon._utils.text import counted
    from maskcon.discovery.summary import summarise

    summaries = summarise(found)
    longest = max(len("class"), *(len(summary.coarse) for summary in summaries))
    echo(f"{'class':{longest}}  images  kinds  coarser/suggested/finer  stability  kinds (images)")
    for summary in summaries:
        stability = "-" if summary.stability is None else f"{summary.stability:.2f}"
        numbers = f"{summary.coarser}/{summary.suggested}/{summary.finer}"
        sizes = ", ".join(f"{kind.name.removeprefix('kind ')} ({kind.size:,})" for kind in summary.kinds)
        reason = f" ({summary.reason})" if summary.reason and len(summary.kinds) == 1 else ""
        echo(
            f"{summary.coarse:{longest}}  {summary.images:6,}  {len(summary.kinds):5}  {numbers:>23}  {stability:>9}  "
            f"{sizes}{reason}"
        )
    for summary in summaries:
        wanted, found_count = anew.number_of(summary.coarse) if anew else None, len(summary.kinds)
        if wanted is not None and found_count < wanted:
            few = summary.images == found_count
            reason = f"it has {counted(found_count, 'image')}" if few else "no more were found"
            echo(f"{summary.coarse}: {counted(found_count, 'kind')}, not {wanted}: {reason}")


def _print_changes(changes: Sequence[object]) -> None:
    for change in changes[:SHOWN_AT_MOST]:
        echo(str(change))
    if len(changes) > SHOWN_AT_MOST:
        echo(f"{len(changes) - SHOWN_AT_MOST} more changes; --json lists all")
    if not changes:
        echo("nothing changed")
