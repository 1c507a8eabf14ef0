"""What a result looks like: names, bounds, JSON, tables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.bench import figures
from benchmarks.bench.__main__ import ROWS, chosen
from benchmarks.bench.figures import ASKED

from maskcon._utils.errors import CorruptFileError, UsageError

NAMES = (
    "step_overhead.resnet18",
    "step_overhead.cpu",
    "step_vs_plain.resnet18",
    "step_vs_plain.cpu",
    "loss_memory.ratio_b1024_k65536",
    "recall_eval.ratio_to_faiss_25k",
    "recall_eval.extra_mb",
    "pack_read.ratio_to_jpeg",
    "startup.help_seconds",
    "startup.import_ratio_to_torch",
    "busy_core.ratio",
    "scaling.efficiency_2",
)


def test_all_asked_names_are_in_the_table_of_bounds_and_belong_to_a_row():
    assert [asked.path for asked in ASKED] == list(NAMES)
    assert {asked.row for asked in ASKED} == set(ROWS)


def test_the_document_tells_what_every_asked_figure_is():
    text = (Path(__file__).parents[2] / "docs" / "performance.md").read_text(encoding="utf-8")
    assert [path for path in NAMES if f"| `{path}` |" not in text] == []


def test_bounds_are_the_asked_ones_and_look_the_right_way():
    bound = {asked.path: asked for asked in ASKED}
    for path, passing, failing in [
        ("step_overhead.resnet18", 1.05, 1.06),
        ("step_overhead.cpu", 1.25, 1.26),
        ("step_vs_plain.resnet18", 1.15, 1.14),
        ("loss_memory.ratio_b1024_k65536", 0.333, 0.34),
        ("recall_eval.ratio_to_faiss_25k", 1.0, 1.01),
        ("recall_eval.extra_mb", 256.0, 257.0),
        ("busy_core.ratio", 2.5, 2.6),
    ]:
        assert bound[path].is_met(passing)
        assert bound[path].is_met(failing) is False
    for path in ("pack_read.ratio_to_jpeg", "step_vs_plain.cpu"):
        assert bound[path].is_met(1.0) is None


def test_tables_tell_met_missed_and_not_measured_and_hold_every_further_figure():
    found: figures.Figures = {
        "recall_eval": {"ratio_to_faiss_25k": None, "extra_mb": 300.0, "note": "no faiss"},
        "startup": {"help_seconds": 0.25, "import_ratio_to_torch": 0.01, "first_step_seconds": 4.0},
    }
    told = {line.path: line.met for line in figures.lines(found)}
    assert told == {
        "recall_eval.ratio_to_faiss_25k": "not measured",
        "recall_eval.extra_mb": "no",
        "startup.help_seconds": "-",
        "startup.import_ratio_to_torch": "yes",
    }
    text = figures.markdown(found)
    assert "| `recall_eval.extra_mb` | 300 | at most 256 | no |" in text
    assert "| `startup.first_step_seconds` | 4 |" in text
    assert "| `recall_eval.note` | no faiss |" in text


def test_json_nests_by_row_beside_the_machine_and_is_read_back(tmp_path):
    found: figures.Figures = {"scaling": {"efficiency_2": 0.9}}
    machine = figures.machine_facts(quick=True)
    path = tmp_path / "bench.json"
    path.write_bytes(figures.as_json(found, machine))
    content = json.loads(path.read_text())
    assert content["scaling"]["efficiency_2"] == 0.9
    assert content["machine"]["cores"] >= 1
    assert content["machine"]["packages"]["torch"]
    assert figures.read(path) == found
    path.write_text("[1]")
    with pytest.raises(CorruptFileError, match="holds no figures"):
        figures.read(path)
    with pytest.raises(UsageError, match="cannot read"):
        figures.read(tmp_path / "absent.json")


def test_rows_are_chosen_by_name_and_a_misspelt_one_is_refused():
    assert chosen([]) == list(ROWS)
    assert chosen(["scaling,startup", "pack_read"]) == ["startup", "pack_read", "scaling"]
    with pytest.raises(UsageError, match="did you mean 'startup'"):
        chosen(["start-up"])
