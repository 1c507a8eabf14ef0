from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from maskcon._utils.errors import UsageError
from maskcon.paper.ground import ground_for
from maskcon.paper.plans import Trial, table_named, trials_of
from maskcon.paper.runs import PlannedRun, runs_for
from maskcon.paper.table import (
    HONEST,
    ORACLE,
    Section,
    as_table,
    section_for,
    text_of,
    write_files,
)
from maskcon.report.published import appendix_rows, main_rows

Score = Callable[[Trial], float]


def finish(run: PlannedRun, recall: float) -> None:
    """Write what a finished run leaves behind, with a made-up recall@1."""
    run.folder.mkdir(parents=True)
    values = {str(k): round(recall + 0.01 * k, 4) for k in (2, 5, 10)} | {"1": recall}
    result = {
        "recall": values,
        "raw_pixels": {"1": 0.1, "2": 0.2, "5": 0.3, "10": 0.4},
        "method": run.trial.method,
        "data": "made up",
        "seconds": 1.0,
        "source": run.ground.source,
        "train_images": 3000,
        "test_images": 1000,
    }
    (run.folder / "result.json").write_text(json.dumps(result))
    (run.folder / "config.yaml").write_text(run.config.to_yaml())
    (run.folder / "encoder.safetensors").write_bytes(b"")


def section(name: str, out: Path, score: Score, seeds: int = 1) -> Section:
    table = table_named(name)
    ground = ground_for(table.sources[0])
    runs: Mapping[Trial, PlannedRun] = runs_for(trials_of(table, table.sources[0], seeds), ground, out=out)
    for trial, run in runs.items():
        finish(run, score(trial))
    return section_for(table, ground, runs, seeds)


def split_scores(trial: Trial) -> float:
    """On test w = 0.2 wins for Grafit, on validation w = 0.8 does."""
    if trial.method != "grafit":
        return 0.5
    winner = 0.2 if trial.evaluate_on == "test" else 0.8
    return 0.7 if trial.w == winner else 0.3 + 0.1 * float(trial.w or 0)


@pytest.fixture(autouse=True)
def no_data(tmp_path, monkeypatch):
    monkeypatch.setenv("MASKCON_DATA", str(tmp_path / "nothing"))


def test_the_oracle_looks_at_the_test_and_the_honest_choice_at_validation(tmp_path):
    lines = section("cifar100", tmp_path, split_scores).lines
    grafit = {line.chosen_by: line for line in lines if line.name == "Grafit"}
    assert set(grafit) == {ORACLE, HONEST}
    assert (grafit[ORACLE].w, grafit[ORACLE].ours(1).value) == (0.2, pytest.approx(70))
    assert (grafit[HONEST].w, grafit[HONEST].ours(1).value) == (0.8, pytest.approx(38))  # its own TEST score
    assert [line.chosen_by for line in lines if line.name in ("SelfCon", "SupCE", "SupFINE")] == ["", "", ""]


def test_choices_take_the_first_of_equals_and_the_mean_over_seeds(tmp_path):
    def score(trial: Trial) -> float:
        uneven = trial.method == "grafit" and trial.w == 0.2 and trial.evaluate_on == "test"
        return (0.9, 0.1)[trial.seed] if uneven else 0.6

    lines = section("cifar100", tmp_path, score, seeds=2).lines
    assert {line.chosen_by: line.w for line in lines if line.name == "Grafit"} == {ORACLE: 0.5, HONEST: 0.2}


def test_a_main_table_holds_every_method_of_the_paper_and_its_numbers(tmp_path):
    part = section("sop2", tmp_path, lambda _: 0.5)
    published = {row.method: row.percent for row in main_rows("sop-split2")}
    names = [line.name for line in part.lines]
    assert names == [
        "Raw pixels", "SelfCon", "Grafit", "Grafit", "SupCon", "CoIns", "CoIns", "SupCE", "SupFINE",
        "MaskCon", "MaskCon",
    ]  # fmt: skip
    for line in part.lines[1:]:
        assert line.paper == published[line.name.lower()]


def test_supcon_and_supce_show_the_runs_of_grafit_and_coins_at_weight_one(tmp_path):
    part = section("sop2", tmp_path, lambda t: {"grafit": 0.2, "supce": 0.4}.get(t.method, 0.6))
    ours = {line.name: line.ours(1).value for line in part.lines}
    assert (ours["SupCon"], ours["SupCE"]) == (pytest.approx(20), pytest.approx(40))
    assert not any("supcon" in folder.name for folder in (tmp_path / "cpu" / "embedded").iterdir())


