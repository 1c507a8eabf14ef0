"""The script that makes the tables of a frozen backbone refuses in one line what it cannot do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from maskcon.methods.registry import method_named

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["good", "all", "--images", "nowhere"], "has 0 images; 500 are needed"),
        (["bad", "search", "--images", "nowhere", "--methods", "maskcom"], "did you mean 'maskcon'?"),
        (["good", "train", "--images", "nowhere", "--out", "file/below"], "choose another --out"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_an_exit_code(
    arguments: list[str], told: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "frozen_table.py"), *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.strip().splitlines()
    assert told in line


def test_no_method_is_searched_harder_than_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import frozen_table

    tried: dict[str, int] = {}
    for row, trials in frozen_table.TRIALS.items():
        method = row.removesuffix("+ce")
        tried[method] = tried.get(method, 0) + len({tuple(trial.items()) for trial in trials})
    with_coarse_labels = {name for name in tried if method_named(name).labels == "coarse"}
    assert {tried[name] for name in with_coarse_labels} == {20}
    assert {tried[name] for name in tried.keys() - with_coarse_labels} == {10}


@pytest.mark.parametrize("alone_wins", [True, False])
def test_a_method_stands_for_the_better_of_its_rows(
    alone_wins: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import frozen_table

    alone, beside = (0.72, 0.71) if alone_wins else (0.71, 0.72)
    rows = {
        "maskcon": [{"validation_recall@1": alone, "of_seeds": [alone]}, {"validation_recall@1": 0.99}],
        "maskcon+ce": [{"validation_recall@1": beside, "of_seeds": [beside]}],
        "supce": [{"validation_recall@1": 0.70, "of_seeds": [0.70]}],
    }
    (tmp_path / "search.json").write_text(json.dumps(rows))
    best = frozen_table.best_rows(tmp_path)
    assert best == {"maskcon": "maskcon" if alone_wins else "maskcon+ce", "supce": "supce"}
