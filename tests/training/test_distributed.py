"""Several processes behave as one with the same global batch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from maskcon import Run
from maskcon._utils.errors import UsageError
from maskcon._utils.files import FolderLock
from maskcon.models import build_backbone
from maskcon.training.distributed import start
from tests.cli.commands import SMALL, maskcon
from tests.cli.commands import start as begin
from tests.cli.test_kills import wait_for_step
from tests.miniature import miniature, with_paths
from tests.training.named import write_names

ROOT = Path(__file__).parents[2]


def launch(folder: Path, devices: int, steps: int, **settings: object) -> list[dict[str, torch.Tensor]]:
    path = os.pathsep.join(
        (str(ROOT), str(ROOT / "src"))
    )  # the sources beside this test, not those installed
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.training.two_processes", str(folder), str(devices), str(steps)]
    done = subprocess.run(
        [*command, json.dumps(settings)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [torch.load(folder / f"state-{devices}-{rank}.pt", weights_only=True) for rank in range(devices)]


FROZEN = {"batchnorm": "frozen", "epochs": 1}  # statistics of a share differ from those of the whole batch


@pytest.mark.parametrize(
    "settings",
    [
        {"method": "maskcon"},
        pytest.param({"method": "maskcon", "relation_space": "hog"}, marks=pytest.mark.slow),
        {"method": "maskcon", "relation_space": "hog"},
        pytest.param({"method": "coins"}, marks=pytest.mark.slow),
    ],
    ids=lambda settings: "-".join(settings.values()),
)
def test_two_processes_equal_one_with_the_same_global_batch(tmp_path, settings):
    (one,) = launch(tmp_path, 1, 3, **settings, **FROZEN)
    first, second = launch(tmp_path, 2, 3, **settings, **FROZEN)
    for step in range(3):
        torch.testing.assert_close(first[f"loss.{step}"], one[f"loss.{step}"], atol=1e-5, rtol=1e-5)
        assert torch.equal(first[f"loss.{step}"], second[f"loss.{step}"])
    for name, value in one.items():
        torch.testing.assert_close(
            first[name], value, atol=1e-4, rtol=1e-4, msg=lambda text, n=name: f"{n}: {text}"
        )


@pytest.mark.slow
def test_two_processes_have_the_clusters_of_one(tmp_path):
    settings = {"method": "bucsfr", "relation_warmup_epochs": 1.0} | FROZEN | {"epochs": 2}
    (one,) = launch(tmp_path, 1, 7, **settings)  # of 5 steps per epoch
    first, second = launch(tmp_path, 2, 7, **settings)
    assert (one["clusters._cluster"] >= 0).all()
    for name, value in one.items():
        torch.testing.assert_close(first[name], value, atol=1e-4, rtol=1e-4)
        if name.startswith(("clusters.", "bank.")):
            assert torch.equal(first[name], second[name]), name


def test_two_processes_equal_one_with_known_names_and_junk(tmp_path):
    fine = write_names(tmp_path, range(0, 70, 2), with_paths(miniature(70, 21)), junk=[1, 3])
    (one,) = launch(tmp_path, 1, 3, fine=fine, **FROZEN)
    first, second = launch(tmp_path, 2, 3, fine=fine, **FROZEN)
    for name, value in one.items():
        torch.testing.assert_close(first[name], value, atol=1e-4, rtol=1e-4)
        if name.startswith("bank."):
            assert torch.equal(first[name], second[name]), name


@pytest.mark.slow
def test_two_processes_train_the_head_of_a_frozen_backbone_as_one_does(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    torch.manual_seed(0)
    net = build_backbone("resnet6", image_size=16, in_channels=1, width=8, stem="stride2")
    net(torch.rand(64, 1, 16, 16))  # gives BatchNorm statistics of its own
    save_file(net.state_dict(), tmp_path / "weights.safetensors")
    frozen = {"freeze": True, "weights": str(tmp_path / "weights.safetensors"), "image_size": 16, "epochs": 1}
    first, second = launch(tmp_path, 2, 3, **frozen)
    assert len(list((tmp_path / "cache").rglob("features.npy"))) == 2  # train and test, embedded once
    (one,) = launch(tmp_path, 1, 3, **frozen)
    for name, value in one.items():
        torch.testing.assert_close(first[name], value, atol=1e-4, rtol=1e-4)
        if name.startswith(("bank.", "query.")):
            assert torch.equal(first[name], second[name]), name


def test_banks_and_weights_are_identical_on_both_processes_with_shuffled_batchnorm(tmp_path):
    first, second = launch(tmp_path, 2, 4, epochs=1)
    for name in first:
        if name.startswith(("bank.", "query.")) and "running_" not in name and "num_batches" not in name:
            assert torch.equal(first[name], second[name]), name
    index = first["bank._index"]
    assert len(set(index[index >= 0].tolist())) > 30  # rows of both processes, not one share twice
    run = Run.open(tmp_path / "run-2")
    assert run.result["processes"] == 2
    # What was scored, half of it by each process, is what the saved encoder gives.
    scored = torch.load(tmp_path / "scored-0.pt", weights_only=True)
    torch.testing.assert_close(run.encode(miniature(70, 21).test.images), scored)


@pytest.mark.slow
def test_a_stop_request_to_two_processes_saves_first_and_is_told_once(tmp_path):
    run = [*SMALL, "--set", "epochs=200", "--devices", "2", "--out", "run"]
    process = begin("train", "embedded", *run, cwd=tmp_path)
    wait_for_step(process, tmp_path / "run", more_than=1)
    process.terminate()
    _, error = process.communicate(timeout=60)
    assert process.returncode == 143
    assert error.count("everything saved") == 1
    assert any((tmp_path / "run" / "checkpoints").iterdir())
    with FolderLock(tmp_path / "run"):
        refused = maskcon("train", "embedded", *run, cwd=tmp_path)
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1
    assert "another run" in refused.stderr
    crowded = maskcon("train", "embedded", *SMALL, "--set", "batch_size=3", "--devices", "2", cwd=tmp_path)
    assert crowded.returncode == 2
    assert "batch of 3 images is too small for 2 processes" in crowded.stderr
    assert not (tmp_path / "runs").exists()


def test_a_world_size_left_in_the_environment_does_not_make_one_process_wait_for_others(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert start(device="cpu", devices=1, precision="32-true").count == 1


def test_a_device_that_is_not_here_is_refused():
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device here")
    with pytest.raises(UsageError, match="--device cpu"):
        start(device="cuda", devices=1, precision="32-true")
