"""Tables as text, Markdown, LaTeX and CSV; `page` renders them as HTML.

    table = Table(["Method", "R@1"], [["SelfCon", "40.50"], ["MaskCon", Cell("65.52", bold=True)]])
    print(table.text())

`maskcon.report.tables.methods_table` builds the table that compares methods.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from maskcon._utils.text import escape_formula, printable


@dataclass(frozen=True)
class Cell:
    """One cell: its text, and for measured numbers also value and spread, for `csv`."""

    text: str
    bold: bool = False  # the best
    muted: bool = False  # for orientation only: the floor and the ceiling
    value: float | None = None
    spread: float | None = None  # sample standard deviation
    image: str = ""  # data URI of an image, shown on a page in place of the text


@dataclass(frozen=True)
class Table:
    """Columns, rows of strings or `Cell`s, a title and notes. The first column names the rows.

    >>> print(Table(["Method", "R@1"], [["SelfCon", "40.50"]]).markdown())
    | Method | R@1 |
    | :--- | ---: |
    | SelfCon | 40.50 |
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str | Cell]]
    title: str = ""
    notes: Sequence[str] = ()

    def text(self) -> str:
        """Render for a terminal; a star marks what other formats print bold."""
        grid = [[_one_line(name) for name in self.columns]]
        marks = [[""] * len(self.columns)]
        for row in self.cells():
            grid.append([_one_line(cell.text) for cell in row])
            marks.append(["*" if cell.bold else "" for cell in row])
        # A column with a star leaves room for it in every row, so that digits stay aligned.
        for column in range(len(self.columns)):
            if any(row[column] for row in marks):
                for cells, stars in zip(grid, marks, strict=True):
                    cells[column] += stars[column] or " "
        widths = [max(cell_len(row[column]) for row in grid) for column in range(len(self.columns))]
        lines = ["  ".join(_padded(row, widths)).rstrip() for row in grid]
        lines.insert(1, "  ".join("-" * width for width in widths))
        starred = ["* best"] if any(star for row in marks for star in row) else []
        title = [_one_line(self.title)] if self.title else []
        return "\n".join([*title, *lines, *starred, *map(_one_line, self.notes)])

    def markdown(self) -> str:
        """Render as GitHub-flavoured Markdown."""
        rule = [":---", *["---:"] * (len(self.columns) - 1)]
        head, *body = self._marked(_markdown_escaped, bold="**{}**")
        lines = ["| " + " | ".join(row) + " |" for row in (head, rule, *body)]
        title = [f"**{_markdown_escaped(self.title)}**", ""] if self.title else []
        notes = ["", *(f"{_markdown_escaped(note)}  " for note in self.notes)] if self.notes else []
        return "\n".join([*title, *lines, *notes])

    def latex(self) -> str:
        """Render as a LaTeX `table` environment for the packages `booktabs` and `xcolor`."""
        marked = self._marked(_latex_escaped, bold=r"\textbf{{{}}}", muted=r"\textcolor{{gray}}{{{}}}")
        head, *body = [" & ".join(row) + r" \\" for row in marked]
        caption = " ".join(_latex_escaped(part) for part in (self.title, *self.notes) if part)
        opening = [r"\begin{table}[t]", r"\centering", *([rf"\caption{{{caption}}}"] if caption else [])]
        opening += [rf"\begin{{tabular}}{{{'l' + 'r' * (len(self.columns) - 1)}}}", r"\toprule"]
        closing = [r"\bottomrule", r"\end{tabular}", r"\end{table}"]
        return "\n".join([*opening, head, r"\midrule", *body, *closing])

    def csv(self) -> str:
        """Render as CSV (RFC 4180). Measured numbers take two columns, the mean and its standard deviation.

        Text that a spreadsheet would run as a formula gets a leading apostrophe.
        """
        cells = self.cells()
        has_spread = [
            any(row[index].spread is not None for row in cells) for index in range(len(self.columns))
        ]
        stream = io.StringIO()
        writer = csv.writer(stream)
        writer.writerow(
            field
            for name, spread in zip(self.columns, has_spread, strict=True)
            for field in (
                (escape_formula(name), f"{escape_formula(name)} sd") if spread else (escape_formula(name),)
            )
        )
        for row in cells:
            fields: list[str] = []
            for cell, spread in zip(row, has_spread, strict=True):
                fields.append(escape_formula(cell.text) if cell.value is None else _number(cell.value))
                fields += ["" if cell.spread is None else _number(cell.spread)] if spread else []
            writer.writerow(fields)
        return stream.getvalue()

    def files(self) -> dict[str, str]:
        """Render in every format for files, by file extension."""
        return {
            "txt": self.text() + "\n",
            "md": self.markdown() + "\n",
            "tex": self.latex() + "\n",
            "csv": self.csv(),
        }

    def _marked(self, escape: Callable[[str], str], *, bold: str, muted: str = "{}") -> list[list[str]]:
        """Return the header and the rows as text, escaped and with the markup of their cells."""

        def marked(cell: Cell) -> str:
            text = escape(cell.text)
            text = muted.format(text) if text and cell.muted else text
            return bold.format(text) if text and cell.bold else text

        return [[escape(name) for name in self.columns], *([marked(c) for c in row] for row in self.cells())]

    def cells(self) -> list[list[Cell]]:
        """Return the rows, all as cells."""
        return [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in self.rows]


def _one_line(text: str) -> str:
    return printable(" ".join(text.split()))


def _padded(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    filled: list[str] = []
    for index, (text, width) in enumerate(zip(row, widths, strict=True)):
        space = " " * (width - cell_len(text))
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
