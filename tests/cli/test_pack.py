from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from maskcon._utils.errors import MaskconError
from maskcon.cli import app, progress
from maskcon.data import load, packing
from tests.cli.commands import maskcon
from tests.data.miniature_photos import SIZES, write_cars_folders, write_sop
from tests.data.miniatures import write_picture


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MASKCON_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "maskcon" / "packed"


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["pack", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout + result.stderr


def refusal(*arguments: str) -> MaskconError:
    result = CliRunner().invoke(app, ["pack", *arguments])
    assert isinstance(result.exception, MaskconError), result.output
    assert "\n" not in str(result.exception)
    return result.exception


def no_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("decoded again")

    monkeypatch.setattr(packing, "decode", refuse)


def write_photos(root: Path) -> Path:
    for name in ("a", "b"):
        for number in range(6):
            write_picture(root / name / f"{number}.png", (40 + number, 30))
    return root


@pytest.mark.parametrize(
    ("source", "size", "side", "count"),
    [
        ("photos", [], 45, 12),
        ("photos", ["--image-size", "32"], 32, 12),
        ("sop-split1", [], 256, 53),
        ("sop-split2", ["--image-size", "64"], 64, 36),
        ("cars196", ["--image-size", "112"], 128, 6),
    ],
)
def test_pictures_are_decoded_once_and_found_by_load(
    source: str, size: list[str], side: int, count: int, tmp_path: Path, cache: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    write_photos(tmp_path / "photos")
    write_sop(tmp_path / "data", SIZES)
    write_cars_folders(tmp_path / "data" / "cars196", {"train": [1, 2, 3, 4], "test": [1, 2]})
    monkeypatch.chdir(tmp_path)
    wanted = {"image_size": side} if size else {}
    decoded = load(source, **wanted).fingerprint()  # type: ignore[arg-type]
    first = run(source, *size)
    assert re.search(
        rf"^{source} is packed: {count} images at {side} px in [\d.]+ s, [\d,]+ images/s$", first, re.M
    )
    (stored,) = cache.iterdir()
    assert f"{stored}: " in first
    stored_bytes = sum(path.stat().st_size for path in stored.iterdir())
    assert f"{stored_bytes / 1e6:.1f} MB, 0 images left out" in first
    no_decoding(monkeypatch)
    again = run(source, *size)
    assert f"{source} is packed already: {count} images at {side} px" in again
    assert str(stored) in again
    data = load(source, **wanted)  # type: ignore[arg-type]
    assert data.fingerprint() == decoded
    assert isinstance(data.train.images, np.memmap)


def test_packs_of_two_sizes_and_two_splits_stand_side_by_side(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_sop(tmp_path / "data", SIZES)
    arguments = [
        [split, "--image-size", size] for split in ("sop-split1", "sop-split2") for size in ("32", "64")
    ]
    for each in arguments:
        run(*each)
    assert len(list(cache.iterdir())) == 4
    no_decoding(monkeypatch)
    assert all("already" in run(*each) for each in arguments)


def test_a_changed_file_is_noticed_and_the_old_pack_goes(tmp_path: Path, cache: Path) -> None:
    root = write_photos(tmp_path / "photos")
    run(str(root))
    (before,) = cache.iterdir()
    write_picture(root / "a" / "0.png", (40, 30), (1, 2, 3))
    assert "is packed: 12" in run(str(root))
    (after,) = cache.iterdir()
    assert after != before


def test_unreadable_pictures_are_counted_named_and_stop_it_if_strict(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_photos(tmp_path / "photos")
    (root / "a" / "bad.png").write_text("no picture")
    folder = write_sop(tmp_path / "data", SIZES)
    picture = next((folder / "bicycle_final").glob("111085122872_0.JPG"))
    picture.write_bytes(picture.read_bytes()[:100])
    next((folder / "kettle_final").glob("111085122877_1.JPG")).unlink()
    text = run(str(root))
    assert "1 image left out" in text
    assert "a/bad.png (not an image of a known format)" in text
    text = run("sop-split1", "--image-size", "32")
    assert "51 images" in text
    assert "2 images left out" in text
    assert "111085122877_1.JPG (no such file)" in text
    for source, name in ((str(root), "a/bad.png"), ("sop-split1", ".JPG")):
        error = refusal(source, "--image-size", "32", "--strict")
        assert error.exit_code == 2
        assert name in str(error)
    with pytest.raises(
        MaskconError, match=r"111085122877_1.JPG cannot be read \(no such file\); 1 such file in all"
    ):
        load("sop-split1", image_size=32, strict=True)


def test_strict_names_an_absent_picture_before_anything_is_decoded(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_sop(tmp_path / "data", SIZES)
    (folder / "kettle_final" / "111085122877_1.JPG").unlink()
    no_decoding(monkeypatch)
    error = refusal("sop-split1", "--strict")
    assert error.exit_code == 2
    assert "111085122877_1.JPG cannot be read (no such file); 1 such file in all" in str(error)
    assert not cache.exists()


@pytest.mark.parametrize(
    "source", ["embedded", "fashion-mnist", "cifar10", "cifartoy-bad", "cifar100", "imagenet32"]
)
def test_sets_of_arrays_need_no_packing(source: str, cache: Path) -> None:
    assert "nothing to pack" in run(source)
    assert not cache.exists()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["cars"], "did you mean 'cars196'"),
        (["no/such/folder"], "does not exist"),
        (["cars196"], "Put train/ and test/"),
        (["cars196", "--download"], "cannot be downloaded by itself"),
        (["sop-split1"], "--download (3.1 GB)"),
        (["imagenet32", "--image-size", "64"], "has images of 32x32"),
        (["embedded", "--image-size", "32"], "is for folders of images and for sop-split1"),
        (["empty"], "no image found"),
        (["photos", "--image-size", "4"], "8..4096, got 4"),
        (["photos", "--image-size", "-1"], "got -1"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_kept(
    arguments: list[str], told: str, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_photos(tmp_path / "photos")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    error = refusal(*arguments)
    assert error.exit_code == 2
    assert told in str(error)
    assert not cache.exists()


def test_progress_and_rate_go_to_stderr(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LINES_AFTER", 0.0)
    for number in range(600):
        write_picture(tmp_path / "photos" / "ab"[number % 2] / f"{number}.png", (9, 9))
    done = CliRunner().invoke(app, ["pack", str(tmp_path / "photos")])
    assert cache.is_dir(), done.output
    assert re.search(r"decoding: 544 of 600 images, [\d,]+ images/s", done.stderr)
    assert "decoding" not in done.stdout
    wrong = maskcon("pack", "photos", "--image-size", "many", cwd=tmp_path)
    assert wrong.returncode == 2
