"""`maskcon reproduce table` from the command line, with runs of a second each."""

from __future__ import annotations

import csv
import io
import json
import os

import pytest
from typer.testing import CliRunner

import maskcon.training.comparison
from maskcon._utils.errors import MaskconError
from maskcon.cli import app
from maskcon.cli.options import sharing
from tests.cli.commands import maskcon as command
from tests.miniature import TINY

SETTINGS = {
    **{key: value for key, value in TINY.items() if key != "tau"},
    "epochs": 1,
    "train_limit": 48,
    "test_limit": 40,
    "eval_every_epochs": 0,
}
QUICK = [part for key, value in SETTINGS.items() for part in ("--set", f"{key}={value}")]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder without datasets; runs are trained in this process, which spares each its start."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MASKCON_DATA", str(tmp_path / "data"))
    started: list[str] = []

    def in_this_process(jobs, *, at_once, threads, watch):
        for job in jobs:
            started.append(job.folder.name)
            arguments = [*job.arguments, "--quiet", "--threads", "1", "--out", str(job.folder)]
            done = CliRunner().invoke(app, ["train", *arguments], catch_exceptions=False)
            assert done.exit_code == 0
            job.update()
            watch(jobs)

    monkeypatch.setattr(maskcon.training.comparison, "run_jobs", in_this_process)
    return started


def test_without_a_table_or_figure_one_line_says_where_help_is(tmp_path):
    done = command("reproduce", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    line = "maskcon: Missing argument 'table|figure'. Choose from: table, figure (see `maskcon reproduce --help`)\n"
    assert done.stderr == line


@pytest.mark.parametrize(
    ("jobs", "runs", "expected"), [(None, 9, (4, 1)), (None, 2, (2, 2)), (3, 9, (3, 1)), (8, 1, (1, 4))]
)
def test_threads_are_shared_among_the_runs_there_are(jobs, runs, expected, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    assert sharing(jobs, "cpu", runs) == expected


def test_a_table_is_run_printed_written_and_not_run_twice(here, tmp_path):
    first = CliRunner().invoke(app, ["reproduce", "table", "sop2", *QUICK, "--device", "cpu"])
    assert first.exit_code == 0, first.output
    assert len(here) == len(set(here)) == 26
    assert "STAND-IN" in first.stderr
    assert first.stderr.index("expected:") < first.stderr.index("took")
    for word in ("MaskCon", "test (oracle)", "validation", "45.36", "Raw pixels"):
        assert word in first.stdout
    folder = tmp_path / "runs" / "reproduce" / "cpu"
    written = {path.name for path in (folder / "tables").iterdir()}
    assert written == {"sop2.txt", "sop2.md", "sop2.tex", "sop2.csv"}
    rows = list(csv.DictReader(io.StringIO((folder / "tables" / "sop2.csv").read_text())))
    result = json.loads((folder / "embedded" / "selfcon-seed0" / "result.json").read_text())
    selfcon = next(row for row in rows if row["Method"] == "SelfCon")
    assert float(selfcon["R@1"]) == pytest.approx(100 * result["recall"]["1"], abs=1e-4)

    again = CliRunner().invoke(app, ["reproduce", "table", "appendix-sop2", *QUICK, "--device", "cpu"])
    assert again.exit_code == 0, again.output
    assert len(here) == 26  # the appendix needs nothing that is not there
    assert "expected:" not in again.stderr

    machine = CliRunner().invoke(app, ["reproduce", "table", "sop2", *QUICK, "--device", "cpu", "--json"])
    records = {record["Method"]: record for record in json.loads(machine.stdout)}
    assert records["SelfCon"]["R@1"] == pytest.approx(100 * result["recall"]["1"], abs=1e-4)
    assert records["Raw pixels"]["R@1 paper"] is None

    other = CliRunner().invoke(app, ["reproduce", "table", "sop2", "--device", "cpu"])
    assert isinstance(other.exception, MaskconError)  # never the old runs under other settings
    assert other.exception.exit_code == 2
    assert "--out" in str(other.exception)


def test_a_dry_run_lists_the_runs_and_starts_nothing(here, tmp_path):
    shown = CliRunner().invoke(app, ["reproduce", "table", "cars196", "--dry-run", "--jobs", "2"])
    assert shown.exit_code == 0, shown.output
    assert "26 runs, 0 of them finished" in shown.stderr
    assert "expected:" in shown.stderr
    assert "maskcon-w1-tau0.1-validation-seed0" in shown.stdout
    assert here == []
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "named", "way_out"),
    [
        (["cifar10"], "'cifar10'", "did you mean 'cifar100'"),
        (["cars196", "--scale", "cpuu"], "'cpuu'", "did you mean 'cpu'"),
        (["cifar100", "--scale", "full"], "CIFAR-100", "cifar-100-python.tar.gz"),
        (["cifartoy", "--scale", "full"], "CIFARtoy", "cifar-10-python.tar.gz"),
        (["imagenet32", "--scale", "full"], "ImageNet", "Imagenet32_val.zip"),
        (["sop1", "--scale", "full"], "Stanford Online Products", "Stanford_Online_Products.zip"),
        (["cars196", "--scale", "full"], "Stanford Cars", "cars196"),
        (["cifar100", "--preset", "reference"], "reference", "--scale full"),
        (["cifar100", "--set", "epoch=3"], "'epoch'", "did you mean 'epochs'"),
        (["cifar100", "--set", "seed=3"], "seed", "--seeds"),
        (["cifar100", "--out", "/dev/null/x"], "/dev/null/x", "choose another --out"),
    ],
)
def test_bad_input_is_one_line_and_starts_nothing(here, tmp_path, arguments, named, way_out):
    refused = CliRunner().invoke(app, ["reproduce", "table", *arguments])
    assert isinstance(refused.exception, MaskconError), refused.output
    assert refused.exception.exit_code == 2
    text = str(refused.exception)
    assert "\n" not in text
    assert named in text
    assert way_out in text
    assert here == []
    assert not (tmp_path / "runs").exists()


def test_help_names_the_command_and_its_options(tmp_path):
    shown = command("reproduce", "table", "--help", cwd=tmp_path)
    assert shown.returncode == 0
    for option in (
        "--scale",
        "--seeds",
        "--preset",
        "--out",
        "--jobs",
        "--data-root",
        "--device",
        "--dry-run",
    ):
        assert option in shown.stdout
