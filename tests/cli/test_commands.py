from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from maskcon.cli import app
from maskcon.errors import MaskconError
from tests.cli.commands import LIMITED, ONE_THREAD, QUICK, SMALL, environment, maskcon

NAMES = ["selfcon", "nnclr", "ascl", "supce", "supcon", "grafit", "coins", "maskcon", "supfine"]


def refused(*arguments: str) -> str:
    """The one line of a refusal, through the same functions but in this process, which is faster."""
    result = CliRunner().invoke(app, list(arguments))
    assert isinstance(result.exception, MaskconError), result.output
    assert result.exception.exit_code == 2
    text = str(result.exception)
    assert "\n" not in text
    return text


def test_help_answers_quickly_without_torch(tmp_path):
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        shown = maskcon("--help", cwd=tmp_path)
        times.append(time.perf_counter() - begin)
    assert shown.returncode == 0
    for command in ("train", "evaluate", "compare", "report", "methods", "datasets", "demo"):
        assert command in shown.stdout
    code = "import sys; sys.argv = ['maskcon', '--help']\ntry:\n import maskcon.cli; maskcon.cli.main()\n"
    code += "except SystemExit: pass\n"
    probe = subprocess.run(
        [sys.executable, "-c", code + "assert 'torch' not in sys.modules"], env=environment(), check=False,
        capture_output=True,
    )  # fmt: skip
    assert probe.returncode == 0
    cpu = os.times()
    maskcon("--help", cwd=tmp_path)
    after = os.times()
    spent = after.children_user + after.children_system - cpu.children_user - cpu.children_system
    assert spent < 0.5  # processor seconds: the wall clock depends on what else runs here


@pytest.mark.parametrize("command", ["train", "evaluate", "compare", "report", "methods", "datasets", "demo"])
def test_every_command_explains_itself(command):
    result = CliRunner().invoke(app, [command, "--help"])
    assert result.exit_code == 0
    assert len(result.output) > 200


def test_methods_and_datasets_list_what_there_is():
    methods = CliRunner().invoke(app, ["methods"])
    assert all(name in methods.output for name in NAMES)
    as_json = json.loads(CliRunner().invoke(app, ["methods", "--json"]).output)
    assert [method["name"] for method in as_json][:9] == NAMES
    data = json.loads(CliRunner().invoke(app, ["datasets", "--json"]).output)
    assert {"embedded", "fashion-mnist", "cifar10", "cifar100", "cifartoy-good", "cifartoy-bad"} <= {
        entry["name"] for entry in data
    }
    assert "embedded" in CliRunner().invoke(app, ["datasets"]).output


def test_dry_run_shows_every_setting_with_its_source():
    shown = CliRunner().invoke(
        app, ["train", "cifar100", "--preset", "paper", "--dry-run"], env={"COLUMNS": "220"}
    )
    assert shown.exit_code == 0
    for word in ("projection_dim", "128", "paper, appendix A", "published code", "tau"):
        assert word in shown.output
    reference = CliRunner().invoke(app, ["train", "cifar100", "--preset", "reference", "--dry-run"])
    assert "256" in reference.output


