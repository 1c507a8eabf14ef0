"""`maskcon kinds`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from maskcon._utils.errors import UsageError, unknown
from maskcon.cli import options
from maskcon.cli.embed import print_left_out, update_embeddings
from maskcon.cli.stores import gather_images, header_of, lock_folder, open_encoder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from maskcon.api import Run
    from maskcon.data.image_readers import Images
    from maskcon.discovery.kinds import Embedded, Kinds, Progress, Wanted

FOLDER, SHEETS, EMBEDDINGS = "kinds", "sheets", "embeddings.parquet"  # in the run's folder; in that one
UNLABELLED = "unlabelled"  # coarse class of images without a label
COARSER, FINER = 2.0, 0.5  # times the price of a kind
SHOWN_AT_MOST = 40  # changes, one per line


def kinds(
    run: options.Run,
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="[SOURCE]",
            help="Images to find kinds in, as for `maskcon embed`; by default the images the run was trained and "
            "scored on, later those given last.",
        ),
    ] = None,
    number: Annotated[
        list[str] | None,
        typer.Option(
            "--kinds",
            metavar="N or CLASS=N,...",
            help="Number of kinds, of every class or of those named; may be repeated. By default suggested.",
        ),
    ] = None,
    coarser: Annotated[
        bool, typer.Option("--coarser", help="Suggest fewer kinds: at twice the price.")
    ] = False,
    finer: Annotated[bool, typer.Option("--finer", help="Suggest more kinds: at half the price.")] = False,
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Find kinds anew; names stay with the images they fit best.")
    ] = False,
    names: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Take over an edited kinds.csv: names, merges, moved images, junk."
        ),
    ] = None,
    split: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CLASS/KIND[=N]", help="Split one kind in two or more, such as apple/3; may be repeated."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder to write or update; by default RUN/kinds.")
    ] = None,
    data_root: options.DataRoot = None,
    download: options.Download = False,
    strict: options.Strict = False,
    device: options.Device = "auto",
    as_json: options.Json = False,
) -> None:
    """Find the finer kinds inside each coarse class: kinds.csv to edit, kinds.json, contact sheets.

    Run again to assign added images to the kinds that are there, and to take over what was edited in kinds.csv.

    Example: `maskcon kinds runs/photos-maskcon-seed0 --kinds apple=5`
    """
    from maskcon._utils.text import counted
    from maskcon.api import Run
    from maskcon.cli.progress import Meter
    from maskcon.discovery.edits import changes_by_class, list_changes
    from maskcon.discovery.kinds_folder import BACKUP, CSV, Origin, describe_bytes, read_folder, write_folder

    finished = Run.open(run)
    folder = out or finished.folder / FOLDER
    if coarser and finer:
        raise UsageError("--coarser and --finer exclude each other")
    wants_numbers = bool(number) or coarser or finer
    if names is not None and (refresh or wants_numbers):
        raise UsageError("--names takes over a file as it is; find kinds anew in a second command")
    with ExitStack() as stack:
        lock_folder(folder, stack)
        before = read_folder(folder)
        digest = finished.encoder_digest()
        if (names is not None or split) and before is None:
            raise UsageError(f"there are no kinds in {folder} yet; run `maskcon kinds {run}` first")
        if before is not None and before[1].encoder != digest and not refresh:
            raise UsageError(
                f"the kinds in {folder} were found with another model; give --refresh to find them anew, or another "
                "--out"
            )
        source = source if source is not None or before is None else before[1].source
        reading = stack.enter_context(Meter("reading", "images"))
        embedding = stack.enter_context(Meter("embedding", "images"))
        clustering = stack.enter_context(Meter("finding kinds", "classes"))
        images, embedded = _embed(
            finished,
            folder / EMBEDDINGS,
            source,
            data_root=data_root,
            download=download,
            strict=strict,
            device=device,
            reading=reading.show,
            progress=embedding.show,
        )
        wanted = _wanted(
            number, COARSER if coarser else FINER if finer else 1.0, sorted(set(embedded.coarse))
        )
        anew = wanted if refresh or wants_numbers or before is None else None
        old = None if before is None else before[0]
        if old is not None:
            _check_same_images(old, embedded, folder, refresh=refresh)
        found = _next_kinds(folder, old, embedded, anew, names, split or [], clustering.show)
        changes = [] if old is None else list_changes(old.rows, found.rows)
        earlier = {} if before is None else before[1].sheets
        sheets = _draw_sheets(folder, found, images, earlier)
        origin = Origin(digest, None if source is None else images.source, sheets)
        gone = any(change.what == "removed" for change in changes)
        backup = old is not None and (gone or anew is not None or names is not None)
        write_folder(folder, found, origin, keep_backup=backup)
    if as_json:
        record = json.loads(describe_bytes(found, origin))
        record |= {"folder": str(folder), "changes": [change.as_json() for change in changes]}
        typer.echo(json.dumps(record))
        return
    _print_classes(found)
    if old is not None:
        _print_changes(changes_by_class(old.rows, found.rows) if anew is not None else changes)
        if backup:
            typer.echo(f"kinds.csv as it was: {folder / BACKUP}")
    classes = counted(len(found.classes), "coarse class", "coarse classes")
    total = counted(sum(len(set(group.kinds)) for group in found.classes.values()), "kind")
    typer.echo(f"kinds: {folder / CSV}, {total} in {classes}; sheets: {folder / SHEETS}")


def _embed(
    run: Run,
    target: Path,
    source: str | None,
    *,
    data_root: str | None,
    download: bool,
    strict: bool,
    device: str,
    reading: Progress,
    progress: Progress,
) -> tuple[Images, Embedded]:
    """Gather and embed the images; only new or changed ones go through the encoder."""
    from maskcon.api import data_of
    from maskcon.discovery.kinds import Embedded
    from maskcon.retrieval.embeddings_file import read_embeddings

    encode, facts, _ = open_encoder(run, device)
    place = options.machine(data_root=data_root, download=download, strict=strict)
    given = source if source is not None else data_of(run, place)
    images = gather_images(
        run, facts, given, data_root=data_root, download=download, strict=strict, progress=reading
    )
    done = update_embeddings(
        target, header_of(run, facts, images), images, encode, strict=strict, replace=True, progress=progress
    )
    print_left_out(done)
    file = read_embeddings(target)
    paths = [_text(entry.path) for entry in file.entries]
    return images, Embedded(paths, [entry.coarse or UNLABELLED for entry in file.entries], file.vectors)


def _text(path: str) -> str:
    """Escape bytes that are not UTF-8, which kinds.csv cannot hold."""
    return path.encode("utf-8", "backslashreplace").decode()


def _check_same_images(old: Kinds, embedded: Embedded, folder: Path, *, refresh: bool) -> None:
    """Refuse to drop all that is known, edits included, for the images of another source."""
    if not refresh and not set(embedded.paths) & set(old.known()):
        raise UsageError(
            f"{folder} holds the kinds of other images, none of them given now; choose another --out, or give --refresh"
        )


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


def _next_kinds(
    folder: Path,
    old: Kinds | None,
    embedded: Embedded,
    anew: Wanted | None,
    names: Path | None,
    split: list[str],
    progress: Progress,
) -> Kinds:
    """Find kinds, or go on from those that are there and from what was edited."""
    from maskcon.data.kinds_file import read_kinds
    from maskcon.discovery.edits import apply_edits, check_edits
    from maskcon.discovery.kinds import find_kinds
    from maskcon.discovery.kinds_folder import CSV, read_edits
    from maskcon.discovery.revision import add_images, refind_kinds, split_kind

    if old is None:
        return find_kinds(embedded, anew, progress=progress)
    edited = read_kinds(names) if names is not None else read_edits(folder)
    if edited is not None:
        check_edits(old, edited, names or folder / CSV)
        old = apply_edits(old, edited, embedded)
    found = add_images(old, embedded) if anew is None else refind_kinds(old, embedded, anew, progress)
    for which in split:
        found, coarse, parts = split_kind(found, embedded, which)
        typer.echo(f"split {coarse}: {', '.join(parts)}", err=True)
    return found


def _draw_sheets(
    folder: Path, found: Kinds, images: Images, before: Mapping[str, tuple[str, str]]
) -> dict[str, tuple[str, str]]:
    """Draw the contact sheets that differ from those that are there; return file and checksum of each."""
    from maskcon._utils.files import write_atomically
    from maskcon.discovery.summary import summarise
    from maskcon.report.contact_sheet import sheet_digest, sheet_name, sheet_png

    row_of = {_text(path): row for row, path in enumerate(images.paths)}
    (folder / SHEETS).mkdir(exist_ok=True)
    sheets: dict[str, tuple[str, str]] = {}
    for summary in summarise(found):
        taken = [Path(name).name for name, _ in sheets.values()]
        name, digest = f"{SHEETS}/{sheet_name(summary.coarse, taken)}", sheet_digest(summary)
        if before.get(summary.coarse) != (name, digest) or not (folder / name).is_file():
            shown = {path for kind in summary.kinds for path in (*kind.typical, *kind.borderline)}
            pixels = _read(images, {path: row_of[path] for path in sorted(shown)})
            write_atomically(folder / name, sheet_png(summary, pixels))
        sheets[summary.coarse] = (name, digest)
    for name, _ in before.values():
        if name not in {kept for kept, _ in sheets.values()}:
            (folder / name).unlink(missing_ok=True)
    return sheets


def _read(images: Images, rows: dict[str, int]) -> dict[str, NDArray[np.uint8]]:
    from maskcon.data.image_readers import at_once

    path_of = {row: path for path, row in rows.items()}
    wanted, step = list(path_of), at_once(images, 128)
    found = {}
    for start in range(0, len(wanted), step):
        block = images.read(wanted[start : start + step])
        for place, row in enumerate(block.rows):
            height, width = block.images.shape[2:] if block.sizes is None else block.sizes[place].tolist()
            found[path_of[row]] = block.images[place, :, :height, :width].copy()
    return found


def _print_classes(found: Kinds) -> None:
    from maskcon.discovery.summary import summarise

    summaries = summarise(found)
    longest = max(len("class"), *(len(summary.coarse) for summary in summaries))
    typer.echo(f"{'class':{longest}}  images  kinds  coarser/suggested/finer  stability  sizes")
    for summary in summaries:
        stability = "-" if summary.stability is None else f"{summary.stability:.2f}"
        numbers = f"{summary.coarser}/{summary.suggested}/{summary.finer}"
        sizes = ", ".join(f"{kind.size:,}" for kind in summary.kinds)
        reason = f" ({summary.reason})" if summary.reason and len(summary.kinds) == 1 else ""
        typer.echo(
            f"{summary.coarse:{longest}}  {summary.images:6,}  {len(summary.kinds):5}  {numbers:>23}  {stability:>9}  "
            f"{sizes}{reason}"
        )


def _print_changes(changes: Sequence[object]) -> None:
    for change in changes[:SHOWN_AT_MOST]:
        typer.echo(str(change))
    if len(changes) > SHOWN_AT_MOST:
        typer.echo(f"{len(changes) - SHOWN_AT_MOST} more changes; --json lists all")
    if not changes:
        typer.echo("nothing changed")
