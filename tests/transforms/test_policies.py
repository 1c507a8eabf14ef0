from __future__ import annotations

import doctest

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import maskcon.transforms as views
import maskcon.transforms.policies
from maskcon._utils.errors import UsageError
from maskcon.transforms.operations import Affine, Perspective
from maskcon.transforms.policies import FAMILIES, POLICIES, ViewPolicy
from maskcon.transforms.resample import RandomCrop
from tests.transforms.oracles import crop_and_mirror, from_pil, smooth_images

NAMES = list(POLICIES)


def table(policy: views.Policy, batch: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(batch, policy.draws, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shape", [(32, 32), (40, 56)])
def test_weak_cifar_view_matches_pil_oracle_from_the_same_row(shape: tuple[int, int]) -> None:
    weak = views.policy("cifar-weak")
    images = smooth_images(40, 3, *shape)
    uniforms = table(weak, 40)
    found = weak(images, uniforms, size=32) * 255
    for row in range(40):
        expected = from_pil(crop_and_mirror(images[row], uniforms[row], 32))
        assert (found[row] - expected).abs().max() <= 1.01


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("canvas", [(32, 32), (48, 60)])
def test_a_view_does_not_depend_on_the_rest_of_the_batch(name: str, canvas: tuple[int, int]) -> None:
    policy = views.policy(name)
    images, uniforms = smooth_images(24, 3, *canvas), table(policy, 24, seed=1)
    whole = policy(images, uniforms, size=32)
    single = torch.cat([policy(images[row, None], uniforms[row, None], size=32) for row in range(24)])
    assert (whole - single).abs().max() < 1e-6
    halves = torch.cat([policy(images[:9], uniforms[:9], size=32), policy(images[9:], uniforms[9:], size=32)])
    assert (whole - halves).abs().max() < 1e-6


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=12, deadline=None)
@given(
    channels=st.sampled_from([1, 3]),
    height=st.integers(1, 40),
    width=st.integers(1, 40),
    size=st.integers(1, 40),
    seed=st.integers(0, 10**6),
)
def test_views_are_finite_and_in_range_for_any_shape(
    name: str, channels: int, height: int, width: int, size: int, seed: int
) -> None:
    policy = views.policy(name)
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (6, channels, height, width), generator=generator, dtype=torch.uint8)
    found = policy(images, table(policy, 6, seed), size=size)
    assert found.shape == (6, channels, size, size)
    assert found.dtype == torch.float32
    assert found.isfinite().all()
    assert found.min() >= 0
    assert found.max() <= 1


@pytest.mark.parametrize("name", NAMES)
def test_pixels_outside_the_valid_size_never_leak_in(name: str) -> None:
    policy = views.policy(name)
    images = smooth_images(32, 3, 40, 44)
    sizes = torch.stack([torch.randint(1, 41, (32,)), torch.randint(1, 45, (32,))], dim=1)
    uniforms = table(policy, 32)
    results = []
    for sentinel in (0, 255):
        filled = images.clone()
        for row, (height, width) in enumerate(sizes.tolist()):
            filled[row, :, height:] = sentinel
            filled[row, :, :, width:] = sentinel
        results.append(policy(filled, uniforms, size=24, sizes=sizes))
    assert torch.equal(*results)


@pytest.mark.parametrize("name", NAMES)
def test_a_padded_image_gives_the_view_of_the_image_alone(name: str) -> None:
    policy = views.policy(name)
    image = smooth_images(1, 3, 21, 33)
    canvas = torch.zeros(1, 3, 50, 40, dtype=torch.uint8)
    canvas[:, :, :21, :33] = image
    uniforms = table(policy, 1, seed=3)
    alone = policy(image, uniforms, size=40)
    padded = policy(canvas, uniforms, size=40, sizes=torch.tensor([[21, 33]]))
    assert (alone - padded).abs().max() < 1e-4


@pytest.mark.parametrize("name", NAMES)
def test_float_and_byte_images_give_the_same_view(name: str) -> None:
    policy = views.policy(name)
    images, uniforms = smooth_images(8, 3, 32, 32), table(policy, 8)
    floats = images.float() / 255
    before = floats.clone()
    difference = (policy(images, uniforms, size=32) - policy(floats, uniforms, size=32)).abs()
    assert (difference > 1e-4).float().mean() < 1e-3  # a level on the edge of rounding may fall either way
    assert torch.equal(floats, before)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "identity"])
def test_the_same_table_repeats_the_views_and_another_changes_them(name: str) -> None:
    policy = views.policy(name)
    images = smooth_images(1, 3, 32, 32).expand(30, -1, -1, -1)
    first = policy(images, table(policy, 30), size=32)
    torch.manual_seed(123)  # the global generator must have no say, nor be moved
    before = torch.get_rng_state()
    assert torch.equal(first, policy(images, table(policy, 30), size=32))
    assert torch.equal(before, torch.get_rng_state())
    assert first.flatten(1).unique(dim=0).shape[0] == 30  # each sample has draws of its own
    assert not torch.equal(first, policy(images, table(policy, 30, seed=1), size=32))


def test_half_of_the_views_are_mirrored() -> None:
    ramp = torch.arange(32, dtype=torch.uint8).mul(8).view(1, 1, 1, 32).expand(3000, 1, 32, 32)
    weak = views.policy("cifar-weak")
    found = weak(ramp, table(weak, 3000), size=8)
    assert abs((found[:, 0, 0, 0] > found[:, 0, 0, -1]).float().mean() - 0.5) < 0.03


