from __future__ import annotations

import csv
import html.parser
import io
import statistics
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maskcon._utils.errors import UsageError
from maskcon._utils.text import printable
from maskcon.methods.registry import method_named
from maskcon.report.formats import Cell, Table
from maskcon.report.page import part
from maskcon.report.tables import METHOD_NAMES, mean_and_spread, methods_table

PIXELS = {"1": 0.11, "2": 0.15, "5": 0.24, "10": 0.33}


def result(method: str, first: float, seed: int = 0, **more: Any) -> dict[str, Any]:
    recall = {"1": first, "2": first + 0.1, "5": first + 0.2, "10": first + 0.3}
    base = {"method": method, "recall": recall, "raw_pixels": PIXELS, "seed": seed, "source": "cifar100"}
    return base | {"labels": "coarse", "w": 1.0, "tau": 0.05, "epochs": 200, "preset": "paper"} | more


def first_column(table: Table) -> list[str]:
    return [row[0].text if isinstance(row[0], Cell) else row[0] for row in table.rows]


def cell(table: Table, name: str, column: str) -> Cell:
    found = table.rows[first_column(table).index(name)][list(table.columns).index(column)]
    assert isinstance(found, Cell)
    return found


def test_rows_follow_the_paper_with_floor_first_and_ceiling_last() -> None:
    shuffled = [
        "supfine",
        "maskcon",
        "mine",
        "supce",
        "coins",
        "selfcon",
        "grafit",
        "ascl",
        "nnclr",
        "supcon",
    ]
    table = methods_table([result(name, 0.3) for name in shuffled])
    expected = ["Raw pixels", "SelfCon", "NNCLR", "ASCL", "SupCE", "SupCon", "Grafit", "CoIns", "MaskCon"]
    assert first_column(table) == [*expected, "mine", "SupFINE"]
    assert list(table.columns) == ["Method", "R@1", "R@2", "R@5", "R@10", "n"]


def test_methods_are_called_what_they_call_themselves() -> None:
    assert {name: method_named(name).title for name in METHOD_NAMES} == METHOD_NAMES


@settings(deadline=None)
@given(st.lists(st.floats(0, 1), min_size=2, max_size=6))
def test_mean_and_spread_match_the_statistics_module(values: list[float]) -> None:
    table = methods_table([result("maskcon", value, seed) for seed, value in enumerate(values)])
    percent = [100 * value for value in values]
    found = cell(table, "MaskCon", "R@1")
    assert found.value == pytest.approx(statistics.mean(percent), abs=1e-9)
    assert found.spread == pytest.approx(statistics.stdev(percent), abs=1e-9)
    assert found.text == f"{found.value:.2f} ± {found.spread:.2f}"
    assert cell(table, "MaskCon", "n").text == str(len(values))


def test_spread_divides_by_n_minus_one() -> None:
    assert mean_and_spread([1.0, 2.0, 3.0]) == (2.0, 1.0)
    assert mean_and_spread([4.0]) == (4.0, None)


def test_one_seed_shows_no_spread() -> None:
    assert cell(methods_table([result("maskcon", 0.6552)]), "MaskCon", "R@1").text == "65.52"


def test_only_the_best_coarse_label_method_is_bold() -> None:
    table = methods_table(
        [result("selfcon", 0.4), result("maskcon", 0.6), result("supfine", 0.9, labels="fine")]
    )
    assert cell(table, "MaskCon", "R@1").bold
    assert not cell(table, "SelfCon", "R@1").bold
    assert not cell(table, "SupFINE", "R@1").bold
    assert cell(table, "SupFINE", "R@1").muted
    assert not cell(table, "Raw pixels", "R@1").bold


def test_a_single_row_is_not_the_best_of_anything() -> None:
    table = methods_table([result("maskcon", 0.05), result("maskcon", 0.06, 1)])
    assert not cell(table, "MaskCon", "R@1").bold
    assert not any("Bold" in note for note in table.notes)


def test_methods_that_print_the_same_number_are_both_bold() -> None:
    table = methods_table([result("grafit", 0.60001), result("maskcon", 0.60004)])
    assert cell(table, "Grafit", "R@1").bold
    assert cell(table, "MaskCon", "R@1").bold


def test_another_method_on_fine_labels_belongs_to_the_ceiling() -> None:
    table = methods_table([result("supcon", 0.8, labels="fine"), result("maskcon", 0.6)])
    assert first_column(table) == ["Raw pixels", "MaskCon", "SupCon, fine labels"]
    assert cell(table, "MaskCon", "R@1").bold


def test_runs_with_different_settings_are_not_averaged() -> None:
    table = methods_table([result("maskcon", 0.5, w=0.8), result("maskcon", 0.6, w=1.0, tau=0.1)])
    assert first_column(table) == ["Raw pixels", "MaskCon (w=0.8, τ=0.05)", "MaskCon (w=1, τ=0.1)"]


def test_runs_that_differ_in_any_setting_are_not_averaged() -> None:
    given = {"learning_rate": 0.1, "width": 16, "tau": 0.05, "seed": 0}
    results = [
        result("maskcon", 0.5, settings=given),
        result("maskcon", 0.6, 1, settings={**given, "seed": 1}),
        result("maskcon", 0.7, settings={**given, "learning_rate": 0.2}),
        result("selfcon", 0.3, settings={**given, "learning_rate": 0.3}),
    ]
    table = methods_table(results)
    rows = ["SelfCon", "MaskCon (learning_rate=0.1)", "MaskCon (learning_rate=0.2)"]
    assert first_column(table) == ["Raw pixels", *rows]
    assert [cell(table, name, "n").text for name in rows] == ["1", "2", "1"]
    assert not any("several runs with seed" in note for note in table.notes)