def test_an_appendix_table_has_the_papers_rows_in_its_order(tmp_path):
    part = section("appendix-cars196", tmp_path, lambda t: 0.1 + (t.tau or 0.2))
    printed = appendix_rows("cars196")
    assert [(line.name.lower(), line.w, line.tau, line.paper) for line in part.lines[1:]] == [
        (row.method, row.w, row.tau, row.percent) for row in printed
    ]
    maskcon = [line for line in part.lines if line.name == "MaskCon"]
    assert [line.ours(1).value for line in maskcon] == pytest.approx([11, 15, 20, 60])
    bold = [row for row in as_table([part], (1,)).rows if any(getattr(cell, "bold", False) for cell in row)]
    assert {row[0].text for row in bold} == {
        "Grafit",
        "CoIns",
        "MaskCon",
    }  # the best of each; not of one alone


def test_the_difference_is_ours_minus_the_papers_and_absent_on_a_stand_in(tmp_path):
    stand_in = section("cifar100", tmp_path, lambda _: 0.5)
    real = replace(stand_in, ground=replace(stand_in.ground, source="cifar100"))
    for given, differences, data in (
        (real, ("9.5", "-16.66"), "cifar100"),
        (stand_in, ("–", "–"), "cifar100 (STAND-IN: embedded)"),  # noqa: RUF001
    ):
        rows = list(csv.DictReader(io.StringIO(as_table([given], full_names=True).csv())))
        selfcon = next(row for row in rows if row["Method"] == "SelfCon")
        assert float(selfcon["R@1"]) == pytest.approx(50)
        assert float(selfcon["R@1 paper"]) == pytest.approx(40.50)
        assert (selfcon["R@1 diff"], selfcon["R@10 diff"]) == differences
        assert selfcon["Data"] == data


def test_seeds_give_a_mean_and_a_spread(tmp_path):
    part = section("sop2", tmp_path, lambda t: 0.5 + 0.1 * t.seed, seeds=3)
    selfcon = next(line for line in part.lines if line.name == "SelfCon")
    cell = selfcon.ours(1)
    assert (cell.value, cell.spread) == (pytest.approx(60), pytest.approx(10))
    assert "60.00 ± 10.00" in text_of([part])


def test_notes_say_scale_stand_in_oracle_and_the_papers_slips(tmp_path):
    notes = "\n".join(section("cifar100", tmp_path, lambda _: 0.5).notes)
    for part in (
        "STAND-IN", "3,000 training and 1,000 test images", "resnet10 of width 16", "7 epochs", "oracle", "validation",
        "rises from 0 over 1 epochs.", "MaskCon w=1 tau=0.05", "printed 18.17, should be 18.27",
        "87.01 in the main text, 47.25",
    ):  # fmt: skip
        assert part in notes
    assert "diff:" not in notes  # there is none on a stand-in


def test_a_folder_that_cannot_be_written_is_refused_as_bad_input(tmp_path):
    part = section("sop2", tmp_path / "runs", lambda _: 0.5)
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="choose another --out"):
        write_files(tmp_path / "file" / "tables", "x", [part])


def test_the_best_of_coarse_labels_is_bold_and_the_ceiling_is_not(tmp_path):
    scores = {"supfine": 0.9, "selfcon": 0.6}
    table = as_table([section("cifar100", tmp_path, lambda t: scores.get(t.method, 0.5))])
    bold = {cell.text for row in table.rows for cell in row if not isinstance(cell, str) and cell.bold}
    assert bold == {"60.00", "62.00", "65.00", "70.00"}


def test_all_four_formats_are_written_and_hold_the_same_numbers(tmp_path):
    part = section("cifar100", tmp_path / "runs", split_scores)
    files = {
        path.suffix: path.read_text(encoding="utf-8") for path in write_files(tmp_path / "t", "x", [part])
    }
    assert set(files) == {".txt", ".md", ".tex", ".csv"}
    for text in files.values():
        assert "65.52" in text  # the paper's MaskCon
        assert re.search(r"70\.0", text)  # ours, Grafit
        assert "oracle" in text
        assert "STAND-IN: embedded" in text
    widest = max(len(line) for line in files[".txt"].splitlines() if line.startswith(("MaskCon", "Grafit")))
    assert widest <= 100


def test_two_data_sets_are_two_sections_and_one_csv(tmp_path):
    table: Any = table_named("appendix-cifartoy")
    sections = []
    for source in table.sources:
        ground = ground_for(source)
        runs = runs_for(trials_of(table, source), ground, out=tmp_path)
        for run in runs.values():
            if not run.folder.exists():
                finish(run, 0.5)
        sections.append(section_for(table, ground, runs, 1))
    rows = list(csv.DictReader(io.StringIO(as_table(sections, full_names=True).csv())))
    assert {row["Data"] for row in rows} == {
        f"cifartoy-{split} (STAND-IN: embedded)" for split in ("good", "bad")
    }
    assert len(rows) == 2 * 19
    assert text_of(sections).count("cifartoy-bad (STAND-IN: embedded): recall") == 1
