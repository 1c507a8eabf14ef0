"""scripts/tree_figures.py counts what is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from maskcon.config.settings import Machine, RunConfig

ROOT = Path(__file__).parents[2]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import tree_figures

    return tree_figures


def test_figures_of_the_working_tree_are_those_of_its_files(script: Any) -> None:
    found = script.figures(ROOT)
    files = list((ROOT / "src" / "maskcon").rglob("*.py"))
    assert found["files of src"] == f"{len(files):,}"
    assert found["settings (run + machine)"] == f"{len(RunConfig.model_fields)} + {len(Machine.model_fields)}"
    assert (found["import cycles of modules"], found["layers broken"]) == ("0", "0")


def test_a_cycle_of_entries_is_found_where_no_modules_form_one(script: Any, tmp_path: Path) -> None:
    package = tmp_path / "maskcon"
    for name, text in {
        "a/one": "from maskcon.b import two",
        "b/two": "",
        "b/three": "from maskcon.a import four",
        "a/four": "",
    }.items():
        path = package / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert script.imports_of(package) == ("0", "1 (of 2)", "no layers")


def test_lines_are_those_of_files_with_the_suffix(script: Any, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("1\n2\n")
    (tmp_path / "b.md").write_text("1\n")
    assert script.lines(tmp_path, ".py") == 2
    assert script.lines(tmp_path, ".py", ".md") == 3