def test_runs_scored_on_other_images_stand_apart() -> None:
    results = [
        result("maskcon", 0.5, evaluated_on="test"),
        result("maskcon", 0.6, 1, evaluated_on="validation"),
    ]
    table = methods_table(results)
    assert table.columns[1] == "Scored on"
    assert [row[1] for row in table.rows] == ["test"] * 2 + ["validation"] * 2
    assert methods_table(results[:1]).title == "Recall@K on the test images, in percent"
    assert methods_table(results[1:]).title == "Recall@K on the validation images, in percent"
    part = [result("maskcon", 0.5), result("maskcon", 0.6, 1, train_images=50)]
    assert methods_table(part).columns[1] == "Train images"


def test_each_data_set_has_its_own_floor_and_its_own_best() -> None:
    results = [result("selfcon", 0.4), result("maskcon", 0.6), result("maskcon", 0.2, source="cars196")]
    table = methods_table(results)
    assert table.columns[1] == "Data"
    assert [row[1] for row in table.rows] == ["cifar100"] * 3 + ["cars196"] * 2
    best = [row[2].bold for row in table.rows if isinstance(row[2], Cell)]
    assert best == [False, False, True, False, True]


def test_a_repeated_seed_is_pointed_out() -> None:
    table = methods_table([result("maskcon", 0.5, 7), result("maskcon", 0.6, 7)])
    assert any("seed 7" in note for note in table.notes)


def test_missing_or_undefined_recall_prints_a_dash() -> None:
    table = methods_table([result("maskcon", 0.5, recall={"1": None, "2": float("nan"), "5": 0.5})])
    assert [cell(table, "MaskCon", f"R@{k}").text for k in (1, 2, 5, 10)] == ["–", "–", "50.00", "–"]  # noqa: RUF001
    assert not cell(table, "MaskCon", "R@1").bold


def test_published_numbers_stand_beside_ours() -> None:
    table = methods_table([result("maskcon", 0.5)], published={"maskcon": {"1": 0.6552}})
    assert cell(table, "MaskCon", "R@1, paper").text == "65.52"
    assert cell(table, "Raw pixels", "R@1, paper").text == "–"  # noqa: RUF001


def test_no_results_are_refused() -> None:
    with pytest.raises(UsageError, match="no results"):
        methods_table([])


HOSTILE = '<b>&"a"|b\\_%$#{x}~^*,\n=c'


@pytest.fixture
def hostile() -> Table:
    rows = [[HOSTILE, Cell("1.50 ± 0.10", bold=True, value=1.5, spread=0.1)], ["plain", "2"]]
    return Table(["na|me", "R@1"], rows, title=HOSTILE, notes=["50% <i>"])


def test_text_is_aligned_and_stars_the_best(hostile: Table) -> None:
    wide = Table(["Name", "R@1", "n"], [["日本", Cell("9.00", bold=True), "1"], ["e\u0301x", "10.00", "22"]])
    assert wide.text().splitlines() == [
        "Name    R@1    n",
        "----  ------  --",
        "日本   9.00*   1",
        "e\u0301x    10.00   22",
        "* best",
    ]
    assert len(hostile.text().splitlines()) == 7  # title, head, rule, 2 rows, star, note


def test_markdown_escapes_what_would_break_the_row(hostile: Table) -> None:
    lines = hostile.markdown().splitlines()
    assert lines[2] == r"| na\|me | R@1 |"
    assert lines[3] == "| :--- | ---: |"
    assert lines[4] == r"""| \<b\>&"a"\|b\\\_%$\#\{x\}\~^\*, =c | **1.50 ± 0.10** |"""


def test_latex_escapes_every_special_character(hostile: Table) -> None:
    lines = hostile.latex().splitlines()
    expected = (
        r"\textless{}b\textgreater{}\&"
        r'"a"\textbar{}b\textbackslash{}\_\%\$\#\{x\}\textasciitilde{}\textasciicircum{}*, =c'
        r" & \textbf{1.50 $\pm$ 0.10} \\"
    )
    assert expected in lines
    assert r"\begin{tabular}{lr}" in lines
    assert hostile.latex().count(r"\begin{") == hostile.latex().count(r"\end{") == 2


def test_csv_reads_back_with_value_and_spread(hostile: Table) -> None:
    rows = list(csv.reader(io.StringIO(hostile.csv())))
    assert rows == [["na|me", "R@1", "R@1 sd"], [HOSTILE, "1.5", "0.1"], ["plain", "2", ""]]


def test_csv_holds_no_formula(hostile: Table) -> None:
    named = replace(hostile, columns=("=cmd", *hostile.columns[1:]), rows=(("@SUM(A1)", "-"), ("-0.5", "-1")))
    rows = list(csv.reader(io.StringIO(named.csv())))
    assert [row[0] for row in rows] == ["'=cmd", "'@SUM(A1)", "-0.5"]
    assert rows[1][1] == "-"


def test_html_escapes_and_heads_rows_and_columns(hostile: Table) -> None:
    class Reader(html.parser.HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.tags: list[str] = []
            self.words: list[str] = []

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            self.tags.append(tag)

        def handle_data(self, data: str) -> None:
            self.words.append(data)

    reader = Reader()
    text = part("table", hostile)
    reader.feed(text)
    assert "b" not in reader.tags
    assert "i" not in reader.tags
    assert printable(HOSTILE) in reader.words
    assert reader.tags.count("strong") == 1
    assert '<th scope="row">plain</th>' in text
    assert '<th scope="col">na|me</th>' in text


def test_empty_tables_have_every_format() -> None:
    empty = Table(["a"], [])
    for form in (empty.text(), empty.markdown(), empty.latex(), empty.csv(), part("table", empty)):
        assert "a" in form