def test_every_uniform_of_a_policy_is_used() -> None:
    """A column that nothing reads would mean that two choices share another one."""
    images = smooth_images(64, 3, 32, 32)
    for name in NAMES:
        policy = views.policy(name)
        base = table(policy, 64)
        base[:, :2] = base[:, :2] * 0.2 + 0.4
        for column in range(policy.draws):
            plain = views.policy(name)
            if isinstance(plain, ViewPolicy) and 2 <= column < 20 and isinstance(plain.crop, RandomCrop):
                continue  # later attempts at a crop matter only where the first does not fit
            moved = base.clone()
            moved[:, column] = (moved[:, column] + 0.5) % 1
            assert not torch.equal(policy(images, base, size=32), policy(images, moved, size=32)), (
                name,
                column,
            )


def test_test_view_of_a_square_at_its_own_size_is_the_image() -> None:
    images = smooth_images(2, 3, 32, 32)
    for resize in ("shorter", "both"):
        assert torch.allclose(views.test_view(images, size=32, resize=resize), images / 255, atol=1e-6)
    identity = views.policy("identity")
    assert torch.equal(identity(images, torch.zeros(2, 0), size=32), views.test_view(images, size=32))


def test_test_view_keeps_or_changes_the_aspect_as_asked() -> None:
    images = torch.zeros(1, 1, 30, 60, dtype=torch.uint8)
    images[..., :12] = 255  # a bar at the left, outside the central square
    assert views.test_view(images, size=30).max() == 0
    assert views.test_view(images, size=30, resize="both")[0, 0, 0, 0] == 1
    sizes = torch.tensor([[30, 30]])  # the valid part now has the bar inside
    assert views.test_view(images, size=30, sizes=sizes)[0, 0, 0, 0] == 1


def test_normalise_is_per_channel_and_takes_tensors_or_lists() -> None:
    batch = torch.rand(2, 3, 4, 4)
    mean, std = [0.1, 0.2, 0.3], [0.5, 0.6, 0.7]
    found = views.normalise(batch, mean, std)
    for channel in range(3):
        expected = (batch[:, channel] - mean[channel]) / std[channel]
        assert torch.allclose(found[:, channel], expected)
    assert torch.equal(found, views.normalise(batch, torch.tensor(mean), torch.tensor(std).view(3, 1, 1)))


@pytest.mark.parametrize("family", FAMILIES)
def test_pair_is_weak_then_strong(family: str) -> None:
    weak, strong = views.pair(family)
    assert (weak.name, strong.name) == (f"{family}-weak", f"{family}-strong")
    assert isinstance(weak, views.Policy)
    assert strong.draws >= weak.draws


@pytest.mark.parametrize("family", FAMILIES)
def test_weak_and_strong_are_those_of_the_datas_kind(family: str) -> None:
    assert tuple(views.name_for(strength, family) for strength in ("weak", "strong")) == tuple(
        policy.name for policy in views.pair(family)
    )
    assert views.name_for("cars-weak", family) == "cars-weak"
    with pytest.raises(UsageError, match="did you mean 'weak'"):
        views.name_for("wek", family)
    with pytest.raises(UsageError, match="view family"):
        views.name_for("weak", family + "x")


def test_an_empty_batch_gives_an_empty_batch() -> None:
    for name in NAMES:
        policy = views.policy(name)
        images = torch.zeros(0, 3, 8, 8, dtype=torch.uint8)
        assert policy(images, torch.zeros(0, policy.draws), size=4).shape == (0, 3, 4, 4)


def test_the_examples_in_docstrings_run() -> None:
    result = doctest.testmod(maskcon.transforms.policies)
    assert result.attempted >= 4
    assert result.failed == 0


def test_views_are_float32_whatever_the_default_is() -> None:
    images = smooth_images(2, 3, 8, 8)
    weak = views.policy("products-weak")
    uniforms = table(weak, 2)
    torch.set_default_dtype(torch.float64)
    try:
        assert weak(images, uniforms, size=8).dtype == torch.float32
    finally:
        torch.set_default_dtype(torch.float32)


def test_misuse_is_explained() -> None:
    weak = views.policy("cifar-weak")
    images = torch.zeros(2, 3, 8, 8, dtype=torch.uint8)
    good = torch.zeros(2, weak.draws)
    with pytest.raises(UsageError, match="did you mean 'cifar-weak'"):
        views.policy("cifar-week")
    with pytest.raises(UsageError, match="did you mean 'cars'"):
        views.pair("car")
    with pytest.raises(UsageError, match=r"needs uniforms of shape \(2, 23\)"):
        weak(images, torch.zeros(2, 5), size=8)
    with pytest.raises(UsageError, match=r"in float32, got .* in torch\.float64"):
        weak(images, good.double(), size=8)
    with pytest.raises(UsageError, match="1 or 3"):
        weak(images[:, :2], good, size=8)
    with pytest.raises(UsageError, match="uint8 or float"):
        weak(images.long(), good, size=8)
    for wrong in ([9, 8], [8, 0]):
        with pytest.raises(
            UsageError, match=rf"between 1 and the canvas 8 x 8, got \[{wrong[0]}, {wrong[1]}\]"
        ):
            weak(images, good, size=8, sizes=torch.tensor([[8, 8], wrong]))
    with pytest.raises(UsageError, match=r"sizes must be \[2, 2\]"):
        weak(images, good, size=8, sizes=torch.tensor([8, 8]))
    with pytest.raises(UsageError, match="size=0"):
        weak(images, good, size=0)
    with pytest.raises(UsageError, match="shorter"):
        views.test_view(images, size=8, resize="shortest")
    with pytest.raises(UsageError, match="3 channels"):
        views.normalise(torch.zeros(1, 3, 2, 2), [0.5], [0.5])
    with pytest.raises(UsageError, match="more than one warping"):
        ViewPolicy("odd", RandomCrop(), operations=(Perspective(), Affine()))
