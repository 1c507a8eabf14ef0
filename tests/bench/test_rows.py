"""Rows run for real, at the small sizes of --quick."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.bench.__main__ import ROWS, run
from benchmarks.bench.figures import ASKED
from benchmarks.bench.measure import ROOT, Effort

from maskcon._utils.errors import UsageError

CHEAP = ("pack_read",)


def test_the_command_runs_a_cheap_row_and_leaves_figures_a_table_and_markdown(tmp_path, capsys):
    path = tmp_path / "bench.json"
    run(["--quick", "--rows", ",".join(CHEAP), "--json", str(path)])
    told = capsys.readouterr()
    assert "1 of 1: pack_read" in told.err
    assert "pack_read.ratio_to_jpeg" in told.out
    content = json.loads(path.read_text())
    assert set(content) == {*CHEAP, "machine"}
    assert content["pack_read"]["ratio_to_jpeg"] > 1
    assert content["pack_read"]["images_per_second"] > 0
    assert content["machine"]["quick"] is True
    assert content["machine"]["seconds"] > 0
    run(["--show", str(path), "--markdown"])
    assert "| `pack_read.ratio_to_jpeg` |" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in ROWS if name not in CHEAP])
def test_every_row_gives_its_asked_figures(name):
    row = ROWS[name](Effort(quick=True))
    for asked in ASKED:
        if asked.row == name:
            value = row[asked.name]
            assert isinstance(value, float), asked.path
            assert value > 0, asked.path


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--rows", "steps"], "unknown row 'steps'"),
        (["--json", "no/such/folder/bench.json"], "folder that exists"),
        (["--show", "none.json"], "cannot read"),
        (["--show", "bench.json", "--quick"], "give it alone"),
    ],
)
def test_misuse_is_refused(arguments, told):
    with pytest.raises(UsageError, match=told):
        run(arguments)


def test_the_module_is_a_command_whose_errors_are_one_line_and_an_exit_code():
    command = [sys.executable, "-m", "benchmarks.bench", "--rows", "steps"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    assert "unknown row 'steps'" in line


def test_make_bench_runs_this_command():
    assert "python -m benchmarks.bench --json bench.json" in Path(ROOT, "Makefile").read_text(
        encoding="utf-8"
    )


def test_without_faiss_the_row_says_so_and_measures_the_rest(monkeypatch):
    from benchmarks.bench import recall

    monkeypatch.setattr(recall, "has_faiss", lambda: False)
    monkeypatch.setattr(recall, "QUICK_SHARE", 100)
    monkeypatch.setattr(recall, "in_fresh_process", lambda *_, **__: {"extra_mb": 1.0})
    row = recall.recall_eval(Effort(quick=True))
    assert row["ratio_to_faiss_25k"] is None
    assert "maskcon[faiss]" in str(row["note"])
    assert isinstance(row["ratio_to_matrix_8k"], float)
