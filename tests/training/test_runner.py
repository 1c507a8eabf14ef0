"""What data a run gets: which canvas, from a pack or not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import maskcon
from maskcon.api import data_of
from maskcon.config.resolution import resolve
from maskcon.config.settings import Machine
from maskcon.data import load, packing
from maskcon.training.callbacks import Callback
from maskcon.training.setup import load_dataset, settle
from tests.data.miniature_photos import SIZES, write_cars_folders, write_sop
from tests.data.miniatures import write_cifar10, write_picture
from tests.miniature import TINY


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Machine(data_root=str(tmp_path / "data"), device="cpu", threads=1)


def canvas(source: str, machine: Machine, *, preset: str = "paper", **changes: object) -> tuple[int, int]:
    """Side of the stored images, and of the views."""
    config = resolve(source, method="maskcon", preset=preset, overrides=changes).config
    data = load_dataset(source, config, machine, Callback())
    return max(data.train.images.shape[2:]), int(settle(config, data).image_size or 0)


def test_named_sets_of_photographs_get_the_canvas_that_views_need(tmp_path: Path, machine: Machine) -> None:
    write_cars_folders(tmp_path / "data" / "cars196", {"train": [1, 2, 3, 4], "test": [1, 2]})
    write_sop(tmp_path / "data", SIZES)
    assert canvas("cars196", machine) == (256, 224)
    assert canvas("sop-split1", machine) == (256, 224)
    assert canvas("sop-split2", machine, image_size=None) == (256, 224)
    assert canvas("cars196", machine, preset="cpu") == (64, 64)
    assert canvas("cars196", machine, image_size=112) == (128, 112)


def test_small_images_come_as_they_are_whatever_the_views(tmp_path: Path, machine: Machine) -> None:
    write_cifar10(tmp_path / "data" / "cifar-10-batches-py")
    assert canvas("cifar10", machine) == (32, 32)
    assert canvas("cifar10", machine, image_size=28) == (32, 28)


def test_folders_get_a_canvas_too(tmp_path: Path, machine: Machine) -> None:
    for number in range(12):
        write_picture(tmp_path / "photos" / "ab"[number % 2] / f"{number}.png", (300, 200))
    assert canvas(str(tmp_path / "photos"), machine) == (256, 224)
    assert canvas(str(tmp_path / "photos"), machine, image_size=64) == (64, 64)


@pytest.mark.parametrize("part", ["test", "validation"])
@pytest.mark.parametrize("limits", [{}, {"train_limit": 300, "test_limit": 70}])
def test_data_are_held_out_of_the_training_part_and_then_limited(
    part: str, limits: dict[str, int], machine: Machine
) -> None:
    changes = {"evaluate_on": part, **limits}
    config = resolve("embedded", method="maskcon", preset="cpu", overrides=changes).config
    whole = load("embedded")
    expected = whole.hold_out(0.2) if part == "validation" else whole
    expected = expected.limited(limits.get("train_limit"), limits.get("test_limit"))
    assert load_dataset("embedded", config, machine, Callback()).fingerprint() == expected.fingerprint()


def test_a_run_reads_from_the_pack_and_gives_the_same_result(
    tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = [1, 1, 2, 2, 3, 3, 4, 4] * 3
    write_cars_folders(tmp_path / "data" / "cars196", {"train": models, "test": models[:8]})
    changes = {**TINY, "epochs": 1, "image_size": 32}

    def trained(name: str) -> bytes:
        run = maskcon.fit("cars196", settings=changes, machine=machine, out=tmp_path / name)
        assert max(data_of(run, machine).train.images.shape[2:]) == 32
        return (run.folder / "encoder.safetensors").read_bytes()

    decoded = trained("decoded")
    monkeypatch.setattr(packing, "PACK_ABOVE_BYTES", 0)
    assert trained("packed") == decoded
    data = load("cars196", root=tmp_path / "data", image_size=32)
    assert isinstance(data.train.images, np.memmap)
