"""Runs that train the last stages of a backbone on cached maps of those before them."""

from __future__ import annotations

import signal

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from maskcon import transforms
from maskcon._utils.errors import UsageError
from maskcon.api import score
from maskcon.cli import app
from maskcon.config.resolution import resolve
from maskcon.discovery.spread_scores import rankme
from maskcon.models import FeatureHead, FrozenEncoder, Tail, build_backbone, build_model
from maskcon.models.encoder_file import read_encoder
from maskcon.report.origin import reasons_of, train_command
from maskcon.training import state, step
from maskcon.training.callbacks import Callback
from maskcon.training.distributed import start
from maskcon.training.frozen import extract
from maskcon.training.frozen.cache import FEATURES, features_folder
from maskcon.training.run_folder import default_folder
from maskcon.training.setup import assemble, settle
from maskcon.training.signals import Interrupted
from maskcon.training.trials import open_trials
from tests.cli.commands import maskcon as command
from tests.miniature import miniature
from tests.training.frozen.runs import OFTEN, SMALL, Told, cached, fit
from tests.training.named import DATA, write_names

STAGES = ["layer1", "layer2"]  # of the backbone of these runs


def saved(folder) -> dict[str, torch.Tensor]:
    return load_file(folder / "encoder.safetensors")


def assembled(weights, **changes):
    data = miniature()
    given = {**SMALL, "weights": str(weights), **changes}
    config = resolve(data.name, method="maskcon", preset="fast", overrides=given).config
    processes = start(device="cpu", devices=1, precision="32-true")
    made = assemble(settle(config, data), data, processes, download=False)
    made.prepare(Callback())
    return made


@torch.no_grad()
@pytest.mark.parametrize("thaw", [1, 2])
def test_a_run_begins_at_the_features_of_the_frozen_one(weights, thaw):
    rows, found = torch.arange(24), []
    for stages in (0, thaw):
        made = assembled(weights, thaw=stages)
        found.append(made.features.embed_test(made.learner.model.backbone, rows))
        key = made.learner.pair.key.backbone
        assert torch.equal(made.features.embed_test(key, rows), found[-1])
        data = made.training_data
        views = data.key_view(data.feed.take(rows)[0], torch.zeros(24, 1), size=1)
        found.append(key(views))
        assert data.feed.reads_ahead == (stages > 0)  # maps are read batch by batch, not held in memory
        made.close()
    torch.testing.assert_close(found[2], found[0], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found[3], found[1], rtol=1e-2, atol=1e-2)  # cached in half precision
    assert rankme(found[2].numpy()) > 2


@pytest.mark.parametrize("optimizer", ["sgd", "muon"])
@pytest.mark.parametrize("thaw", [1, 2])
def test_training_moves_the_last_stages_and_nothing_before_them_nor_statistics(
    tmp_path, weights, thaw, optimizer
):
    run = fit(tmp_path / "run", weights, thaw=thaw, optimizer=optimizer)
    before, after = load_file(weights), saved(run.folder)
    assert {key.removeprefix("backbone.") for key in after if key.startswith("backbone.")} == set(before)
    same = {key for key, value in before.items() if torch.equal(after[f"backbone.{key}"], value)}
    learnt = tuple(STAGES[-thaw:])
    expected = {
        key for key in before if not key.startswith(learnt) or "running" in key or "num_batches" in key
    }
    assert same == expected
    assert not torch.equal(after["head.layer.weight"], torch.eye(12))


def test_gradients_are_bounded_where_stages_learn(tmp_path, weights, monkeypatch):
    monkeypatch.setattr(step, "LONGEST_GRADIENT", 1e-6)
    given = load_file(weights)
    moved = {}
    for thaw in (0, 2):
        run = fit(tmp_path / str(thaw), weights, thaw=thaw, epochs=1, weight_decay=0.0)
        moved[thaw] = float((saved(run.folder)["head.layer.weight"] - torch.eye(12)).abs().max())
    after = saved(tmp_path / "2")
    assert all(float((after[f"backbone.{name}"] - value).abs().max()) < 1e-5 for name, value in given.items())
    assert moved[2] < 1e-5 < 1e-3 < moved[0]


@pytest.mark.parametrize("method", ["teachcon", "coins", "supce", "bucsfr"])
def test_the_saved_encoder_embeds_images_as_the_run_scored_them(tmp_path, weights, method):
    data = miniature(72, 60)
    run = fit(tmp_path / "run", weights, data=data, method=method, thaw=2, epochs=1)
    encoder, facts = read_encoder(run.folder / "encoder.safetensors")
    assert isinstance(encoder, FrozenEncoder)
    assert not isinstance(encoder.backbone, Tail)
    with torch.no_grad():
        by_hand = encoder(facts.normalise(transforms.test_view(torch.from_numpy(data.test.images), size=16)))
    torch.testing.assert_close(run.encode(data.test.images), by_hand, rtol=1e-3, atol=1e-3)
    again = score(run, data=data)
    assert again["recall"]["1"] == pytest.approx(run.recall[1], abs=1.5 / 60)  # ties may round apart
    frozen = fit(tmp_path / "frozen", weights, data=data, method=method, epochs=1)
    assert run.result["frozen_backbone"] == frozen.result["frozen_backbone"]


