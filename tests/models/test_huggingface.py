from __future__ import annotations

import builtins
import sys
import types
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from maskcon._utils.errors import UsageError
from maskcon.config.backbones import PRETRAINED, mean_and_std, view_size
from maskcon.config.resolution import resolve
from maskcon.models.backbones import build_backbone
from maskcon.models.huggingface import HuggingFaceBackbone
from maskcon.training.state import build_encoder


class StandIn(nn.Module):
    """Answers like a vision model: remembers its input and returns the given kind of output."""

    def __init__(self, kind: str, **config: Any) -> None:
        super().__init__()
        self.kind = kind
        self.config = SimpleNamespace(**config)
        self.seen: list[torch.Size] = []

    def forward(self, pixel_values: Tensor) -> SimpleNamespace:
        self.seen.append(pixel_values.shape)
        maps = pixel_values.repeat(1, 2, 1, 1)  # [B, 2C, H, W]
        if self.kind == "pooled":
            return SimpleNamespace(pooler_output=maps.mean((2, 3), keepdim=True), last_hidden_state=maps)
        if self.kind == "maps":
            return SimpleNamespace(pooler_output=None, last_hidden_state=maps)
        return SimpleNamespace(last_hidden_state=maps.flatten(2).transpose(1, 2))


@pytest.mark.parametrize("kind", ["pooled", "maps", "tokens"])
def test_every_kind_of_output_becomes_one_row_an_image(kind: str) -> None:
    backbone = HuggingFaceBackbone("hf:x", StandIn(kind), image_size=8)
    images = torch.rand(2, 3, 8, 8)
    assert backbone.features == 6
    torch.testing.assert_close(backbone(images), images.mean((2, 3)).repeat(1, 2))


def test_fixed_size_models_get_resized_and_grey_gets_repeated() -> None:
    model = StandIn("pooled", image_size=16, patch_size=4)
    backbone = HuggingFaceBackbone("hf:x", model, image_size=8, in_channels=1)
    assert backbone(torch.rand(2, 1, 8, 8)).shape == (2, 6)
    assert model.seen[-1] == (2, 3, 16, 16)


def test_channels_that_the_model_cannot_take_are_named() -> None:
    with pytest.raises(UsageError, match="takes 3 channels, the images have 4"):
        HuggingFaceBackbone("hf:x", StandIn("pooled"), image_size=8, in_channels=4)


def test_missing_extra_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "transformers", raising=False)
    genuine = builtins.__import__

    def without(name: str, *arguments: Any, **keywords: Any) -> Any:
        if name == "transformers":
            raise ImportError(name)
        return genuine(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UsageError, match=r"pip install 'maskcon\[hf\]'"):
        build_backbone("hf:facebook/dinov2-small", image_size=32)


def tiny(kind: str, folder: Path) -> str:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    if kind == "vit":
        config = transformers.ViTConfig(
            hidden_size=8,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=16,
            image_size=16,
            patch_size=8,
        )
    elif kind == "dinov2":
        config = transformers.Dinov2Config(
            hidden_size=8, num_hidden_layers=1, num_attention_heads=2, image_size=28, patch_size=14
        )
    else:
        config = transformers.ResNetConfig(
            embedding_size=8, hidden_sizes=[8, 8], depths=[1, 1], layer_type="basic"
        )
    transformers.AutoModel.from_config(config).save_pretrained(folder)
    return f"hf:{folder}"


@pytest.mark.parametrize("kind", ["vit", "dinov2", "resnet"])
@pytest.mark.parametrize("in_channels", [1, 3])
def test_tiny_model_loads_from_a_folder_and_trains(tmp_path: Path, kind: str, in_channels: int) -> None:
    backbone = build_backbone(tiny(kind, tmp_path), image_size=32, in_channels=in_channels)
    features = backbone(torch.rand(2, in_channels, 32, 32))
    assert features.shape == (2, backbone.features) == (2, 8)
    features.square().sum().backward()
    assert any(value.grad is not None for value in backbone.parameters())


