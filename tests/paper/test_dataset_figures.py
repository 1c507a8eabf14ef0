"""The figures of appendix A, which need a dataset and no run."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from maskcon._utils.errors import DataError
from maskcon.cli import app
from maskcon.data.builtin import release, sop
from maskcon.data.builtin.cars196 import COARSE_NAMES, FINE_NAMES, cars_listing
from maskcon.paper.dataset_figures import example_images
from tests.data.miniature_photos import SIZES, colour_of, write_cars_folders, write_sop


def draw(name: str, root, out, *arguments: str):
    command = ["reproduce", "figure", name, "--data-root", str(root), "--out", str(out), *arguments]
    done = CliRunner().invoke(app, command, catch_exceptions=True)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    folder = out / "full-paper" / "figures"
    return done.output, sorted(path.suffix for path in folder.glob(f"{name}.*")), folder / f"{name}.json"


def test_sop_statistics_counts_the_list_of_the_dataset(tmp_path):
    write_sop(tmp_path, SIZES, pictures=False)
    output, suffixes, numbers = draw("sop-statistics", tmp_path, tmp_path / "out")
    assert suffixes == [".json", ".png", ".svg"]
    assert json.loads(numbers.read_text()) == {
        "products_by_images": {"2": 1, "3": 1, "7": 1, "8": 1, "9": 1, "12": 3}
    }
    assert "8 images or more: 5 products, 53 images; exactly 12: 3 products, 36 images" in output
    assert "the paper says 5,035" in output


@pytest.mark.parametrize("name", ["sop-statistics", "coarse-cars"])
def test_without_the_dataset_the_error_says_what_is_missing(tmp_path, name):
    with pytest.raises(DataError, match=r"missing.*--data-root") as refused:
        draw(name, tmp_path / "nothing", tmp_path / "out")
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "out").exists()


def test_with_download_the_dataset_is_fetched_or_the_error_says_why_not(tmp_path, monkeypatch):
    fetched = []

    def fetch(url, target, **_):
        fetched.append(url)
        raise DataError("no network")

    monkeypatch.setattr(release, "fetch", fetch)
    with pytest.raises(DataError, match="no network"):
        draw("sop-statistics", tmp_path, tmp_path / "out", "--download")
    assert fetched == [sop.RELEASE.urls[0]]
    with pytest.raises(DataError, match="cannot be downloaded"):
        draw("coarse-cars", tmp_path, tmp_path / "out", "--download")
    assert not (tmp_path / "out").exists()


def test_the_sheet_of_cars_takes_the_first_readable_training_image(tmp_path):
    write_cars_folders(tmp_path / "cars196", {"train": [3, 3, 196], "test": [1, 3]})
    (tmp_path / "cars196" / "train" / FINE_NAMES[2] / "00000.jpg").write_bytes(b"no image")
    found = example_images(cars_listing(tmp_path), side=12)
    assert sorted(found) == [2, 195]  # class 1 has an image to test on only
    assert found[2].shape == (3, 8, 12)
    assert np.abs(found[2].mean(axis=(1, 2)) - colour_of("train1")).max() < 4
    output, suffixes, numbers = draw("coarse-cars", tmp_path, tmp_path / "out")
    assert "Wagon 7" in output
    assert suffixes == [".json", ".png", ".svg"]
    classes = json.loads(numbers.read_text())["coarse_class_of_model"]
    assert [list(classes.values()).count(name) for name in COARSE_NAMES] == [18, 50, 36, 30, 29, 14, 7, 12]
    assert classes["AM General Hummer SUV 2000"] == "SUV"
