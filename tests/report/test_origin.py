from __future__ import annotations

import json
import math
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from maskcon.api import Run, fit
from maskcon.cli import app, options
from maskcon.cli.train import train as train_function
from maskcon.config.resolution import resolve
from maskcon.config.settings import Machine
from maskcon.report.origin import about, reasons_of, train_command
from maskcon.training.run_folder import CHOICES, CONFIG, ENCODER, ENVIRONMENT, RESULT, json_bytes
from maskcon.training.setup import settle
from tests.finished_run import finished_run, write_photo
from tests.miniature import TINY, miniature


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return finished_run(tmp_path / "run's folder")


def changed(run: Run, **values: Any) -> Run:
    (run.folder / CONFIG).write_text(run.config.changed(**values).to_yaml(), encoding="utf-8")
    return Run.open(run.folder)


def typed(command: str) -> dict[str, Any]:
    """What the command line makes of a command: the arguments of `maskcon train`."""
    words = shlex.split(command)
    assert words[:2] == ["maskcon", "train"]
    app = typer.Typer()
    app.command()(train_function)
    given = typer.main.get_command(app).make_context("train", words[2:]).params
    return dict(given)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"tau": math.inf, "w": 0.25, "seed": 7},
        {"method": "coins", "weight_decay": 1e-5, "protocol": "reference"},
        {"source": "embedded", "query_view": "photos-weak", "epochs": 9},
        {"freeze": True, "backbone": "mobilenet_v2", "weights": "imagenet"},
    ],
)
def test_the_command_gives_the_very_settings_again(run: Run, values: dict[str, Any]) -> None:
    run = changed(run, **values)
    command = train_command(run, reasons_of(run)[1], Machine(data_root="some where"))
    given = typed(command)
    overrides = options.parse_settings(given["settings"])
    overrides |= {k: given[k] for k in ("w", "tau", "epochs", "seed") if given[k] is not None}
    overrides |= {"freeze": True} if given["freeze"] else {}
    again = resolve(given["source"], method=given["method"], preset=given["preset"], overrides=overrides)
    assert settle(again.config, miniature()).differences(run.config) == []
    assert given["out"] == run.folder.with_name("run's folder-again")  # in its own it is finished
    assert given["data_root"] == "some where"


def test_every_setting_has_a_source(run: Run) -> None:
    run = changed(run, source="embedded", key_momentum=0.5)
    reasons = reasons_of(run)[0]
    assert set(reasons) == set(type(run.config).model_fields)
    assert reasons["key_momentum"] == reasons["batch_size"] == reasons["method"] == "given"
    assert reasons["weights"] == "ours: random weights; the paper does not say"
    assert reasons["query_view"] == "given, or set by the data"
    assert reasons["w"].startswith("for maskcon: ")


def test_what_was_chosen_for_the_images_says_why(run: Run) -> None:
    choice = {"name": "bank", "shown": "40", "reason": "half of 80 images", "settings": {"bank_size": 40}}
    (run.folder / CHOICES).write_text(json.dumps({"format": 1, "choices": [choice]}))
    reasons, given = reasons_of(run)
    assert reasons["bank_size"] == "chosen: half of 80 images"
    assert given["bank_size"] == 40
    (run.folder / CHOICES).write_text("[[")  # a damaged file costs the reason, not the page
    assert reasons_of(run)[0]["bank_size"] == "given"


def test_a_frozen_backbone_that_was_chosen_says_why(run: Run) -> None:
    run = changed(run, freeze=True, backbone="mobilenet_v2", weights="imagenet")
    assert reasons_of(run)[0]["freeze"] == "given"
    choice = {"reason": "no GPU, and its weights are at hand", "settings": {"freeze": True}}
    (run.folder / CHOICES).write_text(json.dumps({"choices": [choice]}))
    reasons, given = reasons_of(run)
    assert reasons["freeze"] == "chosen: no GPU, and its weights are at hand"
    command = train_command(run, given, Machine())
    assert "--freeze" in command
    assert "freeze=" not in command


def test_the_command_of_several_processes_asks_for_as_many(run: Run) -> None:
    assert typed(train_command(run, {}, Machine()))["devices"] == 1
    (run.folder / RESULT).write_bytes(json_bytes({**run.result, "processes": 3}))
    assert typed(train_command(Run.open(run.folder), {}, Machine()))["devices"] == 3


