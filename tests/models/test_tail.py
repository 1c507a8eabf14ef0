"""The last stages of a net, on the maps before them, are the net."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from maskcon._utils.errors import UsageError
from maskcon.models import Backbone, FeatureHead, Tail, build_backbone, for_inference, inference

NETS = ["mobilenet_v2", "efficientnet_lite0", "efficientnet_lite2", "resnet6", "resnet18", "resnet50"]


def net(name: str, size: int, in_channels: int = 3) -> Backbone:
    """A net in evaluation mode whose BatchNorm has statistics of its own."""
    torch.manual_seed(0)
    made = build_backbone(name, image_size=size, in_channels=in_channels, width=16)
    for module in made.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 1.0, 3.0)
            nn.init.normal_(module.bias, std=0.3)
            nn.init.normal_(module.running_mean, std=0.2)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
    return made.eval()


def assert_same(found: torch.Tensor, expected: torch.Tensor) -> None:
    """Rows that differ by 1e-5 of their length at most."""
    assert found.shape == expected.shape
    difference = (found - expected).norm(dim=1) / expected.norm(dim=1)
    assert float(difference.max()) < 1e-5


def by_hooks(made: Backbone, images: torch.Tensor, thaw: int) -> torch.Tensor:
    """What the last stages read, seen from outside: what their first layer is given, and means of earlier maps."""
    stages = made.stages()
    seen: dict[str, torch.Tensor] = {}
    first = stages[len(stages) - thaw][0]
    hooks = [first.register_forward_pre_hook(lambda _layer, given: seen.update(cut=given[0].clone()))]
    before = [number for number in made.earlier_stages if number < len(stages) - thaw]
    for number in before:
        hooks.append(
            stages[number][-1].register_forward_hook(
                lambda _layer, _given, out, number=number: seen.update({str(number): out.mean(dim=(2, 3))})
            )
        )
    made(images)
    for hook in hooks:
        hook.remove()
    return torch.cat([*(seen[str(number)] for number in before), seen["cut"].movedim(1, -1).flatten(1)], 1)


@torch.no_grad()
@pytest.mark.parametrize("size", [32, 45, 65])
@pytest.mark.parametrize("name", NETS)
def test_every_tail_gives_what_the_whole_net_gives(name, size):
    made, images = net(name, size), torch.randn(2, 3, size, size)
    weight = 0.5 if made.earlier_features else 0.0
    whole = made.levels(images, weight)
    for thaw in range(1, len(made.stages())):
        rows = made.levels(images, weight, thaw)
        tail = Tail(made, thaw, size)
        assert rows.shape[1] == made.level_features(weight) + tail.in_channels
        levels, read = rows.split([made.level_features(weight), tail.in_channels], dim=1)
        assert_same(levels, whole)
        assert_same(read, by_hooks(made, images, thaw))
        for given in (read, read[:, :, None, None]):
            assert_same(tail.levels(given, weight), whole)
        assert_same(tail(read), made(images))
    assert float((whole[0] - whole[1]).norm() / whole[0].norm()) > 1e-3


@torch.inference_mode()
@pytest.mark.parametrize("engine", ["torch", "onnxruntime"])
@pytest.mark.parametrize("name", ["mobilenet_v2", "efficientnet_lite0", "resnet18"])
def test_maps_of_both_engines_are_those_of_the_net(name, engine, monkeypatch):
    if engine == "torch":
        monkeypatch.setattr(inference, "find_spec", lambda _name: None)
    else:
        pytest.importorskip("onnx")
        pytest.importorskip("onnxruntime")
    made, images = net(name, 45, in_channels=1), torch.randn(2, 1, 45, 45)
    weight = 0.5 if made.earlier_features else 0.0
    for thaw in (1, 2, 3):
        found = for_inference(made, thaw=thaw).levels(images, weight, thaw)
        assert_same(found, made.levels(images, weight, thaw))


@torch.no_grad()
@pytest.mark.parametrize("name", ["mobilenet_v2", "resnet18"])
def test_a_learnt_tail_is_put_back_into_its_net_and_nothing_else_changes(name):
    made, images = net(name, 40), torch.randn(2, 3, 40, 40)
    tail, before = Tail(made, 2, 40), copy.deepcopy(made.state_dict())
    read = made.levels(images, 0.0, 2)[:, made.features :]
    for parameter in tail.parameters():
        parameter.mul_(1.1)
    learnt = tail(read)
    assert not torch.allclose(learnt, made(images), rtol=1e-2)  # a copy, so the net is as it was
    assert all(torch.equal(before[key], value) for key, value in made.state_dict().items())
    tail.copy_into(made)
    assert_same(made(images), learnt)
    changed = {key for key, value in made.state_dict().items() if not torch.equal(before[key], value)}
    assert len(changed) == len(list(tail.parameters()))


@pytest.mark.parametrize("thaw", [-1, 0, 7])
def test_one_stage_at_least_learns_and_one_stays_frozen(thaw):
    with pytest.raises(UsageError, match=rf"thaw={thaw} .*mobilenet_v2 has 6 stages.*choose 1 to 6"):
        Tail(net("mobilenet_v2", 32), thaw, 32)


def test_a_net_of_unknown_stages_is_refused():
    with pytest.raises(
        UsageError,
        match=r"thaw=1 .*: head is not split into stages; choose another backbone, or leave it out",
    ):
        Tail(FeatureHead(4), 1, 32)
