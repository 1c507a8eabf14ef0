"""Whole runs of a frozen backbone on a miniature data set; the weights are made here."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from maskcon import transforms
from maskcon.api import score
from maskcon.config.resolution import resolve
from maskcon.methods.registry import all_methods
from maskcon.models import FeatureHead, MobileNetV2, build_backbone
from maskcon.models.encoder_file import read_encoder
from maskcon.retrieval.recall import recall_at_k
from maskcon.training import setup
from maskcon.training.frozen.cache import FEATURES, features_folder
from maskcon.training.frozen.features import CachedView
from maskcon.training.setup import settle
from tests.miniature import miniature
from tests.training.frozen.runs import cached, fit
from tests.training.named import DATA, write_names


@pytest.mark.parametrize("method", [m.name for m in all_methods()])
def test_every_method_trains_a_head_and_leaves_a_complete_folder(tmp_path, weights, method):
    run = fit(tmp_path / "run", weights, method=method, epochs=1)
    assert set(run.recall) == {1, 2, 5, 10}
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert set(result["frozen_backbone"]) == {"1", "2", "5", "10"}
    assert (tmp_path / "run" / "journal.jsonl").is_file()


def test_training_moves_the_head_and_leaves_the_backbone_as_it_was(tmp_path, weights):
    fit(tmp_path / "one", weights, epochs=1)
    fit(tmp_path / "two", weights, epochs=3)
    one, two = (load_file(tmp_path / name / "encoder.safetensors") for name in ("one", "two"))
    given = load_file(weights)
    for saved in (one, two):
        assert all(torch.equal(saved[f"backbone.{name}"], value) for name, value in given.items())
    assert not torch.equal(one["head.layer.weight"], two["head.layer.weight"])


def test_a_run_learns_on_cached_features(tmp_path, weights):
    run = fit(
        tmp_path / "run", weights, data=miniature(160, 80), method="supfine", epochs=25, eval_every_epochs=0,
        learning_rate=0.1, query_view="identity", key_view="identity",
    )  # fmt: skip
    losses = [
        json.loads(line)["loss"]
        for line in (run.folder / "journal.jsonl").read_text().splitlines()
        if '"step"' in line and '"loss"' in line
    ]
    assert np.mean(losses[-10:]) < np.mean(losses[:10]) - 0.3


@pytest.mark.parametrize(
    ("wanted", "kept"), [(12, 12), (40, 16)]
)  # more than the backbone has are all it has
def test_the_saved_model_embeds_new_images_as_backbone_and_head_do_by_hand(
    tmp_path, weights, wanted, kept, monkeypatch
):
    monkeypatch.setattr(setup, "HEAD_FEATURES", wanted)
    run = fit(tmp_path / "run", weights, epochs=1)
    fresh = miniature(8, 30, seed=9).test
    backbone = build_backbone("resnet6", image_size=16, in_channels=1, width=8, stem="stride2").eval()
    backbone.load_state_dict(load_file(weights))
    _, facts = read_encoder(run.folder / "encoder.safetensors")
    saved = load_file(run.folder / "encoder.safetensors")
    with torch.no_grad():
        view = transforms.test_view(torch.from_numpy(fresh.images), size=16)
        seen = backbone(facts.normalise(view)) @ saved["axes.matrix"]
        expected = seen @ saved["head.layer.weight"].T + saved["head.layer.bias"]
    embedded = run.encode(fresh.images)
    assert embedded.shape == (30, kept)
    torch.testing.assert_close(embedded, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("weight", [0.0, 0.5])
def test_earlier_layers_are_seen_by_the_head_and_not_by_the_backbone_alone(tmp_path, weight, monkeypatch):
    torch.manual_seed(5)
    net = MobileNetV2(in_channels=1).train()
    net(torch.rand(64, 1, 32, 32))
    save_file(net.state_dict(), tmp_path / "net.safetensors")
    net.eval()
    monkeypatch.setattr(setup, "EARLIER_WEIGHT", weight)
    run = fit(
        tmp_path / "run", tmp_path / "net.safetensors", backbone="mobilenet_v2", image_size=32, epochs=1
    )
    _, facts = read_encoder(run.folder / "encoder.safetensors")
    saved = load_file(run.folder / "encoder.safetensors")
    assert saved["axes.matrix"].shape == (1536 if weight else 1280, 12)
    test = miniature().test
    with torch.no_grad():
        view = facts.normalise(transforms.test_view(torch.from_numpy(test.images), size=32))
        seen = net.levels(view, weight) @ saved["axes.matrix"]
        alone = torch.nn.functional.normalize(net(view), dim=1)
    expected = seen @ saved["head.layer.weight"].T + saved["head.layer.bias"]
    torch.testing.assert_close(run.encode(test.images), expected, rtol=1e-3, atol=1e-3)
    kept = next(np.load(p) for p in features_folder().rglob(FEATURES) if len(np.load(p)) == len(test))
    features = torch.from_numpy(kept[:, 0, :1280])
    torch.testing.assert_close(torch.nn.functional.normalize(features, dim=1), alone, rtol=1e-3, atol=1e-4)
    recall = recall_at_k(features, torch.from_numpy(test.fine))
    assert run.result["frozen_backbone"] == {str(k): pytest.approx(v, abs=1e-6) for k, v in recall.items()}


def test_scoring_the_saved_model_gives_what_the_run_says(tmp_path, weights):
    run = fit(tmp_path / "run", weights, data=miniature(72, 60), epochs=1)
    again = score(run, data=miniature(72, 60))
    assert again["raw_pixels"] == run.result["raw_pixels"]
    assert again["recall"]["1"] == pytest.approx(run.recall[1], abs=1.5 / 60)  # ties may round apart


def test_the_whole_encoder_is_a_file_of_weights_for_its_backbone(tmp_path, weights):
    fit(tmp_path / "run", weights, epochs=1)
    fit(tmp_path / "again", tmp_path / "run" / "encoder.safetensors", epochs=1)
    assert len(cached()) == 2  # train and test: the same backbone, so nothing was embedded twice


def test_cached_views_are_those_the_policies_make(tmp_path, weights):
    fit(tmp_path / "run", weights, epochs=1, query_view="identity")
    features = next(np.load(p) for p in features_folder().rglob(FEATURES) if np.load(p).shape[1] == 3)
    assert features.shape == (72, 3, 16)  # the identity has nothing to draw, so one is enough
    assert features.dtype == np.float16
    net = build_backbone("resnet6", image_size=16, in_channels=1, width=8, stem="stride2").eval()
    net.load_state_dict(load_file(weights))
    _, facts = read_encoder(tmp_path / "run" / "encoder.safetensors")
    with torch.no_grad():
        plain = net(facts.normalise(torch.from_numpy(miniature().train.images) / 255.0))
    torch.testing.assert_close(torch.from_numpy(features[:, 0]).float(), plain, rtol=2e-3, atol=2e-3)
    assert not np.array_equal(features[:, 1], features[:, 2])


def test_a_cached_view_is_picked_by_its_uniform_from_its_own_columns():
    features = torch.arange(4 * 6).view(4, 6, 1).to(torch.float16)
    picked = CachedView("key", 3, 3)(features, torch.tensor([[0.0], [0.34], [0.999999], [0.67]]), size=1)
    assert picked.shape == (4, 1, 1, 1)
    assert picked.dtype == torch.float32
    assert picked.flatten().tolist() == [3, 10, 17, 23]


def test_a_head_begins_as_the_backbone_alone():
    seen = torch.randn(5, 24)
    assert torch.equal(FeatureHead(24)(seen), seen)


def test_a_frozen_backbone_sees_what_it_can_read_and_a_learning_one_the_presets_views():
    for preset, freeze, expected in (
        ("cpu", True, ("embedded-weak", "identity")),
        ("cpu", False, ("embedded-strong", "embedded-weak")),
        ("fast", True, ("embedded-weak", "identity")),
        ("fast", False, ("embedded-strong", "embedded-weak")),
    ):
        config = resolve("photos", method="maskcon", preset=preset, overrides={"freeze": freeze}).config
        settled = settle(config, miniature())
        assert (settled.query_view, settled.key_view) == expected


@pytest.mark.parametrize("method", ["maskcon", "teachcon"])
def test_known_names_teach_the_head_of_a_frozen_backbone_too(tmp_path, weights, method):
    names = {"fine": write_names(tmp_path, range(0, 72, 2), junk=[1])}
    runs = {
        name: fit(tmp_path / name, weights, data=DATA, method=method, epochs=2, **given)
        for name, given in (("named", names), ("again", names), ("plain", {}))
    }
    named, again, plain = ((run.folder / "encoder.safetensors").read_bytes() for run in runs.values())
    assert named == again != plain
    assert runs["named"].result["train_images"] == 71
