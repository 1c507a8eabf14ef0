"""A manifest and a saved Hugging Face data set through every command, and runs met from another directory."""

from __future__ import annotations

import json
from pathlib import Path

import datasets
import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from maskcon._utils.errors import UsageError
from maskcon.api import Run
from maskcon.cli import app
from tests.cli.commands import QUICK

FAST = [*QUICK, "--set", "image_size=16", "--device", "cpu"]


def picture(label: str, number: int) -> Image.Image:
    pixels = np.random.default_rng(number).integers(0, 200, (20, 24, 3)).astype(np.uint8)
    pixels[:, :, 0 if label == "cat" else 2] = 255
    return Image.fromarray(pixels)


def write_photos(folder: Path, count: int = 16) -> None:
    lines = ["path,coarse,fine"]
    for label in ("cat", "dog"):
        (folder / "files" / label).mkdir(parents=True)
        for number in range(count):
            name = f"files/{label}/{number}, \U0001f43e.png"
            picture(label, number).save(folder / name)
            lines.append(f'"{name}",{label},{label}{number % 2}')
    (folder / "list.csv").write_text("\n".join(lines), encoding="utf-8")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with photos, and a run on each kind of source, started from it by a relative path."""
    root = tmp_path_factory.mktemp("own")
    write_photos(root / "photos")
    table = datasets.Dataset.from_dict(
        {
            "image": [picture(label, number) for label in ("cat", "dog") for number in range(16)],
            "label": [0] * 16 + [1] * 16,
        },
        datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])}),
    )
    table.save_to_disk(str(root / "saved"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        patch.setenv("XDG_CACHE_HOME", str(root / "cache"))
        for source in ("photos/list.csv", "photos/files", "hf:./saved"):
            done = run("train", source, "--method", "supcon", "--quiet", *FAST)
            assert done.exit_code == 0, done.output
    return root


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def refusal(done: Result) -> str:
    """What `main` prints as one line before it exits with 2."""
    assert isinstance(done.exception, UsageError), done.output
    return str(done.exception)


@pytest.mark.parametrize("name", ["list", "files", "saved"])
def test_run_is_scored_and_reported_from_another_directory(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = place / "runs" / f"{name}-supcon-seed0"
    done = run("evaluate", str(folder), "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["recall"] == dict(Run.open(folder).result["recall"])
    done = run("report", str(folder), "--out", str(tmp_path / "report"))
    assert done.exit_code == 0, done.output
    assert (tmp_path / "report" / "report.html").is_file()


def test_pictures_that_moved_are_found_by_the_same_relative_path_or_missed_clearly(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_photos(tmp_path / "photos")
    monkeypatch.chdir(tmp_path)
    assert run("train", "photos/list.csv", "--method", "supcon", "--quiet", *FAST).exit_code == 0
    (tmp_path / "moved").mkdir()
    (tmp_path / "photos").rename(tmp_path / "moved" / "photos")
    folder = tmp_path / "runs" / "list-supcon-seed0"
    message = refusal(run("evaluate", str(folder)))
    assert f"no longer at {tmp_path / 'photos' / 'list.csv'}" in message
    assert "photos/list.csv leads to them" in message
    monkeypatch.chdir(tmp_path / "moved")
    assert run("evaluate", str(folder)).exit_code == 0


def test_manifest_is_embedded_indexed_searched_packed_and_inspected(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    manifest, folder = place / "photos" / "list.csv", place / "runs" / "list-supcon-seed0"
    done = run("embed", str(folder), str(manifest), "-o", "vectors.parquet")
    assert done.exit_code == 0, done.output
    assert "32 images x" in done.output
    table = pq.read_table("vectors.parquet")
    assert table.column("path")[0].as_py() == "files/cat/0, \U0001f43e.png"
    assert set(table.column("coarse").to_pylist()) == {"cat", "dog"}
    done = run("index", str(folder), str(manifest), "--out", "index")
    assert done.exit_code == 0, done.output
    assert "32 images in index: 32 added" in done.output
    query = place / "photos" / "files" / "dog" / "3, \U0001f43e.png"
    done = run("search", str(folder), str(query), "--index", "index", "-k", "2", "--json")
    assert done.exit_code == 0, done.output
    assert str(query) in json.dumps(json.loads(done.stdout), ensure_ascii=False)
    done = run("inspect", str(manifest), "--json", "--device", "cpu")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["name"] == "list"


def test_embeddings_written_before_serve_as_a_manifest(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """path and coarse are columns of both; paths start from where the file lies."""
    monkeypatch.chdir(place / "photos")
    folder = place / "runs" / "list-supcon-seed0"
    assert run("embed", str(folder), "list.csv", "-o", "vectors.parquet").exit_code == 0
    done = run("embed", str(folder), "vectors.parquet", "-o", str(tmp_path / "again.parquet"))
    assert done.exit_code == 0, done.output
    assert "32 images x" in done.output


def test_three_pictures_say_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for label, count in (("cat", 2), ("dog", 1)):
        (tmp_path / "few" / label).mkdir(parents=True)
        for number in range(count):
            picture(label, number).save(tmp_path / "few" / label / f"{number}.png")
    monkeypatch.chdir(tmp_path)
    message = refusal(run("train", "few", *FAST))
    assert "few has 2 images to train on and 1 to test on; at least 4 and 2" in message


def test_line_of_a_bad_manifest_reaches_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("photos.csv").write_text("path,coarse\na.png,\n")
    for command in (["train"], ["inspect"]):
        assert refusal(run(*command, "photos.csv")) == "photos.csv, line 2: 'a.png' has no coarse label"