@pytest.mark.parametrize("optimizer", ["sgd", "muon"])
def test_a_run_stopped_in_mid_epoch_resumes_to_the_same_bytes(tmp_path, weights, optimizer):
    class Stopping(Callback):
        def on_step(self, done: int, total: int, images: int, loss: float, seconds: float) -> None:
            if done == 3:
                signal.raise_signal(signal.SIGINT)

    given = {"thaw": 1, "optimizer": optimizer}
    fit(tmp_path / "whole", weights, **given)
    with pytest.raises(Interrupted):
        fit(tmp_path / "stopped", weights, **given, callback=Stopping())
    fit(tmp_path / "stopped", weights, **given)
    one, other = ((tmp_path / n / "encoder.safetensors").read_bytes() for n in ("whole", "stopped"))
    assert one == other


@pytest.mark.slow
def test_a_killed_run_resumes_to_the_same_bytes(tmp_path, weights):
    settings = {**SMALL, "weights": weights, "freeze": "yes", "train_limit": 80, "test_limit": 40}
    pairs = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    arguments = ["train", "embedded", "--thaw", "1", *pairs, "--device", "cpu", "--threads", "1"]
    arguments += ["--checkpoint-every-seconds", "0"]
    killed = command(*arguments, "--out", "run", cwd=tmp_path, MASKCON_FAILPOINT="after-rename")
    assert killed.returncode == 99
    for name in ("run", "whole"):
        ended = command(*arguments, "--out", name, cwd=tmp_path)
        assert ended.returncode == 0, ended.stderr
    assert "frozen but for the last 1 stage" in ended.stderr
    one, other = ((tmp_path / n / "encoder.safetensors").read_bytes() for n in ("run", "whole"))
    assert one == other


def test_maps_are_found_again_by_their_cut(tmp_path, weights, monkeypatch):
    monkeypatch.setattr(extract, "WORTH_TELLING", 0)
    told = Told()
    fit(tmp_path / "a", weights, epochs=1, thaw=1, callback=told)
    assert sum("GB of maps of 72 images" in text for text in told.messages) == 1
    before, told = cached(), Told()
    assert sorted(np.load(path).shape[2] for path in _files()) == [16 + 8 * 8 * 8] * 2
    fit(tmp_path / "b", weights, epochs=1, thaw=1, method="coins", callback=told)
    assert told.extracted == []
    assert not any("GB" in text for text in told.messages)
    assert cached() == before
    fit(tmp_path / "c", weights, epochs=1, thaw=2)
    assert len(cached()) == 4


def test_known_names_are_spread_as_on_a_frozen_backbone(tmp_path, weights):
    fine = write_names(tmp_path, range(20), junk=[30])
    runs = [
        fit(tmp_path / str(number), weights, data=DATA, thaw=1, epochs=1, **given)
        for number, given in enumerate(({"fine": fine}, {"fine": fine}, {}))
    ]
    named, again, plain = ((run.folder / "encoder.safetensors").read_bytes() for run in runs)
    assert named == again != plain


@pytest.mark.parametrize("optimizer", ["sgd", "muon"])
def test_every_parameter_is_in_one_group_and_those_of_the_tail_learn_slowly(weights, optimizer):
    net = build_backbone("resnet6", image_size=16, in_channels=1, width=8, stem="stride2").eval()
    part = FrozenEncoder(Tail(net, 1, 16), FeatureHead(12))
    model = build_model(part, projection=8, hidden=8, coarse_classes=2)
    config = assembled(weights).config.changed(optimizer=optimizer)
    groups = state.build_optimizer(model, config).param_groups
    grouped = [id(parameter) for group in groups for parameter in group["params"]]
    assert sorted(grouped) == sorted(id(parameter) for parameter in model.parameters())
    slow = {id(p) for group in groups if "share" in group for p in group["params"]}
    assert slow == {id(parameter) for parameter in part.backbone.parameters()}
    assert id(part.head.layer.weight) not in slow
    assert all(group["share"] == state.TAIL_RATES[optimizer] < 1 for group in groups if "share" in group)


def test_what_cannot_be_thawed_is_refused_before_anything_is_embedded(tmp_path, weights):
    with pytest.raises(UsageError, match=r"thaw=3 .* resnet6 has 2 stages .*choose 1 to 2"):
        fit(tmp_path / "run", weights, thaw=3)
    with pytest.raises(UsageError, match=r"thaw=1 .*freeze=no; set freeze=yes"):
        fit(tmp_path / "run", weights, thaw=1, freeze=False)
    with pytest.raises(UsageError, match=r"thaw=1 .*trials train only heads; leave it out"):
        open_trials("embedded", "maskcon", {"thaw": 1}, tmp_path / "tune", OFTEN, Callback())
    assert cached() == {}


def test_the_option_freezes_names_the_folder_and_repeats_the_run(tmp_path, weights):
    shown = (
        CliRunner()
        .invoke(app, ["train", "embedded", "--thaw", "2", "--dry-run"], env={"COLUMNS": "220"})
        .output.splitlines()
    )
    lines = {line.split()[0]: line.split()[1:3] for line in shown if line.strip()}
    assert lines["freeze"] == ["yes", "given"]
    assert lines["thaw"] == ["2", "given"]
    folder = default_folder("photos", "maskcon", {"freeze": True, "thaw": 2})
    assert folder.name == "photos-maskcon-thaw2-seed0"
    told = Told()
    run = fit(tmp_path / "run", weights, thaw=2, epochs=1, callback=told)
    command_again = train_command(run, reasons_of(run)[1], OFTEN)
    assert "--freeze" in command_again
    assert "--thaw 2" in command_again


def _files():
    return list(features_folder().rglob(FEATURES))
