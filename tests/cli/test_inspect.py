"""`maskcon inspect`, and what `maskcon train FOLDER` says of its choices."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from maskcon.cli import app
from maskcon.config.settings import RunConfig
from maskcon.training.run_folder import CHOICES, CONFIG
from tests.cli.commands import ONE_THREAD, start
from tests.cli.in_process import refused
from tests.report.inspection.test_twins import scene

SMALL_NET = [
    "--set",
    "backbone=resnet6",
    "--set",
    "width=8",
    "--set",
    "stem=stride2",
    "--set",
    "image_size=16",
]


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    for label, name in enumerate(("cat's [1]", "собака 🐕")):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(14):
            scene(100 * label + number, (90, 70)).save(tmp_path / "photos" / name / f"{number}.jpg")
    return tmp_path / "photos"


def test_inspect_prints_writes_and_changes_nothing(photos, tmp_path):
    shutil.copy(photos / "cat's [1]" / "0.jpg", photos / "собака 🐕" / "0 copy.jpg")
    before = sorted((path, path.stat().st_mtime_ns) for path in photos.rglob("*"))
    result = CliRunner().invoke(app, ["inspect", "photos"])
    assert result.exit_code == 0, result.output
    assert "WARNING: the same file under DIFFERENT coarse labels: 2 images" in result.output
    assert "maskcon train would choose:" in result.output
    assert "собака 🐕" in result.output
    folder = tmp_path / "inspections" / "photos"
    assert "собака 🐕" in (folder / "inspection.html").read_text(encoding="utf-8")
    assert [path.name for path in folder.iterdir()] == ["inspection.html"]
    assert sorted((path, path.stat().st_mtime_ns) for path in photos.rglob("*")) == before


def test_names_cannot_steer_the_terminal(photos):
    (photos / "cat's [1]").rename(photos / "cat\u202egod\x1b[2J")
    (photos / "cat\u202egod\x1b[2J" / "broken\u2066.jpg").write_bytes(b"no image")
    for arguments in (["photos"], ["photos", "--json"]):
        result = CliRunner().invoke(app, ["inspect", *arguments])
        assert result.exit_code == 0, result.output
        assert "u202egod" in result.output
        assert not {"\u202e", "\u2066", "\x1b"} & set(result.output)


def test_inspect_as_json_is_json_alone(photos, tmp_path):
    result = CliRunner().invoke(app, ["inspect", "photos", "--json"])
    values = json.loads(result.stdout)
    assert values["train"] + values["test"] == 28
    assert not (tmp_path / "inspections").exists()
    with_files = CliRunner().invoke(app, ["inspect", "photos", "--json", "--out", "here"])
    assert json.loads(with_files.stdout) == values
    assert (tmp_path / "here" / "inspection.html").is_file()


def test_inspect_takes_a_manifest(photos, tmp_path):
    rows = [
        f'"photos/{path.parent.name}/{path.name}",{path.parent.name}'
        for path in sorted(photos.rglob("*.jpg"))
    ]
    (tmp_path / "list.csv").write_text("\n".join(["path,coarse", *rows, "photos/words.jpg,cat's [1]"]) + "\n")
    (photos / "words.jpg").write_text("no image")
    result = CliRunner().invoke(app, ["inspect", "list.csv", "--json"])
    values = json.loads(result.stdout)
    assert values["train"] + values["test"] == 28
    assert values["failures"] == {"photos/words.jpg": "not an image of a known format"}
    assert [choice["name"] for choice in values["choices"]][:2] == ["encoder", "image size"]


def test_inspect_refuses_what_training_would_in_one_line(photos):
    shutil.rmtree(photos / "собака 🐕")
    assert "only one class" in refused("inspect", "photos")
    assert "unknown dataset" in refused("inspect", "photoss")


@pytest.mark.parametrize("command", ["inspect", "train"])
def test_nothing_is_written_among_the_pictures(photos, monkeypatch, command):
    """A page there would be a class of its own the next time."""
    monkeypatch.setattr("maskcon.data.photos.read_headers", None)  # refused before anything is looked at
    assert "would lie among the images of photos" in refused(command, "photos", "--out", "photos/new")
    assert "choose an" in refused(command, "photos", "--out", "photos")
    monkeypatch.chdir(photos)
    assert "among the images of .; choose an --out outside" in refused(command, ".")
    assert not list(photos.glob("*/inspection*"))
    assert not (photos / "runs").exists()


def test_a_hidden_folder_among_the_pictures_is_never_read(photos):
    for _ in range(2):
        result = CliRunner().invoke(app, ["inspect", "photos", "--out", "photos/.seen"])
        assert result.exit_code == 0, result.output
        assert "2 coarse classes" in result.output


@pytest.mark.parametrize("out", ["file", "file/below", "a" * 300])
@pytest.mark.parametrize(
    "command", [["inspect"], ["train", "--budget", "30m"], ["train", "--preset", "paper"]]
)
def test_a_place_that_cannot_be_written_is_refused_before_pictures_are_read(
    photos, monkeypatch, command, out
):
    Path("file").write_text("")
    monkeypatch.setattr("maskcon.data.photos.read_headers", None)
    text = refused(*command, "photos", "--out", out)
    assert "choose another --out" in text


def test_dry_run_shows_each_choice_and_what_was_given(photos):
    result = CliRunner().invoke(app, ["train", "photos", "--dry-run", "--set", "batch_size=8"])
    rows = {line.split()[0]: line for line in result.output.splitlines() if line and line[0] != " "}
    assert "chosen: " in rows["image_size"]
    assert "chosen: " in rows["bank_size"]
    assert "given" in rows["batch_size"]
    assert "chosen: " not in rows["contrast_temperature"]
    measured = CliRunner().invoke(app, ["train", "photos", "--dry-run", "--budget", "30m"])
    row = next(line for line in measured.output.splitlines() if line.startswith("epochs"))
    assert "(measured)" in row
    assert "fit into 30m" in row
    told = CliRunner().invoke(app, ["train", "photos", "--dry-run", "--budget", "30m", "--freeze", "--json"])
    settings = json.loads(told.stdout)
    assert settings["epochs"]["value"] is None
    assert "fit into 30m" in settings["epochs"]["from"]
    assert settings["freeze"] == {"value": True, "from": "given"}
    assert set(settings) == set(RunConfig.model_fields)


@pytest.mark.parametrize("preset", ["cpu", "paper", "reference"])
def test_an_explicit_preset_chooses_nothing(photos, preset):
    result = CliRunner().invoke(app, ["train", "photos", "--dry-run", "--preset", preset])
    assert result.exit_code == 0, result.output
    assert "chosen: " not in result.output


def test_sets_by_name_keep_their_settings(photos):
    plain, auto = (
        CliRunner().invoke(app, ["train", "embedded", "--dry-run", *more]).output
        for more in ([], ["--preset", "fast"])
    )
    assert plain == auto


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--budget", "30"], "say the unit"),
        (["--budget", "30m", "--epochs", "3"], "not both"),
        (["--budget", "30m", "--devices", "2"], "single process"),
    ],
)
def test_a_budget_that_cannot_be_kept_is_refused_at_once(photos, arguments, words):
    assert words in refused("train", "photos", *arguments)
    assert not Path("runs").exists()


def test_train_says_its_choices_before_it_reads_pictures_and_keeps_them(photos):
    command = ["train", "photos", "--epochs", "1", *SMALL_NET, *ONE_THREAD]
    first = CliRunner().invoke(app, command)
    assert first.exit_code == 0, first.output
    lines = first.stderr.splitlines()
    chosen = [line for line in lines if line.startswith("chosen  ")]
    assert [line.split()[1] for line in chosen] == ["batch:", "bank:"]
    assert lines.index(chosen[-1]) < next(
        row for row, line in enumerate(lines) if line.startswith("TeachCon")
    )
    folder = Path("runs/photos-teachcon-seed0")
    before = [(folder / name).read_bytes() for name in (CONFIG, CHOICES)]
    second = CliRunner().invoke(app, command)
    assert second.exit_code == 0, second.output
    assert "finished" in second.stderr
    assert [(folder / name).read_bytes() for name in (CONFIG, CHOICES)] == before


@pytest.mark.slow
def test_first_progress_on_two_thousand_pictures_comes_within_ten_seconds(photos):
    """Processor seconds: the wall clock depends on what else runs here."""
    content = (photos / "cat's [1]" / "0.jpg").read_bytes()
    for number in range(1000):
        for name in ("cat's [1]", "собака 🐕"):
            (photos / name / f"more{number}.jpg").write_bytes(content)
    begun = time.process_time()
    process = start("train", "photos", *ONE_THREAD, cwd=photos.parent)
    assert process.stderr is not None
    line = process.stderr.readline()
    spent = Path(f"/proc/{process.pid}/stat")
    ticks = spent.read_text().rpartition(")")[2].split()[11:13] if spent.exists() else ["0", "0"]
    process.kill()
    process.communicate()
    assert line.startswith("chosen  encoder")
    assert sum(int(value) for value in ticks) / 100 + time.process_time() - begun < 10
