"""`maskcon ask`."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from maskcon.cli import options
from maskcon.cli.embed import print_left_out
from maskcon.cli.printing import echo

FILE, SHEET = "questions.csv", "questions.png"  # in the folder of the kinds


def ask(
    run: options.Run,
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="SOURCE", help="Images of the kinds; by default those in which they were found."
        ),
    ] = None,
    count: Annotated[int, typer.Option("-n", min=1, help="Images to ask about.")] = 50,
    kinds: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Folder of the kinds; by default RUN/kinds.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE", help=f"CSV file to write; by default {FILE} beside the kinds."
        ),
    ] = None,
    data_root: options.DataRoot = None,
    download: options.Download = False,
    device: options.Device = "auto",
    as_json: options.Json = False,
) -> None:
    """Choose the images whose names would improve the kinds most.

    Writes a table to fill in, and a contact sheet. Write names into the column kind, leave it empty where you do not
    know, then run `maskcon kinds RUN --names FILE`: the other images follow.

    Example: `maskcon ask runs/photos-teachcon-seed0 -n 50`
    """
    from maskcon._utils.files import write_atomically
    from maskcon._utils.text import counted
    from maskcon.api import Run
    from maskcon.api.kinds import open_kinds
    from maskcon.cli.progress import Meter
    from maskcon.data.kinds_file import write_kinds
    from maskcon.discovery.questions import check_replaced, choose_questions, question_rows
    from maskcon.report.question_sheet import questions_png, shown_paths

    with ExitStack() as stack:
        reading = stack.enter_context(Meter("reading", "images"))
        embedding = stack.enter_context(Meter("embedding", "images"))
        session, done = stack.enter_context(
            open_kinds(
                Run.open(run),
                source,
                kinds,
                machine=options.machine(data_root=data_root, download=download, device=device),
                needs_kinds=True,
                reading=reading.show,
                embedding=embedding.show,
            )
        )
        print_left_out(done)
        file = out or session.folder / FILE
        found = session.next_kinds()
        check_replaced(file, found)
        questions = choose_questions(found, session.embedded, count)
        write_kinds(file, question_rows(questions, found), questions=True)
        sheet = file.with_name(SHEET) if out is None else file.with_suffix(".png")
        pixels = session.read_pixels(shown_paths(questions, found))
        write_atomically(sheet, questions_png(questions, found, pixels))
    if as_json:
        record = {"file": str(file), "sheet": str(sheet)}
        echo(json.dumps(record | {"questions": [asdict(question) for question in questions]}))
        return
    classes = counted(len({question.coarse for question in questions}), "coarse class", "coarse classes")
    echo(f"questions: {file}, {counted(len(questions), 'image')} of {classes}; sheet: {sheet}")
    if not questions:
        echo("all images are known already")
        return
    echo(f"fill in the column kind, then: maskcon kinds {run} --names {file}")
