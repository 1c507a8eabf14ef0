"""Which runs share cached features, and which embed anew."""

from __future__ import annotations

import dataclasses
import os

import numpy as np
import pytest
import torch

from maskcon import transforms
from maskcon.config.resolution import resolve
from maskcon.models import build_backbone, for_inference
from maskcon.models.encoder_file import EncoderFacts
from maskcon.retrieval.encode import Feed
from maskcon.training.frozen.cache import CHUNK_IMAGES, DONE, FEATURES, FeatureFile, features_folder
from maskcon.training.frozen.extract import Extraction, describe, extract, weights_hash
from maskcon.training.setup import encoder_facts
from tests.miniature import miniature
from tests.training.frozen.runs import SMALL, Told, cached, fit


def test_runs_of_other_seeds_methods_and_labels_share_the_cache(tmp_path, weights):
    told = Told()
    fit(tmp_path / "a", weights, epochs=1, callback=told)
    assert [done for done, _, _ in told.extracted] == [0, 64 * 4, 72 * 4, 0, 24]
    assert sum("embedded" in text and "views/s" in text for text in told.messages) == 2
    before, told = cached(), Told()
    data = miniature()
    train, test = (dataclasses.replace(part, coarse=1 - part.coarse) for part in (data.train, data.test))
    other = dataclasses.replace(data, train=train, test=test, coarse_of_fine=(1, 1, 0, 0))
    fit(tmp_path / "b", weights, epochs=1, seed=3, callback=told)
    fit(tmp_path / "c", weights, epochs=1, method="supce", data=other, callback=told)
    assert told.extracted == []
    assert cached() == before


@pytest.mark.parametrize(
    ("change", "new"),
    [
        ({"key_view": "identity"}, 1),
        ({"image_size": 20}, 2),
        ({"normalise": "dataset"}, 2),
        ({"protocol": "reference"}, 1),
        ({"train_limit": 40}, 1),
        ({"learning_rate": 0.01}, 0),
    ],
)
def test_the_cache_is_made_anew_for_what_changes_features_and_for_nothing_else(
    tmp_path, weights, change, new
):
    fit(tmp_path / "a", weights, epochs=1)
    before = set(cached())
    fit(tmp_path / "b", weights, epochs=1, **change)
    assert len(set(cached()) - before) == new
    assert before <= set(cached())


def test_other_weights_or_pixels_are_another_cache(weights):
    config = resolve(
        "miniature", method="maskcon", preset="cpu", overrides={**SMALL, "weights": str(weights)}
    ).config
    part = miniature().train
    facts = encoder_facts(config, part)
    torch.manual_seed(0)
    net = build_backbone("resnet6", image_size=16, in_channels=1, width=8, stem="stride2")
    policy = transforms.policy("embedded-weak")
    first = describe(part, facts, weights_hash(net), [policy], 0)
    with torch.no_grad():
        next(net.parameters())[0, 0, 0, 0] += 1e-6
    assert describe(part, facts, weights_hash(net), [policy], 0) != first
    assert describe(part, facts, first["weights"], [policy], 0, "onnxruntime") != first
    pixels = part.images.copy()
    pixels[3, 0, 2, 2] ^= 1
    touched = dataclasses.replace(part, images=pixels)
    assert describe(touched, facts, first["weights"], [policy], 0) != first
    assert describe(part, facts, first["weights"], [policy], 0) == first
    # an edited policy of the same name
    assert describe(part, facts, first["weights"], [dataclasses.replace(policy, mirror=0.4)], 0) != first


def test_a_run_waits_for_another_one_that_embeds_the_same_pictures(tmp_path, weights):
    fcntl = pytest.importorskip("fcntl")
    fit(tmp_path / "a", weights, epochs=1)
    train = next(path.parent for path in features_folder().rglob(FEATURES) if np.load(path).shape[1] == 4)
    (train / DONE).unlink()
    held = os.open(train, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)  # as the other one does

    class Waiting(Told):
        def on_message(self, text: str) -> None:
            super().on_message(text)
            if "waiting" in text:
                assert self.extracted == []
                os.close(held)

    told = Waiting()
    fit(tmp_path / "b", weights, epochs=1, callback=told)
    assert [text for text in told.messages if "waiting" in text] == [
        "another run is computing the same features; waiting for it"
    ]
    assert [done for done, _, _ in told.extracted] == [0, 256, 288]


@torch.inference_mode()
def test_onnxruntime_fills_a_cache_with_the_same_bytes_after_a_stop_and_on_more_threads(tmp_path):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    images = np.random.default_rng(0).integers(0, 256, (CHUNK_IMAGES + 3, 1, 28, 28), dtype=np.uint8)
    facts = EncoderFacts("mobilenet_v2", 64, "auto", 1, 32, "shorter", (0.5,), (0.2,), earlier_weight=0.5)
    torch.manual_seed(0)
    net = build_backbone("mobilenet_v2", image_size=32, in_channels=1).eval()
    shape = (len(images), 2, net.level_features(0.5))
    views = [transforms.policy("embedded-weak"), None]
    before, contents = torch.get_num_threads(), []
    try:
        for threads, kept in ((1, []), (2, [0]), (2, [1])):
            torch.set_num_threads(threads)
            file = FeatureFile(tmp_path / f"{threads}-{kept}", shape, "float16", {})
            work = Extraction(for_inference(net), Feed(images, None, torch.device("cpu")), facts, views, 0)
            for chunk in kept:  # as from before a stop, on one thread
                rows = file.rows(chunk)
                file.write(chunk, contents[0][rows.start : rows.stop])
            extract(work, file, lambda *_: None)
            assert file.missing() == []
            contents.append(np.array(file.array()))
    finally:
        torch.set_num_threads(before)
    assert all(np.array_equal(contents[0], other) for other in contents)
