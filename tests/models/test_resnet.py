from __future__ import annotations

import pytest
import torch
from torch import nn

from maskcon._utils.errors import UsageError
from maskcon.models.backbones import backbone_names, build_backbone, resolve_stem
from maskcon.models.resnet import ARCHITECTURES, Block, ResNet

# Known from the published models, their 1000-class `fc` subtracted.
PUBLISHED_COUNTS = {"resnet18": 11_176_512, "resnet34": 21_284_672, "resnet50": 23_508_032}

PUBLISHED_SHAPES = {
    "resnet18": {
        "conv1.weight": (64, 3, 7, 7),
        "bn1.running_var": (64,),
        "layer1.0.conv1.weight": (64, 64, 3, 3),
        "layer1.1.bn2.bias": (64,),
        "layer2.0.conv1.weight": (128, 64, 3, 3),
        "layer2.0.downsample.0.weight": (128, 64, 1, 1),
        "layer2.0.downsample.1.running_mean": (128,),
        "layer4.1.conv2.weight": (512, 512, 3, 3),
        "layer4.1.bn2.num_batches_tracked": (),
    },
    "resnet34": {
        "layer1.2.conv2.weight": (64, 64, 3, 3),
        "layer3.5.bn1.weight": (256,),
        "layer4.2.conv2.weight": (512, 512, 3, 3),
    },
    "resnet50": {
        "layer1.0.conv1.weight": (64, 64, 1, 1),
        "layer1.0.downsample.0.weight": (256, 64, 1, 1),
        "layer2.0.conv2.weight": (128, 128, 3, 3),
        "layer3.5.conv3.weight": (1024, 256, 1, 1),
        "layer4.0.downsample.0.weight": (2048, 1024, 1, 1),
        "layer4.2.bn3.bias": (2048,),
    },
}
PUBLISHED_ENTRIES = {"resnet18": 120, "resnet34": 216, "resnet50": 318}


def small(name: str = "resnet8", **settings: object) -> ResNet:
    torch.manual_seed(0)
    return ResNet(name, **{"width": 8, "stem": "small", **settings})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", sorted(PUBLISHED_COUNTS))
def test_parameter_count_equals_published_model(name: str) -> None:
    net = build_backbone(name, image_size=224)
    assert sum(parameter.numel() for parameter in net.parameters()) == PUBLISHED_COUNTS[name]


@pytest.mark.parametrize("name", sorted(PUBLISHED_COUNTS))
def test_names_and_shapes_equal_published_file(name: str) -> None:
    with torch.device("meta"):
        state = build_backbone(name, image_size=224).state_dict()
    assert {key: tuple(state[key].shape) for key in PUBLISHED_SHAPES[name]} == PUBLISHED_SHAPES[name]
    assert len(state) == PUBLISHED_ENTRIES[name]
    assert not any(key.startswith("fc") for key in state)
    # The first stage of a basic net has no shortcut convolution, that of a bottleneck net has one.
    assert ("layer1.0.downsample.0.weight" in state) == (name == "resnet50")


def test_bottleneck_strides_on_its_3x3() -> None:
    block = ResNet("resnet50", width=8).get_submodule("layer2.0")
    assert isinstance(block, Block)
    assert block.conv1.stride == (1, 1)
    assert block.conv2.stride == (2, 2)


@pytest.mark.parametrize("image_size", [28, 32, 64, 224])
@pytest.mark.parametrize("in_channels", [1, 3])
def test_output_is_one_row_of_features_an_image(image_size: int, in_channels: int) -> None:
    net = build_backbone("resnet18", image_size=image_size, in_channels=in_channels, width=8)
    assert net.features == 64
    assert net(torch.zeros(2, in_channels, image_size, image_size)).shape == (2, 64)


