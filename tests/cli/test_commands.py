"""What commands say of themselves, of their settings, and of input that they refuse."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from unittest.mock import Mock

import pytest
from typer.testing import CliRunner

from maskcon.cli import app, main
from maskcon.config.settings import GROUPS, RunConfig
from tests.cli.commands import environment, maskcon
from tests.cli.in_process import NAMES, pictures, refused


def test_help_answers_quickly_without_torch(tmp_path):
    shown = maskcon("--help", cwd=tmp_path)
    assert shown.returncode == 0
    for command in ("train", "evaluate", "compare", "report", "reproduce", "methods", "datasets", "demo"):
        assert command in shown.stdout
    code = "import sys; sys.argv = ['maskcon', '--help']\ntry:\n import maskcon.cli; maskcon.cli.main()\n"
    code += "except SystemExit: pass\n"
    probe = subprocess.run(
        [sys.executable, "-c", code + "assert 'torch' not in sys.modules"], env=environment(), check=False,
        capture_output=True,
    )  # fmt: skip
    assert probe.returncode == 0

    def processor_seconds() -> float:
        before = os.times()
        maskcon("--help", cwd=tmp_path)
        after = os.times()
        return after.children_user + after.children_system - before.children_user - before.children_system

    # not the wall clock, and the best of a few: both depend on what else runs here, this less
    assert min(processor_seconds() for _ in range(5)) < 0.5


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
    lines = {line.split()[0]: line for line in shown.output.splitlines()[1:] if line.strip()}
    assert set(RunConfig.model_fields) <= set(lines)
    for key in list(RunConfig.model_fields):  # paper with its section, code, ours, or the user: never nothing
        assert re.search(r"paper, |published code|ours|given|the data's", lines[key]), lines[key]
    assert "appendix B, best row" in lines["tau"]
    assert "0.05" in lines["tau"]
    assert "eq. 11" in lines["protocol"]
    headings = [line.strip() for line in shown.output.splitlines()]
    assert [line for line in headings if line in GROUPS.values()] == list(GROUPS.values())


def test_dry_run_knows_what_goes_by_data_set():
    shown = CliRunner().invoke(
        app, ["train", "imagenet32", "--preset", "reference", "--dry-run"], env={"COLUMNS": "220"}
    )
    lines = {line.split()[0]: line for line in shown.output.splitlines()[1:] if line.strip()}
    assert "16384" in lines["bank_size"]
    assert "published code" in lines["bank_size"]
    assert "100" in lines["epochs"]
    assert "for ImageNet" in lines["epochs"]


@pytest.mark.parametrize(
    ("arguments", "named", "way_out"),
    [
        (["embeded"], "'embeded'", "did you mean 'embedded'"),
        (["embedded", "--method", "mascon"], "'mascon'", "did you mean 'maskcon'"),
        (["embedded", "--preset", "papr"], "'papr'", "did you mean 'paper'"),
        (["embedded", "--set", "epocs=3"], "'epocs'", "did you mean 'epochs'"),
        (["embedded", "--set", "stem=smal"], "'smal'", "did you mean 'small'"),
        (["embedded", "--set", "query_view=embeded-weak"], "'embeded-weak'", "did you mean 'embedded-weak'"),
        (["embedded", "--set", "query_view=stronk"], "'stronk'", "did you mean 'strong'"),
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
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    text = refused("train", *arguments)
    assert named in text
    assert way_out in text
    left = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert left == []


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["embeded"], "did you mean 'embedded'"),
        (["embedded", "--methods", "mascon"], "did you mean 'maskcon'"),
        (["embedded", "--set", "query_view=embeded-weak"], "did you mean 'embedded-weak'"),
        (["embedded", "--set", "bank_size=16"], "smaller than batch_size"),
        (["embedded", "--device", "gpu"], "'gpu'"),
        (["cifar100"], "--download"),
        (["one"], "only one class"),
        (["two", "--methods", "supfine"], "needs fine labels"),
    ],
)
def test_compare_refuses_bad_input_before_anything_is_written(tmp_path, monkeypatch, arguments, named):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MASKCON_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    pictures("one", ["a"])
    pictures("two", ["a", "b"])
    assert named in refused("compare", *arguments, "--out", "all")
    assert not (tmp_path / "all").exists()


def test_demo_ends_with_the_command_that_opens_the_explorer(monkeypatch, tmp_path):
    module = importlib.import_module("maskcon.cli.compare")
    monkeypatch.setattr(module, "run_and_report", lambda *arguments, **options: None)
    done = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "my demo")])
    assert done.exit_code == 0, done.output
    assert done.output.endswith(f"\n  maskcon explore '{tmp_path}/my demo/teachcon'\n")


def test_demo_refuses_bad_input_before_anything_is_written(tmp_path):
    assert "epochs=0" in refused("demo", "--epochs", "0", "--out", str(tmp_path / "demo"))
    assert not (tmp_path / "demo").exists()


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["trian", "embedded"], "No such command 'trian'. Did you mean 'train'?"),
        (["train"], "Missing argument 'SOURCE' (see `maskcon train --help`)"),
        (["train", "embedded", "--tua", "1"], "--tau"),
        (["train", "embedded", "--epochs", "many"], "got 'many'"),
        (["train", "embedded", "--epochs=many"], "got 'many'"),
        (["compare", "embedded", "--seeds", "0"], "got '0'"),
    ],
)
def test_an_option_that_cannot_be_read_is_one_line_too(monkeypatch, capsys, arguments, line):
    monkeypatch.setattr(sys, "argv", ["maskcon", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("\n") == 1
    assert line in told.err


def test_an_interrupt_and_an_unexpected_error_are_one_line_without_a_traceback(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["maskcon", "methods"])
    for error, code, line in (
        (KeyboardInterrupt(), 130, "maskcon: interrupted\n"),
        (RuntimeError("two\n  lines"), 1, "maskcon: unexpected RuntimeError: two lines; this is a defect"),
        (
            OSError(5, "Input/output error", "/disk/a"),
            1,
            "maskcon: /disk/a: Input/output error; rerun the same",
        ),
    ):
        monkeypatch.setattr("maskcon.methods.registry.all_methods", Mock(side_effect=error))
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == code
        told = capsys.readouterr().err
        assert told.startswith(line)
        assert told.count("\n") == 1


def test_an_error_reaches_the_user_as_one_line_and_debug_shows_the_traceback(tmp_path):
    plain = maskcon("train", "embedded", "--w", "3", cwd=tmp_path)
    assert plain.returncode == 2
    assert plain.stderr.count("\n") == 1
    assert plain.stderr.startswith("maskcon: w=3")
    assert plain.stdout == ""
    debug = maskcon("train", "embedded", "--w", "3", "--debug", cwd=tmp_path)
    assert "Traceback" in debug.stderr


def test_evaluate_and_report_refuse_what_is_not_a_run(tmp_path):
    assert "not a run folder" in refused("evaluate", str(tmp_path))
    assert "not a run folder" in refused("report", str(tmp_path))


def test_report_refuses_a_file_where_it_writes_a_folder(tmp_path):
    told = refused("report", str(tmp_path), "--out", str(tmp_path / "mine.html"))
    assert "--out is a folder" in told
    assert not (tmp_path / "mine.html").exists()