def test_another_machine_has_nothing_left_to_choose(run: Run) -> None:
    given = reasons_of(run)[1]  # "miniature" is no dataset known by name
    assert {"backbone", "weights", "image_size", "batch_size", "bank_size", "epochs"} <= set(given)


@pytest.mark.parametrize(("here", "there"), [(".", "."), ("inside", "..")])
def test_a_run_named_by_dots_is_trained_again_beside_it(
    run: Run, monkeypatch: pytest.MonkeyPatch, here: str, there: str
) -> None:
    (run.folder / "inside").mkdir()
    monkeypatch.chdir(run.folder / here)
    again = typed(train_command(Run.open(there), {}, Machine()))["out"]
    assert again == run.folder.resolve().with_name("run's folder-again")


def test_the_command_trains_the_run_again_to_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(24):
        write_photo(tmp_path / "photos" / ("cat", "dog")[number % 2] / f"{number}.png", number)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    given = {**TINY, "epochs": 1, "image_size": 16, "tau": 0.2}
    del given["batch_size"], given["bank_size"]  # are chosen
    first = fit("photos", choose=True, settings=given, machine=Machine(device="cpu", threads=1))
    command = train_command(first, reasons_of(first)[1], Machine())
    ended = CliRunner().invoke(app, [*shlex.split(command)[1:], "--device", "cpu", "--threads", "1"])
    assert ended.exit_code == 0, ended.output
    again = Path("runs/photos-teachcon-seed0-again")
    assert (again / ENCODER).read_bytes() == (first.folder / ENCODER).read_bytes()
    (apart,) = Run.open(again).config.differences(first.config)
    assert apart.startswith("source: ")  # the command works from any directory


def test_the_facts_say_what_was_trained_on_what(run: Run) -> None:
    facts = dict(about([run], miniature()))
    assert "72 images to train on, 24 to score on" in facts["Images"]
    assert facts["Coarse classes"] == "2: stripes (48), checks (48)"
    assert facts["Fine labels"].startswith("4 known")
    assert facts["Method"].startswith("MaskCon, trained on the coarse labels: ")
    assert "resnet6, width 8, from random weights" in facts["Encoder"]
    assert "2 epochs in batches of 16; seed 0" in facts["Training"]
    assert "Software" not in facts
    (run.folder / ENVIRONMENT).write_text(
        json.dumps({"packages": {"maskcon": "1", "torch": "2"}, "python": "3", "device": "cpu", "threads": 1})
    )
    assert dict(about([run], miniature()))["Software"] == "maskcon 1, torch 2, Python 3, on cpu with 1 thread"


def test_the_facts_name_the_cross_entropy_beside_a_method(run: Run) -> None:
    said = dict(about([run, changed(run, coarse_weight=0.5)], miniature()))["Methods"]
    alone, beside = said.split("; MaskCon + CE, trained on the coarse labels: ")
    assert alone.startswith("MaskCon, trained on")
    assert "cross-entropy" not in alone
    assert beside.endswith("; plus cross-entropy on the coarse labels")
    ours = dict(about([changed(run, method="teachcon", coarse_weight=1.0)], miniature()))["Method"]
    assert ours.count("cross-entropy") == 1


def test_the_facts_name_the_hog_features_that_relations_compare(run: Run) -> None:
    said = dict(about([changed(run, relation_space="hog")], miniature()))["Method"]
    assert "; similarities are those of HOG features, not of learnt keys; from the second epoch" in said
    said = dict(about([changed(run, relation_space="hog", method="grafit")], miniature()))["Method"]
    assert "HOG" not in said  # it compares nothing


def test_the_facts_of_a_frozen_run_without_fine_labels(run: Run) -> None:
    run = changed(run, freeze=True, backbone="mobilenet_v2", weights="imagenet")
    facts = dict(about([run], miniature(fine=False)))
    assert facts["Fine labels"].startswith("none known")
    assert facts["Encoder"].startswith(
        "mobilenet_v2 from ImageNet weights, frozen, under a trained linear layer that"
    )
    run = changed(run, freeze=False)  # all of it trained; it has no width to choose
    assert dict(about([run], miniature()))["Encoder"].startswith(
        "mobilenet_v2, from ImageNet weights; views of"
    )
