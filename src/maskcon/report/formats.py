"""One table in five formats: to print, to paste into a paper or a page, to read with a spreadsheet.

    table = Table(["Method", "R@1"], [["SelfCon", "40.50"], ["MaskCon", Cell("65.52", bold=True)]])
    print(table.text())

`maskcon.report.tables.methods_table` builds the one that compares methods.
"""

from __future__ import annotations

import csv
import html
import io
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from maskcon._utils.errors import UsageError


@dataclass(frozen=True)
class Cell:
    """One cell: what people read, and for measured numbers also the value and its spread for `csv`."""

    text: str
    bold: bool = False  # the best of its kind
    muted: bool = False  # for orientation only: the floor and the ceiling
    value: float | None = None
    spread: float | None = None  # sample standard deviation


@dataclass(frozen=True)
class Table:
    """Columns, rows of strings or `Cell`s, a title and notes. The first column heads its rows.

    >>> print(Table(["Method", "R@1"], [["SelfCon", "40.50"]]).markdown())
    | Method | R@1 |
    | :--- | ---: |
    | SelfCon | 40.50 |
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str | Cell]]
    title: str = ""
    notes: Sequence[str] = ()

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows, start=1):
            if len(row) != len(self.columns):
                raise UsageError(
                    f"row {number} of the table has {len(row)} cells for {len(self.columns)} columns: {row!r}"
                )

    def text(self) -> str:
        """For a terminal. A star marks what other formats print bold."""
        grid = [[_one_line(name) for name in self.columns]]
        marks = [[""] * len(self.columns)]
        for row in self._cells():
            grid.append([_one_line(cell.text) for cell in row])
            marks.append(["*" if cell.bold else "" for cell in row])
        # A column with a star anywhere keeps a place for it in every row, so that the digits stay aligned.
        for column in range(len(self.columns)):
            if any(row[column] for row in marks):
                for cells, stars in zip(grid, marks, strict=True):
                    cells[column] += stars[column] or " "
        widths = [max(_width(row[column]) for row in grid) for column in range(len(self.columns))]
        lines = ["  ".join(_padded(row, widths)).rstrip() for row in grid]
        lines.insert(1, "  ".join("-" * width for width in widths))
        starred = ["* best"] if any(star for row in marks for star in row) else []
        title = [_one_line(self.title)] if self.title else []
        return "\n".join([*title, *lines, *starred, *map(_one_line, self.notes)])

    def markdown(self) -> str:
        """GitHub-flavoured Markdown."""
        rule = [":---"] + ["---:"] * (len(self.columns) - 1)
        rows = [[_markdown_escaped(name) for name in self.columns], rule[: len(self.columns)]]
        for cells in self._cells():
            rows.append([_wrapped(cell, _markdown_escaped, bold="**{}**", muted="{}") for cell in cells])
        lines = ["| " + " | ".join(row) + " |" for row in rows]
        head = [f"**{_markdown_escaped(self.title)}**", ""] if self.title else []
        tail = ["", *(f"{_markdown_escaped(note)}  " for note in self.notes)] if self.notes else []
        return "\n".join([*head, *lines, *tail])

    def latex(self) -> str:
        r"""A `table` environment for packages `booktabs` and `xcolor`."""
        rows = [
            " & ".join(
                _wrapped(cell, _latex_escaped, bold=r"\textbf{{{}}}", muted=r"\textcolor{{gray}}{{{}}}")
                for cell in cells
            )
            + r" \\"
            for cells in self._cells()
        ]
        caption = " ".join(_latex_escaped(part) for part in (self.title, *self.notes) if part)
        return "\n".join(
            [
                r"\begin{table}[t]",
                r"\centering",
                *([rf"\caption{{{caption}}}"] if caption else []),
                rf"\begin{{tabular}}{{{'l' + 'r' * (len(self.columns) - 1)}}}",
                r"\toprule",
                " & ".join(_latex_escaped(name) for name in self.columns) + r" \\",
                r"\midrule",
                *rows,
                r"\bottomrule",
                r"\end{tabular}",
                r"\end{table}",
            ]
        )

    def csv(self) -> str:
        """RFC 4180. A column of measured numbers becomes two, the mean and its standard deviation."""
        rows = self._cells()
        spread_columns = {
            index for index in range(len(self.columns)) if any(row[index].spread is not None for row in rows)
        }
        stream = io.StringIO()
        writer = csv.writer(stream)
        header: list[str] = []
        for index, name in enumerate(self.columns):
            header += [name, f"{name} sd"] if index in spread_columns else [name]
        writer.writerow(header)
        for row in rows:
            fields: list[str] = []
            for index, cell in enumerate(row):
                fields.append(cell.text if cell.value is None else _number(cell.value))
                if index in spread_columns:
                    fields.append("" if cell.spread is None else _number(cell.spread))
            writer.writerow(fields)
        return stream.getvalue()

    def html(self) -> str:
        """A `<figure>` holding the table and its notes; style it by the classes `table` and `muted`."""
        head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in self.columns)
        body = "\n".join(f"<tr>{_html_row(row)}</tr>" for row in self._cells())
        caption = f"<caption>{html.escape(self.title)}</caption>\n" if self.title else ""
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes)
        notes = f"\n<figcaption>{notes}</figcaption>" if notes else ""
        return (
            f'<figure class="table"><div class="scroll"><table>\n{caption}<thead><tr>{head}</tr></thead>\n'
            f"<tbody>\n{body}\n</tbody>\n</table></div>{notes}</figure>"
        )

    def _cells(self) -> list[list[Cell]]:
        return [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in self.rows]


def _wrapped(cell: Cell, escape: Callable[[str], str], *, bold: str, muted: str) -> str:
    text = escape(cell.text)
    if not text:
        return text
    if cell.muted:
        text = muted.format(text)
    return bold.format(text) if cell.bold else text


def _html_row(row: Sequence[Cell]) -> str:
    parts: list[str] = []
    for index, cell in enumerate(row):
        text = _wrapped(cell, html.escape, bold="<strong>{}</strong>", muted="{}")
        style = ' class="muted"' if cell.muted else ""
        parts.append(f'<th scope="row"{style}>{text}</th>' if index == 0 else f"<td{style}>{text}</td>")
    return "".join(parts)


def _one_line(text: str) -> str:
    """Without line breaks, and without the control characters that could steer a terminal."""
    return "".join(
        letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in " ".join(text.split())
    )


def _width(text: str) -> int:
    """Columns of a terminal: East Asian characters take two, combining marks none."""
    return sum(
        0 if unicodedata.combining(letter) else 1 + (unicodedata.east_asian_width(letter) in "WF")
        for letter in text
    )


def _padded(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    filled: list[str] = []
    for index, (text, width) in enumerate(zip(row, widths, strict=True)):
        space = " " * (width - _width(text))
        filled.append(text + space if index == 0 else space + text)
    return filled


def _number(value: float) -> str:
    return repr(round(float(value), 6))


def _markdown_escaped(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>#|~])", r"\\\1", _one_line(text))


_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "τ": r"$\tau$",
    "∞": r"$\infty$",
    "–": "--",  # noqa: RUF001 (an en dash is what is meant)
}


def _latex_escaped(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in _one_line(text))