@pytest.mark.parametrize("name", list(ARCHITECTURES))
@pytest.mark.parametrize("stem", ["small", "imagenet", "stride2"])
def test_every_architecture_and_stem_tells_its_feature_size(name: str, stem: str) -> None:
    net = build_backbone(name, image_size=32, width=16, stem=stem)  # type: ignore[arg-type]
    stages = len(ARCHITECTURES[name].blocks)
    expansion = 4 if ARCHITECTURES[name].bottleneck else 1
    assert net.features == 16 * 2 ** (stages - 1) * expansion
    assert net(torch.zeros(2, 3, 32, 32)).shape == (2, net.features)


@pytest.mark.parametrize(("stem", "side"), [("small", 32), ("stride2", 16), ("imagenet", 8)])
def test_stem_leaves_the_stated_map_size(stem: str, side: int) -> None:
    net = small(stem=stem)
    shapes: list[torch.Size] = []
    net.get_submodule("layer1").register_forward_pre_hook(lambda _, inputs: shapes.append(inputs[0].shape))
    net(torch.zeros(1, 3, 32, 32))
    assert shapes == [(1, 8, side, side)]


def test_auto_stem_is_small_up_to_64_pixels() -> None:
    assert [resolve_stem("auto", size) for size in (28, 64, 65, 224)] == [
        "small",
        "small",
        "imagenet",
        "imagenet",
    ]


def test_basic_block_matches_functional_oracle() -> None:
    torch.manual_seed(0)
    block = Block(4, 6, 2).eval()
    for layer in block.modules():
        if isinstance(layer, nn.BatchNorm2d):
            nn.init.normal_(layer.running_mean)
            nn.init.uniform_(layer.running_var, 0.5, 2.0)
    state = block.state_dict()

    def normalised(maps: torch.Tensor, prefix: str) -> torch.Tensor:
        mean, variance = state[f"{prefix}.running_mean"], state[f"{prefix}.running_var"]
        scale = state[f"{prefix}.weight"] / (variance + 1e-5).sqrt()
        return (maps - mean[:, None, None]) * scale[:, None, None] + state[f"{prefix}.bias"][:, None, None]

    maps = torch.randn(2, 4, 8, 8)
    convolve = nn.functional.conv2d
    inner = normalised(convolve(maps, state["conv1.weight"], stride=2, padding=1), "bn1").relu()
    inner = normalised(convolve(inner, state["conv2.weight"], padding=1), "bn2")
    shortcut = normalised(convolve(maps, state["downsample.0.weight"], stride=2), "downsample.1")
    torch.testing.assert_close(block(maps), (inner + shortcut).relu())


@pytest.mark.parametrize("name", ["resnet8", "resnet50"])
def test_channels_last_gives_the_same_features_and_gradients(name: str) -> None:
    # In float64 the two orders of summation agree closely enough to tell a wrong layout from rounding.
    net = small(name).double()
    other = small(name).double().to(memory_format=torch.channels_last)
    images = torch.randn(4, 3, 32, 32, dtype=torch.float64)
    expected = net(images)
    actual = other(images.to(memory_format=torch.channels_last))
    torch.testing.assert_close(actual, expected)
    expected.square().sum().backward()
    actual.square().sum().backward()
    torch.testing.assert_close(other.conv1.weight.grad, net.conv1.weight.grad)


def test_convolutions_start_at_kaiming_fan_out_scale() -> None:
    weight = small("resnet18", width=32).get_submodule("layer4.0.conv1").weight
    assert isinstance(weight, torch.Tensor)
    assert weight.std().item() == pytest.approx((2 / (256 * 9)) ** 0.5, rel=0.01)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "resnet81"}, "did you mean 'resnet8'"),
        ({"name": "vgg"}, "known: resnet6"),
        ({"stem": "smal"}, "did you mean 'small'"),
        ({"width": 0}, "width=0"),
        ({"in_channels": 0}, "in_channels=0"),
        ({"image_size": 0}, "image_size=0"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        build_backbone(**{"name": "resnet8", "image_size": 32, **settings})  # type: ignore[arg-type]


def test_all_names_are_listed() -> None:
    assert {"resnet10", "resnet18", "resnet34", "resnet50"} <= set(backbone_names())
