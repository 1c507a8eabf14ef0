from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import ImageEnhance, ImageOps
from torch import Tensor

from maskcon.transforms import autoaugment as colour
from tests.transforms.oracles import from_pil, smooth_images, to_pil

PLAIN = {"invert": colour.invert, "autocontrast": colour.autocontrast, "equalize": colour.equalize}
ENHANCE = {
    "Brightness": colour.brightness,
    "Contrast": colour.contrast,
    "Color": colour.saturation,
    "Sharpness": colour.sharpness,
}


@st.composite
def image_batches(draw: st.DrawFn) -> Tensor:
    """Noise, few levels, flat and smooth images: what histogram code trips over."""
    channels = draw(st.sampled_from([1, 3]))
    height, width = draw(st.integers(1, 40)), draw(st.integers(1, 40))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    low = draw(st.integers(0, 255))
    high = draw(st.integers(low, 255))
    shape = (2, channels, height, width)
    noise = torch.randint(low, high + 1, shape, generator=generator, dtype=torch.int64)
    step = draw(st.sampled_from([1, 1, 17, 100]))
    return (noise // step * step).to(torch.uint8)


def oracle(images: Tensor, change) -> Tensor:
    return torch.stack([from_pil(change(to_pil(image), row)) for row, image in enumerate(images)])


@pytest.mark.parametrize("name", list(PLAIN))
@settings(max_examples=60, deadline=None)
@given(images=image_batches())
def test_plain_operation_equals_pil_exactly(name: str, images: Tensor) -> None:
    expected = oracle(images, lambda image, _: getattr(ImageOps, name)(image))
    assert torch.equal(PLAIN[name](images.float()), expected)


@pytest.mark.parametrize("name", list(ENHANCE))
@settings(max_examples=60, deadline=None)
@given(images=image_batches(), factors=st.lists(st.floats(0.0, 2.0, width=32), min_size=2, max_size=2))
def test_enhancement_equals_pil_exactly(name: str, images: Tensor, factors: list[float]) -> None:
    expected = oracle(images, lambda image, row: getattr(ImageEnhance, name)(image).enhance(factors[row]))
    assert torch.equal(ENHANCE[name](images.float(), torch.tensor(factors)), expected)


@settings(max_examples=40, deadline=None)
@given(images=image_batches(), bits=st.lists(st.integers(1, 8), min_size=2, max_size=2))
def test_posterize_equals_pil_exactly(images: Tensor, bits: list[int]) -> None:
    expected = oracle(images, lambda image, row: ImageOps.posterize(image, bits[row]))
    assert torch.equal(colour.posterize(images.float(), torch.tensor(bits)), expected)


@settings(max_examples=40, deadline=None)
@given(images=image_batches(), thresholds=st.lists(st.floats(0, 256, width=32), min_size=2, max_size=2))
def test_solarize_equals_pil_exactly(images: Tensor, thresholds: list[float]) -> None:
    expected = oracle(images, lambda image, row: ImageOps.solarize(image, thresholds[row]))
    assert torch.equal(colour.solarize(images.float(), torch.tensor(thresholds)), expected)


def test_luma_equals_pil_on_every_shade_of_a_colour_cube() -> None:
    levels = torch.arange(0, 256, 5, dtype=torch.uint8)
    cube = torch.cartesian_prod(levels, levels, levels).T.reshape(3, len(levels), -1)
    assert torch.equal(colour.luma(cube.float().unsqueeze(0))[0], from_pil(to_pil(cube).convert("L")))


def test_operations_leave_their_input_unchanged() -> None:
    images = smooth_images(3, 3, 9, 8).float()
    before = images.clone()
    for plain in PLAIN.values():
        plain(images)
    for enhance in ENHANCE.values():
        enhance(images, torch.tensor([0.3, 1.0, 1.7]))
    assert torch.equal(images, before)
