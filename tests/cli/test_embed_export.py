"""`maskcon embed` and `maskcon export` as a user meets them, on a run trained by the command line."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from maskcon.export.onnx_file import PACKAGES
from maskcon.retrieval.embeddings_file import read_embeddings
from tests.cli.commands import QUICK, maskcon
from tests.finished_run import write_photo

RUN = "runs/in-teachcon-seed0"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("place")
    for number in range(30):
        write_photo(
            folder / "in" / ("cat" if number % 2 else "two words") / f"{number:02}.jpg", number, (32, 24)
        )
    done = maskcon("train", "./in", *QUICK, "--device", "cpu", "--threads", "1", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_embed_writes_goes_on_and_names_what_it_left_out(place: Path) -> None:
    write_photo(place / "new" / "🐈.png", 1)
    write_photo(place / "new" / "deep" / "er" / "b c.png", 2)
    (place / "new" / "broken\n.jpg").write_bytes(b"no picture")
    done = maskcon("embed", RUN, "new", "-o", "new.parquet", cwd=place)
    assert done.returncode == 0, done.stderr
    assert "embeddings: new.parquet, 2 images x 16 (2 embedded in" in done.stdout
    assert "left out: broken\\n.jpg (not an image of a known format)" in done.stderr
    found = read_embeddings(place / "new.parquet")
    assert [entry.path for entry in found.entries] == ["deep/er/b c.png", "🐈.png"]
    again = maskcon("embed", RUN, "new", "-o", "new.parquet", cwd=place)
    assert "(0 embedded in" in again.stdout
    assert "2 reused, 1 left out)" in again.stdout
    strict = maskcon("embed", RUN, "new", "-o", "other.parquet", "--strict", cwd=place)
    assert strict.returncode == 2
    assert len(strict.stderr.strip().splitlines()) == 1


def test_embed_of_pictures_one_by_one_and_of_a_misspelt_name(place: Path) -> None:
    done = maskcon("embed", RUN, "in/cat/01.jpg", "in/cat/03.jpg", cwd=place)
    assert "embeddings.parquet, 2 images" in done.stdout
    wrong = maskcon("embed", RUN, "embeded", cwd=place)
    assert wrong.returncode == 2
    assert "did you mean 'embedded'" in wrong.stderr


def test_export_prints_the_largest_difference(place: Path) -> None:
    onnx = ["--onnx"] if all(find_spec(name) for name in PACKAGES) else []
    done = maskcon("export", RUN, *onnx, cwd=place)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.strip().splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        *("PyTorch", "PyTorch, from images"),
        *(["ONNX"] if onnx else []),
        "export",
    ]
    assert all("largest difference" in line for line in lines[:-1])
    # nothing of what the exporter says about its own insides
    assert len(done.stderr.splitlines()) == len(onnx), done.stderr
    assert (place / RUN / "export" / "README.md").is_file()
