from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from maskcon._utils.errors import UsageError
from maskcon.models import MobileNetV2, build_backbone
from maskcon.models.mobilenet import STAGES
from maskcon.models.weights import load_weights

CLASSIFIER = 1280 * 1000 + 1000
IN_PUBLISHED_MODEL = 3_504_872  # parameters of width 1.0, with the classifier of 1,000 classes
ENTRIES = 312  # tensors of a published file without the classifier


def net(seed: int = 0, **arguments) -> MobileNetV2:
    """A net whose BatchNorm has statistics worth folding."""
    torch.manual_seed(seed)
    made = MobileNetV2(**arguments)
    for module in made.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, std=0.2)
            nn.init.normal_(module.running_mean, std=0.2)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
    return made.eval()


def published(state: dict[str, torch.Tensor], *, grouped: bool) -> dict[str, torch.Tensor]:
    """Our tensors under the names of published files, written out from the layout and not by `translate`."""
    names = {}
    for block, expansion in enumerate(
        [stage.expansion for stage in STAGES for _ in range(stage.blocks)], start=1
    ):
        places = (
            ["conv.0.0", "conv.0.1", "conv.1", "conv.2"]
            if expansion == 1
            else ["conv.0.0", "conv.0.1", "conv.1.0", "conv.1.1", "conv.2", "conv.3"]
        )
        plain = [f"conv.{place}" for place in (0, 1, 3, 4, 6, 7)]
        for ours, theirs in zip(places, plain, strict=False):
            names[f"layers.{block}.{ours}."] = f"features.{block}.{ours if grouped else theirs}."
    found = {}
    for name, value in state.items():
        prefix = next((old for old in names if name.startswith(old)), None)
        if prefix is None:
            found[name.replace("layers.", "features.", 1)] = value
        else:
            found[names[prefix] + name.removeprefix(prefix)] = value
    return found


def test_it_has_the_parameters_of_the_published_net():
    made = MobileNetV2()
    assert sum(p.numel() for p in made.parameters()) + CLASSIFIER == IN_PUBLISHED_MODEL
    state = made.state_dict()
    assert len(state) == ENTRIES
    shapes = {
        "layers.0.0.weight": (32, 3, 3, 3),
        "layers.1.conv.0.0.weight": (32, 1, 3, 3),
        "layers.1.conv.1.weight": (16, 32, 1, 1),
        "layers.2.conv.0.0.weight": (96, 16, 1, 1),
        "layers.2.conv.1.0.weight": (96, 1, 3, 3),
        "layers.17.conv.2.weight": (320, 960, 1, 1),
        "layers.18.0.weight": (1280, 320, 1, 1),
    }
    assert {name: tuple(state[name].shape) for name in shapes} == shapes


@pytest.mark.parametrize(("height", "width", "channels"), [(32, 32, 3), (96, 96, 1), (50, 71, 3), (1, 1, 3)])
def test_any_size_and_colour_gives_1280_features(height, width, channels):
    made = build_backbone("mobilenet_v2", image_size=96, in_channels=channels).eval()
    out = made(torch.rand(2, channels, height, width))
    assert out.shape == (2, 1280)
    assert bool(out.isfinite().all())


def test_blocks_add_their_input_exactly_where_shapes_allow():
    adds = [bool(getattr(layer, "adds_input", False)) for layer in MobileNetV2().layers]
    assert [number for number, added in enumerate(adds) if added] == [3, 5, 6, 8, 9, 10, 12, 13, 15, 16]


def test_width_and_stem_do_not_apply():
    made = build_backbone("mobilenet_v2", image_size=32, width=16, stem="small")
    assert [value.shape for value in made.state_dict().values()] == [
        value.shape for value in MobileNetV2().state_dict().values()
    ]


@pytest.mark.parametrize("grouped", [True, False])
@pytest.mark.parametrize("prefix", ["", "module."])
def test_published_weights_of_both_layouts_load(tmp_path, grouped, prefix):
    source = net(0)
    state = published(source.state_dict(), grouped=grouped)
    assert f"features.1.conv.{'0.0' if grouped else '0'}.weight" in state
    state["classifier.1.weight"] = torch.zeros(1000, 1280)
    torch.save({prefix + name: value for name, value in state.items()}, tmp_path / "weights.pth")
    target = net(1)
    load_weights(target, tmp_path / "weights.pth")
    assert all(
        torch.equal(a, b)
        for a, b in zip(source.state_dict().values(), target.state_dict().values(), strict=True)
    )


def test_a_grey_net_answers_grey_images_as_the_colour_net_does(tmp_path):
    colour, grey = net(0), net(1, in_channels=1)
    torch.save(published(colour.state_dict(), grouped=True), tmp_path / "weights.pt")
    notes = load_weights(grey, tmp_path / "weights.pt")
    assert any("summed over the colour channels" in note for note in notes)
    image = torch.rand(2, 1, 64, 64)
    torch.testing.assert_close(grey(image), colour(image.expand(-1, 3, -1, -1)), rtol=1e-4, atol=1e-4)


def test_a_file_that_lacks_a_layer_is_refused_and_changes_nothing(tmp_path):
    state = published(net(0).state_dict(), grouped=False)
    del state["features.7.conv.3.weight"]
    torch.save(state, tmp_path / "weights.pt")
    target = net(1)
    before = copy.deepcopy(target.state_dict())
    with pytest.raises(UsageError, match=r"1 missing \(layers\.7\.conv\.1\.0\.weight\)"):
        load_weights(target, tmp_path / "weights.pt")
    assert all(torch.equal(before[name], value) for name, value in target.state_dict().items())


def test_without_weight_the_levels_are_the_features():
    images = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(net().levels(images, 0.0), net()(images))
    assert net().level_features(0.0) == 1280


def test_levels_are_the_features_and_behind_them_the_means_of_two_earlier_maps():
    made, images, weight = net(), torch.rand(4, 3, 48, 40), 0.5
    seen: dict[int, torch.Tensor] = {}
    for number in (13, 16):
        made.layers[number].register_forward_hook(
            lambda _layer, _given, out, number=number: seen.update({number: out.mean(dim=(2, 3))})
        )
    with torch.no_grad():
        levels = made.levels(images, weight)
        parts = [made(images), seen[13], seen[16]]
    assert [part.shape[1] for part in parts] == [1280, 96, 160]
    assert levels.shape == (4, made.level_features(weight)) == (4, 1536)
    cosines = torch.stack([torch.cosine_similarity(part[:1], part) for part in parts])  # [3, 4]
    expected = (cosines * torch.tensor([1, weight**2, weight**2])[:, None]).sum(0) / (1 + 2 * weight**2)
    torch.testing.assert_close(torch.cosine_similarity(levels[:1], levels), expected, rtol=1e-5, atol=1e-5)
