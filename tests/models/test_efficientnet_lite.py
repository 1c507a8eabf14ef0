from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from maskcon._utils.errors import UsageError
from maskcon.models import EfficientNetLite, build_backbone
from maskcon.models.mobilenet import SameConv2d
from maskcon.models.weights import load_weights

NAMES = ("efficientnet_lite0", "efficientnet_lite2")
IN_PUBLISHED_MODEL = {"efficientnet_lite0": 4_652_008, "efficientnet_lite2": 6_092_072}  # with 1,000 classes
ENTRIES = {"efficientnet_lite0": 296, "efficientnet_lite2": 386}  # with weight and bias of the classifier
CLASSIFIER = 1280 * 1000 + 1000
# stride of the first block of each stage, its kernel, and blocks per stage: the published table, written out
STRIDES, KERNELS = (1, 2, 2, 2, 1, 2, 1), (3, 3, 5, 3, 5, 5, 3)
BLOCKS = {"efficientnet_lite0": (1, 2, 2, 3, 3, 4, 1), "efficientnet_lite2": (1, 3, 3, 4, 4, 5, 1)}


def net(name: str = "efficientnet_lite0", seed: int = 0, **arguments) -> EfficientNetLite:
    """A net whose BatchNorm has statistics worth folding."""
    torch.manual_seed(seed)
    made = EfficientNetLite(name, **arguments)
    for module in made.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, std=0.2)
            nn.init.normal_(module.running_mean, std=0.2)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
    return made.eval()


def published(made: EfficientNetLite) -> dict[str, Tensor]:
    """Our tensors under the names of published files, paired by the order of layers and not by `translate`."""
    modules = ["_conv_stem", "_bn0"]
    for block in range(sum(BLOCKS[made.name])):
        widen = [] if block == 0 else ["_expand_conv", "_bn0"]
        layers = [*widen, "_depthwise_conv", "_bn1", "_project_conv", "_bn2"]
        modules += [f"_blocks.{block}.{layer}" for layer in layers]
    modules += ["_conv_head", "_bn1"]
    ours = [module for module in made.modules() if isinstance(module, nn.Conv2d | nn.BatchNorm2d)]
    return {
        f"{name}.{key}": value
        for name, module in zip(modules, ours, strict=True)
        for key, value in module.state_dict().items()
    }


def same_padding(images: Tensor, kernel: int, stride: int) -> Tensor:
    """Pad with zeros so that ceil(size / stride) windows fit, one row and one column at a time, the far side first."""
    for dim in (2, 3):
        windows = -(-images.shape[dim] // stride)
        far = True
        while (images.shape[dim] - kernel) // stride + 1 < windows or images.shape[dim] < kernel:
            shape = list(images.shape)
            shape[dim] = 1
            line = torch.zeros(shape)
            images = torch.cat([images, line] if far else [line, images], dim=dim)
            far = not far
    return images


def forward_by_hand(state: dict[str, Tensor], name: str, images: Tensor) -> Tensor:
    """Features by the published names, from plain functions: what the published model computes."""

    def layer(
        maps: Tensor, conv: str, norm: str, *, kernel: int, stride: int = 1, relu: bool = True
    ) -> Tensor:
        weight = state[f"{conv}.weight"]
        groups = maps.shape[1] if weight.shape[1] == 1 and maps.shape[1] > 1 else 1
        maps = F.conv2d(same_padding(maps, kernel, stride), weight, stride=stride, groups=groups)
        fields = ("running_mean", "running_var", "weight", "bias")
        mean, variance, scale, shift = (state[f"{norm}.{field}"][:, None, None] for field in fields)
        maps = (maps - mean) / (variance + 1e-3).sqrt() * scale + shift
        return maps.clamp(0, 6) if relu else maps

    maps = layer(images, "_conv_stem", "_bn0", kernel=3, stride=2)
    block = 0
    for stage, count in enumerate(BLOCKS[name]):
        for position in range(count):
            here, kernel = f"_blocks.{block}.", KERNELS[stage]
            stride = STRIDES[stage] if position == 0 else 1
            inner = maps if block == 0 else layer(maps, f"{here}_expand_conv", f"{here}_bn0", kernel=1)
            inner = layer(inner, f"{here}_depthwise_conv", f"{here}_bn1", kernel=kernel, stride=stride)
            inner = layer(inner, f"{here}_project_conv", f"{here}_bn2", kernel=1, relu=False)
            maps = maps + inner if position > 0 else inner
            block += 1
    return layer(maps, "_conv_head", "_bn1", kernel=1).mean(dim=(2, 3))


@pytest.mark.parametrize("name", NAMES)
def test_it_has_the_parameters_and_tensors_of_the_published_net(name):
    made = EfficientNetLite(name)
    assert sum(p.numel() for p in made.parameters()) + CLASSIFIER == IN_PUBLISHED_MODEL[name]
    assert len(published(made)) + 2 == ENTRIES[name]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(64, 64), (45, 70), (33, 32)])
