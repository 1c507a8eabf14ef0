"""`maskcon datasets`: list the built-in datasets, or `show` one."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from maskcon._utils.errors import UsageError
from maskcon._utils.text import printable
from maskcon.cli import options
from maskcon.cli.printing import echo

if TYPE_CHECKING:
    from maskcon.data import Description

LISTED = (
    *("name", "title", "summary", "classes", "counts", "image", "licence", "origin_url", "how_to_get"),
    "available",
)
LABEL_WIDTH = 12
NAMED_AT_MOST = 100  # with more fine classes, they are only counted
UNKNOWN_CLASSES = "the products are listed in Ebay_info.txt; known once the dataset is complete and intact"


def datasets(
    show: Annotated[
        Literal["show"] | None, typer.Argument(metavar="show", help="Describe one dataset.")
    ] = None,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="The dataset to describe.")] = None,
    as_json: options.Json = False,
    data_root: options.DataRoot = None,
    variant: Annotated[
        str, typer.Option(help="Coarse classes as in the paper's text (paper) or in its code (reference).")
    ] = "paper",
) -> None:
    """List the built-in datasets, or show one.

    Shows origin, licence, counts, classes and missing files. With --json, coarse_of is the coarse class of every fine
    class, in the dataset's usual order of classes.

    Example: `maskcon datasets`, `maskcon datasets show imagenet32 --json`
    """
    from rich.console import Console

    root = None if data_root is None else Path(data_root)
    if show is None:
        _list(root, as_json)
        return
    if name is None:
        raise UsageError("name the dataset to show; `maskcon datasets` lists them")
    from maskcon.data import describe

    kind = cast(Literal["paper", "reference"], variant)  # `describe` refuses others
    found = describe(name, root, variant=kind)
    if as_json:
        echo(json.dumps(_as_json(found)))
        return
    console = Console(highlight=False)
    for line in _lines(found):  # wrapped in a terminal only
        console.print(printable(line), markup=False, soft_wrap=not console.is_terminal)


def _list(root: Path | None, as_json: bool) -> None:
    from maskcon.data import catalogue
    from maskcon.data import data_root as folder_of

    known = catalogue(root)
    if as_json:
        echo(json.dumps([{key: getattr(info, key) for key in LISTED} for info in known]))
        return
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    table = Table("name", box=None, pad_edge=False)
    for heading in ("train", "test", "coarse", "fine"):
        table.add_column(heading, justify="right")
    for heading in ("images", "here"):
        table.add_column(heading)
    for info in known:
        numbers = [f"{number:,}" for number in (*info.counts, *info.classes)]
        by_download = "no (--download)" if info.download_mb else "no (by hand)"
        table.add_row(info.name, *numbers, info.image, "yes" if info.available else by_download)
    console.print(table)
    console.print("`maskcon datasets show NAME` describes a dataset and how to get it.")
    where = f"Data folder: {folder_of(root)}. Commands also take a folder of images instead of a name."
    # a path may hold [brackets]; without wrapping, it can be copied
    console.print(printable(where), markup=False, soft_wrap=True)


def _as_json(found: Description) -> dict[str, Any]:
    grouping = found.grouping
    return {
        **asdict(found.info),
        "variant": found.variant,
        "views": _views(found),
        "data_root": str(found.folder),
        "missing": found.missing,
        "coarse_names": grouping.coarse_names,
        "fine_names": grouping.fine_names or None,
        "coarse_of": grouping.coarse_of or None,
        "fine_per_coarse": grouping.sizes if grouping.fine_names else None,
        "coarse_of_reason": None if grouping.fine_names else UNKNOWN_CLASSES,
    }


def _views(found: Description) -> dict[str, str]:
    """Return the policies of a family by their naming rule, which avoids loading torch."""
    return {"query": f"{found.info.family}-strong", "key": f"{found.info.family}-weak"}


def _lines(found: Description) -> list[str]:
    info = found.info
    facts = {
        "what": info.summary,
        "images": f"{info.counts[0]:,} to train on, {info.counts[1]:,} to test; {info.image}",
        "classes": f"{info.classes[0]} coarse, {info.classes[1]:,} fine",
        "fine order": info.class_order,
        "views": " (query), ".join(_views(found).values()) + " (key)",
        "from": info.origin_url,
        "licence": info.licence,
        "get it": info.how_to_get,
        "cite": info.citation,
        "data folder": str(found.folder),
        "here": "yes" if info.available else "no; missing:",
    }
    lines = [
        f"{info.name}: {info.title}",
        *(f"{label:<{LABEL_WIDTH}} {text}" for label, text in facts.items()),
    ]
    lines += [f"  {line}" for line in found.missing]
    if info.files:
        width = max(len(file.name) for file in info.files)
        lines.append("files wanted, with their md5 where known")
        lines += [f"  {file.name:<{width}}  {' or '.join(file.md5)}".rstrip() for file in info.files]
    lines.append(f"coarse classes (variant {found.variant}) and the number of fine classes in each")
    return lines + _class_lines(found)


def _class_lines(found: Description) -> list[str]:
    grouping = found.grouping
    if not grouping.fine_names:
        lines = [f"  {place:>3}    ?  {name}" for place, name in enumerate(grouping.coarse_names)]
        return [*lines, f"  not known: {UNKNOWN_CLASSES}"]
    lines = []
    for place, (name, size) in enumerate(zip(grouping.coarse_names, grouping.sizes, strict=True)):
        inside = [
            fine
            for fine, coarse in zip(grouping.fine_names, grouping.coarse_of, strict=True)
            if coarse == place
        ]
        named = f": {', '.join(inside)}" if len(grouping.fine_names) <= NAMED_AT_MOST else ""
        lines.append(f"  {place:>3} {size:>4}  {name}{named}")
    return lines
