"""Rows run for real, at the small sizes of --quick."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from maskcon.bench.figures import ASKED
from maskcon.bench.measure import Effort
from maskcon.bench.rows import ROWS
from maskcon.cli import app
from tests.cli.in_process import refused

CHEAP = ("views_per_core", "pack_read")


def test_the_command_runs_cheap_rows_and_leaves_figures_a_table_and_markdown(tmp_path):
    path = tmp_path / "bench.json"
    result = CliRunner().invoke(app, ["bench", "--quick", "--rows", ",".join(CHEAP), "--json", str(path)])
    assert result.exit_code == 0, result.output
    assert "2 of 2: pack_read" in result.stderr
    content = json.loads(path.read_text())
    assert set(content) == {*CHEAP, "machine"}
    assert content["views_per_core"]["ratio_to_pil_32"] > 0
    assert content["views_per_core"]["images_per_second_224"] > 0
    assert content["pack_read"]["ratio_to_jpeg"] > 1
    assert content["machine"]["quick"] is True
    assert content["machine"]["seconds"] > 0
    assert "views_per_core.ratio_to_pil_32" in result.stdout
    shown = CliRunner().invoke(app, ["bench", "--show", str(path), "--markdown"])
    assert "| `pack_read.ratio_to_jpeg` |" in shown.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in ROWS if name not in CHEAP])
def test_every_row_gives_its_asked_figures(name):
    row = ROWS[name](Effort(quick=True))
    for asked in ASKED:
        if asked.row == name:
            value = row[asked.name]
            assert isinstance(value, float), asked.path
            assert value > 0, asked.path


def test_misuse_is_refused_in_one_line(tmp_path):
    assert "unknown row 'steps'" in refused("bench", "--rows", "steps")
    assert "folder that exists" in refused("bench", "--json", str(tmp_path / "no" / "bench.json"))
    assert "cannot read" in refused("bench", "--show", str(tmp_path / "none.json"))
    assert "give it alone" in refused("bench", "--show", "bench.json", "--quick")


def test_without_faiss_the_row_says_so_and_measures_the_rest(monkeypatch):
    from maskcon.bench import recall

    monkeypatch.setattr(recall, "has_faiss", lambda: False)
    monkeypatch.setattr(recall, "QUICK_SHARE", 100)
    monkeypatch.setattr(recall, "in_fresh_process", lambda *_, **__: {"extra_mb": 1.0})
    row = recall.recall_eval(Effort(quick=True))
    assert row["ratio_to_faiss_25k"] is None
    assert "maskcon[faiss]" in str(row["note"])
    assert isinstance(row["ratio_to_matrix_8k"], float)
