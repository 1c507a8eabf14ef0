"""The scripts that make the tables refuse in one line what they cannot do."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from maskcon.training.comparison import Job

ROOT = Path(__file__).parents[2]


def refused(*arguments: str, cwd: Path, script: str = "method_table.py") -> str:
    """The one line that it says."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / script), *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.strip().splitlines()
    return line


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["embedded", "train"], "has no chosen.json yet; run the stage search first"),
        (["embedded", "search", "--methods", "maskcom"], "did you mean 'maskcon'?"),
        (["cifartoy-bad", "search", "--methods", "selfcon"], "unknown method 'selfcon'"),
        (["cifartoy-good", "all"], "needs --images"),
        (["cifartoy-good", "all", "--images", "nowhere"], "has 0 images; 1500 are needed"),
        (["embedded", "search", "--out", "file/below"], "choose another --out"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_an_exit_code(
    arguments: list[str], told: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    assert told in refused(*arguments, cwd=tmp_path)


def test_settings_that_were_not_chosen_yet_are_named(tmp_path: Path) -> None:
    (tmp_path / "chosen.json").write_text("{}")
    line = refused("embedded", "train", "--methods", "maskcon,coins", "--out", ".", cwd=tmp_path)
    assert "no settings for maskcon, coins" in line


def test_rows_without_cross_entropy_beside_say_so_whatever_the_defaults_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import method_table

    alone = method_table.train_arguments("embedded", "maskcon", 0, {"freeze": "yes"})
    beside = method_table.train_arguments("embedded", "maskcon+ce", 0, {"freeze": "yes"})
    assert "coarse_weight=0.0" in alone
    assert "coarse_weight=1.0" in beside
    assert beside[beside.index("--method") + 1] == "maskcon"


def test_finalists_are_tried_with_more_seeds_and_the_best_mean_is_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import method_table

    recalls = {"supce-0": 0.70, "supce-1": 0.69, "supce-2": 0.10}  # at seed 0
    recalls |= {f"supce-0-seed{seed}": 0.60 for seed in (1, 2)}
    recalls |= {f"supce-1-seed{seed}": 0.68 for seed in (1, 2)}
    recalls |= {"supce-3": math.nan}  # of a run that diverges: never read
    ran: list[str] = []

    def run_jobs(jobs: Sequence[Job], *, may_fail: Callable[[Job], bool], **_: Any) -> None:
        for job in jobs:
            ran.append(job.folder.name)
            if job.folder.name == "supce-3":
                job.log_path.parent.mkdir(parents=True, exist_ok=True)
                job.log_path.write_text("maskcon: the loss or its gradient became NaN or Inf at step 3\n")
            assert may_fail(job) == (job.folder.name == "supce-3")

    monkeypatch.setattr(method_table, "run_jobs", run_jobs)
    monkeypatch.setattr(method_table, "read_result", lambda folder: {"recall": {"1": recalls[folder.name]}})
    trials = {"supce": method_table.grid(learning_rate=[0.1, 0.2, 0.3, 9.0])}
    study = method_table.Study("embedded", trials, 2, 1, 0, finalists=0.5, search_seeds=3)
    method_table.search(study, "embedded", ["supce"], tmp_path, at_once=1)

    assert sorted(ran) == sorted(recalls)  # the worst one was tried once
    assert json.loads((tmp_path / "chosen.json").read_text()) == {"supce": {"learning_rate": 0.2}}
    first, second, third, last = json.loads((tmp_path / "search.json").read_text())["supce"]
    assert second["validation_recall@1"] == pytest.approx((0.69 + 0.68 + 0.68) / 3)
    assert second["of_seeds"] == [0.69, 0.68, 0.68]
    assert first["learning_rate"] == 0.1
    assert third["validation_recall@1"] == 0.10
    assert last["validation_recall@1"] == 0