def tiny_of(name: str) -> Any:
    """A small random model of the class of a named choice, and the features that its library documents."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    if name == "dinov2_small":  # pretrained at 518 px, with positions that are interpolated
        config = transformers.Dinov2Config(**small, image_size=518, patch_size=14)
    elif name == "dinov3_small":
        config = transformers.DINOv3ViTConfig(**small, image_size=224, patch_size=16, num_register_tokens=4)
    elif name == "siglip_base":
        vision = {**small, "image_size": 224, "patch_size": 16}
        config = transformers.SiglipConfig(text_config={**small, "vocab_size": 50}, vision_config=vision)
    else:
        config = transformers.ConvNextConfig(hidden_sizes=[8, 8, 8, 16], depths=[1, 1, 1, 1])
    return transformers.AutoModel.from_config(config).eval()


def pooled_by_hand(name: str, model: Any, images: Tensor) -> Tensor:
    """Compute the features [B, F] from the last tokens or maps."""
    vision = getattr(model, "vision_model", model)
    last = vision(pixel_values=images).last_hidden_state
    if name in ("dinov2_small", "dinov3_small"):
        return last[:, 0]  # the class token, behind the last norm
    if name == "siglip_base":
        head = next(module for module in vision.modules() if type(module).__name__.endswith("PoolingHead"))
        return head(last)  # a learnt query attends to all patches
    return model.layernorm(last.mean((2, 3)))


@pytest.mark.parametrize("name", ["dinov2_small", "dinov3_small", "siglip_base", "convnext_tiny"])
def test_a_named_model_gives_its_own_pooling_of_views_of_its_own_size(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_of(name)
    asked: list[tuple[str, str, bool]] = []

    def from_pretrained(repository: str, *, revision: str, local_files_only: bool, **_: Any) -> Any:
        asked.append((repository, revision, local_files_only))
        return model

    monkeypatch.setattr("transformers.AutoModel.from_pretrained", from_pretrained)
    build_backbone(f"hf:{PRETRAINED[name].repository}", image_size=224)
    backbone = build_backbone(name, image_size=view_size(name, 500)).eval()
    assert asked == [(PRETRAINED[name].repository, PRETRAINED[name].revision, True)] * 2
    images = torch.randn(2, 3, 224, 224)
    with torch.no_grad():
        features = backbone(images)
        torch.testing.assert_close(features, pooled_by_hand(name, model, images))
    assert features.shape == (2, backbone.features) == (2, 16)
    assert float((features[0] - features[1]).abs().max()) > 1e-4


@pytest.mark.parametrize(("name", "size"), [("dinov2_small", (56, 112)), ("dinov3_small", (48, 112))])
def test_views_between_two_numbers_of_patches_are_enlarged_to_the_next(
    name: str, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_of(name)
    monkeypatch.setattr("transformers.AutoModel.from_pretrained", lambda *_, **__: model)
    backbone = build_backbone(name, image_size=224).eval()
    images = torch.randn(1, 3, 44, 100)
    enlarged = torch.nn.functional.interpolate(
        images, size, mode="bilinear", align_corners=False, antialias=True
    )
    with torch.no_grad():
        torch.testing.assert_close(backbone(images), pooled_by_hand(name, model, enlarged))


def test_settings_of_a_named_model_are_those_that_it_was_trained_with() -> None:
    def config_of(name: str) -> Any:
        overrides = {"freeze": True, "backbone": name}
        return resolve("photos", method="maskcon", preset="fast", overrides=overrides).config

    found = {name: (config_of(name).weights, config_of(name).normalise) for name in PRETRAINED}
    assert found["dinov2_small"] == found["dinov3_small"] == found["convnext_tiny"] == (None, "imagenet")
    assert found["siglip_base"] == (None, "backbone")
    assert found["efficientnet_lite0"] == found["efficientnet_lite2"] == ("imagenet", "backbone")
    assert found["mobilenet_v2"] == found["resnet50"] == ("imagenet", "imagenet")
    given = {"freeze": True, "backbone": "siglip_base", "normalise": "imagenet"}
    assert resolve("photos", method="maskcon", preset="fast", overrides=given).config.normalise == "imagenet"
    assert mean_and_std("siglip_base") == ((0.5,) * 3, (0.5,) * 3)
    mean, std = mean_and_std("efficientnet_lite0")
    for value in (0, 127, 255):  # as the published model reads bytes
        assert (value / 255 - mean[0]) / std[0] == pytest.approx((value - 127) / 128)


@pytest.mark.parametrize("name", ["siglip_base", "hf:google/siglip-base-patch16-224"])
@pytest.mark.parametrize("given", [{}, {"freeze": True}])
def test_a_model_of_the_hub_is_pretrained_by_either_name_frozen_or_not(
    name: str, given: dict[str, Any]
) -> None:
    overrides = given | {"backbone": name}
    for preset in ("fast", "reference"):
        config = resolve("photos", method="teachcon", preset=preset, overrides=overrides).config
        assert (config.weights, config.normalise, config.relation_space) == (None, "backbone", "features")
    assert view_size(name, 500) == 224
    assert mean_and_std(name) == ((0.5,) * 3, (0.5,) * 3)


def test_image_half_of_a_text_and_image_model_is_taken(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 16,
    }
    config = transformers.CLIPConfig(
        text_config={**sizes, "vocab_size": 20},
        vision_config={**sizes, "image_size": 16, "patch_size": 8},
        projection_dim=4,
    )
    transformers.AutoModel.from_config(config).save_pretrained(tmp_path)
    assert build_backbone(f"hf:{tmp_path}", image_size=32).features == 8


def test_absent_model_is_not_fetched_unless_asked(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    with pytest.raises(UsageError, match="--download"):
        build_backbone(f"hf:{tmp_path / 'absent'}", image_size=32)
    with pytest.raises(UsageError, match="lacks a model name"):
        build_backbone("hf:", image_size=32)


class WithUnusedPart(StandIn):
    def __init__(self) -> None:
        super().__init__("pooled")
        self.scale = nn.Parameter(torch.ones(1))
        self.mask_token = nn.Parameter(torch.ones(1))

    def forward(self, pixel_values: Tensor) -> SimpleNamespace:
        return super().forward(pixel_values * self.scale)


def test_parameters_that_features_do_not_depend_on_are_frozen_so_that_several_processes_do_not_wait() -> None:
    backbone = HuggingFaceBackbone("hf:x", WithUnusedPart(), image_size=8)
    trained = {name: value.requires_grad for name, value in backbone.named_parameters()}
    assert trained == {"model.scale": True, "model.mask_token": False}
    assert all(value.grad is None for value in backbone.parameters())


def stand_in_library(monkeypatch: pytest.MonkeyPatch, from_pretrained: Callable[..., Any]) -> None:
    library = types.ModuleType("transformers")
    library.AutoModel = SimpleNamespace(from_pretrained=from_pretrained)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "transformers", library)


def test_any_failure_to_load_a_model_is_one_line_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise SafetensorError("header too large\nat byte 8")

    stand_in_library(monkeypatch, fail)
    with pytest.raises(UsageError, match=r"cannot load 'hf:damaged': header too large; pass --download"):
        build_backbone("hf:damaged", image_size=32)
    with pytest.raises(
        UsageError, match=r"header too large; check the name, .*huggingface.co/damaged .*licence"
    ):
        build_backbone("hf:damaged", image_size=32, download=True)


def test_a_model_that_takes_no_images_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Text(StandIn):
        def forward(self, pixel_values: Tensor) -> SimpleNamespace:
            raise TypeError("missing input_ids")

    stand_in_library(monkeypatch, lambda *_, **__: Text("pooled"))
    with pytest.raises(UsageError, match=r"'hf:text' does not take images.*missing input_ids"):
        build_backbone("hf:text", image_size=32)
    stand_in_library(monkeypatch, lambda *_, **__: StandIn("pooled"))
    with pytest.raises(UsageError, match="takes 3 channels, the images have 4"):
        build_backbone("hf:x", image_size=32, in_channels=4)


def test_the_default_preset_trains_such_a_backbone_though_it_names_a_width_and_a_stem(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stand_in_library(monkeypatch, lambda *_, **__: StandIn("pooled"))
    overrides = {"backbone": "hf:x", "image_size": 32, "stem": "stride2"}  # as settled for the embedded set
    config = resolve("embedded", method="maskcon", preset="cpu", overrides=overrides).config
    assert config.width == 16
    assert build_encoder(config, in_channels=1).features == 6