def test_it_computes_what_the_published_layers_do_by_hand(name, shape):
    made, images = net(name), torch.randn(2, 3, *shape)
    with torch.no_grad():
        expected = forward_by_hand(published(made), name, images)
        torch.testing.assert_close(made(images), expected, rtol=1e-4, atol=1e-5)
    assert expected.std() > 1e-3


@pytest.mark.parametrize("kernel", [3, 5])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("shape", [(7, 8), (8, 7), (1, 2), (5, 5)])
def test_same_padding_puts_the_odd_pixel_on_the_far_side(kernel, stride, shape):
    torch.manual_seed(0)
    layer, images = SameConv2d(2, 3, kernel, stride, bias=False), torch.randn(1, 2, *shape)
    expected = F.conv2d(same_padding(images, kernel, stride), layer.weight, stride=stride)
    with torch.no_grad():
        torch.testing.assert_close(layer(images), expected)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("prefix", ["", "module."])
def test_published_weights_load(tmp_path, name, prefix):
    source, target = net(name), net(name, seed=1)
    state = published(source) | {"_fc.weight": torch.zeros(1000, 1280), "_fc.bias": torch.zeros(1000)}
    torch.save({prefix + key: value for key, value in state.items()}, tmp_path / "weights.pth")
    load_weights(target, tmp_path / "weights.pth", whole=True)
    for ours, theirs in zip(source.state_dict().values(), target.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [("_blocks.5._bn1.bias", r"1 missing \(layers\.6\.conv\.1\.1\.bias\)"), ("", r"1 unexpected \(extra\)")],
)
def test_a_file_with_a_missing_or_further_tensor_is_refused_and_changes_nothing(tmp_path, change, complaint):
    state = published(net())
    if change:
        del state[change]
    else:
        state["extra"] = torch.zeros(1)
    torch.save(state, tmp_path / "weights.pt")
    target = net(seed=1)
    before = copy.deepcopy(target.state_dict())
    with pytest.raises(UsageError, match=complaint):
        load_weights(target, tmp_path / "weights.pt")
    assert all(torch.equal(before[name], value) for name, value in target.state_dict().items())


def test_a_grey_net_answers_grey_images_as_the_colour_net_does(tmp_path):
    colour, grey = net(), net(seed=1, in_channels=1)
    torch.save(published(colour), tmp_path / "weights.pt")
    load_weights(grey, tmp_path / "weights.pt")
    image = torch.rand(2, 1, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(grey(image), colour(image.expand(-1, 3, -1, -1)), rtol=1e-4, atol=1e-4)


def test_levels_are_the_features_and_the_means_of_the_ends_of_two_stages():
    made, images, weight = net(), torch.rand(3, 3, 48, 40), 0.5
    seen: dict[int, Tensor] = {}
    for number in (11, 15):
        made.layers[number].register_forward_hook(
            lambda _layer, _given, out, number=number: seen.update({number: out.mean(dim=(2, 3))})
        )
    with torch.no_grad():
        levels = made.levels(images, weight)
        parts = [made(images), seen[11], seen[15]]
    assert [part.shape[1] for part in parts] == [1280, 112, 192]
    expected = [F.normalize(part, dim=1) * factor for part, factor in zip(parts, (1, 0.5, 0.5), strict=True)]
    torch.testing.assert_close(levels, torch.cat(expected, dim=1))
    assert levels.shape[1] == made.level_features(weight)


def test_it_is_built_by_name_and_another_one_is_refused():
    made = build_backbone("efficientnet_lite2", image_size=96, in_channels=1, width=16, stem="small")
    assert (made.name, made.in_channels, made.features) == ("efficientnet_lite2", 1, 1280)
    with pytest.raises(UsageError, match="efficientnet_lite1"):
        EfficientNetLite("efficientnet_lite1")