@pytest.mark.parametrize(
    ("arguments", "named", "way_out"),
    [
        (["embeded"], "'embeded'", "did you mean 'embedded'"),
        (["embedded", "--method", "mascon"], "'mascon'", "did you mean 'maskcon'"),
        (["embedded", "--preset", "papr"], "'papr'", "did you mean 'paper'"),
        (["embedded", "--set", "epocs=3"], "'epocs'", "did you mean 'epochs'"),
        (["embedded", "--set", "stem=smal"], "'smal'", "did you mean 'small'"),
        (["embedded", "--set", "query_view=embeded-weak"], "'embeded-weak'", "did you mean 'embedded-weak'"),
        (["embedded", "--set", "backbone=resnet11"], "'resnet11'", "did you mean"),
        (["embedded", "--w", "1.5"], "w=1.5", "less than or equal to 1"),
        (["embedded", "--w", "-0.1"], "w=-0.1", "greater than or equal to 0"),
        (["embedded", "--tau", "-1"], "tau=-1", "greater than or equal to 0"),
        (["embedded", "--set", "tau=nan"], "tau", "greater"),
        (["embedded", "--epochs", "0"], "epochs=0", "greater"),
        (["embedded", "--set", "bank_size=16"], "bank_size=16", "smaller than batch_size"),
        (["embedded", "--set", "novalue"], "'novalue'", "key=value"),
        (["embedded", "--set", "epochs=many"], "epochs='many'", "integer"),
        (["embedded", "--device", "gpu"], "'gpu'", "auto"),
        (["embedded", "--devices", "0"], "--devices", "greater"),
        (["no/such/folder"], "no/such/folder", ""),
        (["cifar100"], "cifar", "--download"),
        (["embedded", "--preset", "reference", "--device", "cpu"], "imagenet", "--download"),
    ],
)
def test_bad_input_is_one_line_that_names_it_and_writes_nothing(
    tmp_path, monkeypatch, arguments, named, way_out
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MASKCON_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("MASKCON_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    text = refused("train", *arguments)
    assert named in text
    assert way_out in text
    left = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert left == []


def test_an_error_reaches_the_user_as_one_line_and_debug_shows_the_traceback(tmp_path):
    plain = maskcon("train", "embedded", "--w", "3", cwd=tmp_path)
    assert plain.returncode == 2
    assert plain.stderr.count("\n") == 1
    assert plain.stderr.startswith("maskcon: w=3")
    assert plain.stdout == ""
    debug = maskcon("train", "embedded", "--w", "3", "--debug", cwd=tmp_path)
    assert "Traceback" in debug.stderr


def test_train_evaluate_and_report_work_from_the_command_line(tmp_path):
    trained = maskcon("train", "embedded", *SMALL, "--out", "run", cwd=tmp_path)
    assert trained.returncode == 0, trained.stderr
    assert "raw pixels" in trained.stdout
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert set(result["recall"]) == {"1", "2", "5", "10"}
    again = maskcon("train", "embedded", *SMALL, "--out", "run", cwd=tmp_path)
    assert again.returncode == 0
    assert "finished" in again.stderr
    scored = maskcon("evaluate", "run", "--json", cwd=tmp_path)
    assert scored.returncode == 0, scored.stderr
    assert json.loads(scored.stdout)["recall"] == pytest.approx(result["recall"])
    page = maskcon("report", "run", cwd=tmp_path)
    assert page.returncode == 0, page.stderr
    assert "<html" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")


def test_a_folder_of_pictures_trains(tmp_path):
    generator = np.random.default_rng(0)
    for coarse in ("katzen & co", "собаки", "鳥 🐦"):
        for fine in ("a", "b 'quoted'"):
            folder = tmp_path / "photos" / coarse / fine
            folder.mkdir(parents=True)
            for number in range(8):
                pixels = generator.integers(0, 255, (20 + number, 30, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{number}.png")
    trained = maskcon("train", "photos", *QUICK, *ONE_THREAD, "--out", "run", cwd=tmp_path)
    assert trained.returncode == 0, trained.stderr
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["scored_by"] == "fine"
    assert result["train_images"] + result["test_images"] == 48


def test_compare_prints_one_table_and_goes_on_where_it_stopped(tmp_path):
    arguments = [
        "compare",
        "embedded",
        "--methods",
        "maskcon,supce",
        "--seeds",
        "2",
        "--jobs",
        "2",
        "--out",
        "all",
    ]
    first = maskcon(*arguments, *LIMITED, cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    for word in ("raw pixels", "MaskCon", "SupCE", "report.html"):
        assert word.lower() in first.stdout.lower()
    assert (tmp_path / "all" / "report.html").is_file()
    before = (tmp_path / "all" / "supce-seed0" / "result.json").stat().st_mtime_ns
    (tmp_path / "all" / "supce-seed1" / "result.json").unlink()
    second = maskcon(*arguments, *LIMITED, cwd=tmp_path)
    assert second.returncode == 0, second.stderr
    assert (tmp_path / "all" / "supce-seed0" / "result.json").stat().st_mtime_ns == before
    assert (tmp_path / "all" / "supce-seed1" / "result.json").is_file()
    other = maskcon(*arguments, *LIMITED, "--set", "epochs=2", cwd=tmp_path)
    assert other.returncode == 1  # never the old runs under a new name
    assert "epochs: 1 -> 2" in other.stderr


def test_compare_reports_why_a_run_failed(tmp_path):
    (tmp_path / "all").mkdir()
    (tmp_path / "all" / "supce-seed0").write_text("in the way")
    failed = maskcon("compare", "embedded", "--methods", "supce", "--out", "all", *LIMITED, cwd=tmp_path)
    assert failed.returncode == 1
    assert "supce seed 0 failed" in failed.stderr
    assert "is a file" in failed.stderr


def test_evaluate_and_report_refuse_what_is_not_a_run(tmp_path):
    assert "not a run folder" in refused("evaluate", str(tmp_path))
    assert "not a run folder" in refused("report", str(tmp_path))
