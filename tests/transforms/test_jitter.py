from __future__ import annotations

import colorsys
import itertools

import pytest
import torch
from PIL import ImageFilter

from maskcon.transforms.jitter import (
    ColourJitter,
    GaussianBlur,
    Greyscale,
    RandomErasing,
    ToneJitter,
    shift_hue,
)
from tests.transforms.oracles import from_pil, smooth_images, to_pil


def loop_hue(image: torch.Tensor, turn: float) -> torch.Tensor:
    """Hue by the standard library, pixel by pixel: float [3, H, W] on 0..255."""
    changed = image.clone()
    for y, x in itertools.product(range(image.shape[1]), range(image.shape[2])):
        hue, saturation, value = colorsys.rgb_to_hsv(*(image[:, y, x] / 255).tolist())
        changed[:, y, x] = torch.tensor(colorsys.hsv_to_rgb((hue + turn) % 1.0, saturation, value)) * 255
    return changed


def loop_jitter(image: torch.Tensor, order: tuple[int, ...], amounts: list[float]) -> torch.Tensor:
    """The four changes of one image, in the given order, as torchvision documents them."""
    for operation in order:
        weights = torch.tensor([0.299, 0.587, 0.114]).view(3, 1, 1)
        luma = (image * weights).sum(dim=0, keepdim=True)
        if operation == 3:
            image = loop_hue(image, amounts[3])
            continue
        base = [torch.zeros(1), luma.mean(), luma][operation]
        image = (amounts[operation] * image + (1 - amounts[operation]) * base).clamp(0, 255)
    return image


def test_hue_shift_matches_the_standard_library() -> None:
    images = smooth_images(3, 3, 6, 7).float()
    images[0, :, 0, 0] = 90.0  # a grey pixel has no hue
    images[0, :, 0, 1] = torch.tensor([200.0, 200.0, 10.0])  # two channels share the maximum
    turns = torch.tensor([0.1, -0.07, 0.5])
    found = shift_hue(images, turns)
    for row, turn in enumerate(turns.tolist()):
        assert (found[row] - loop_hue(images[row], turn)).abs().max() < 0.02


def test_jitter_matches_loop_oracle_in_every_order() -> None:
    operation = ColourJitter(0.4, 0.4, 0.4, 0.1, probability=1.0)
    orders = list(itertools.permutations(range(4)))
    uniforms = torch.rand(24, operation.draws, generator=torch.Generator().manual_seed(2))
    uniforms[:, 1] = (torch.arange(24) + 0.5) / 24
    images = smooth_images(24, 3, 5, 5).float()
    found = operation.recolour(images.clone(), uniforms)
    for row, order in enumerate(orders):
        first = [0.6 + 0.8 * value for value in uniforms[row, 2:5].tolist()]
        amounts = [*first, -0.1 + 0.2 * uniforms[row, 5].item()]
        assert (found[row] - loop_jitter(images[row], order, amounts)).abs().max() < 0.05


def test_jitter_spares_a_fifth_of_the_samples() -> None:
    operation = ColourJitter()
    images = smooth_images(1, 3, 4, 4).float().expand(2000, -1, -1, -1).clone()
    found = operation.recolour(
        images.clone(), torch.rand(2000, 6, generator=torch.Generator().manual_seed(0))
    )
    same = (found == images).flatten(1).all(dim=1).float().mean()
    assert abs(same - 0.2) < 0.03


def test_grey_images_keep_one_channel_and_ignore_colour() -> None:
    images = smooth_images(8, 1, 6, 6).float()
    uniforms = torch.zeros(8, 6)
    uniforms[:, 2:4] = 0.5  # brightness and contrast factor 1; saturation and hue at their extremes
    found = ColourJitter(0.4, 0.4, 0.4, 0.1, 1.0).recolour(images.clone(), uniforms)
    assert (found - images).abs().max() < 1e-3
    assert torch.equal(Greyscale(1.0).recolour(images.clone(), torch.zeros(8, 1)), images)


def test_greyscale_makes_channels_equal_to_pil_luma_for_chosen_rows_only() -> None:
    images = smooth_images(2, 3, 8, 8)
    found = Greyscale(0.2).recolour(images.float(), torch.tensor([[0.19], [0.2]]))
    assert (found[0] - from_pil(to_pil(images[0]).convert("L"))).abs().max() <= 0.51
    assert torch.equal(found[1], images[1].float())


@pytest.mark.parametrize("sigma", [0.1, 0.5, 1.0, 1.37, 2.0])
@pytest.mark.parametrize("size", [1, 5, 32])
def test_blur_matches_pil_gaussian_blur(sigma: float, size: int) -> None:
    images = smooth_images(2, 3, size, size, seed=1)
    operation = GaussianBlur((sigma, sigma), probability=1.0)
    found = operation.recolour(images.float(), torch.rand(2, 2))
    for row in range(2):
        expected = from_pil(to_pil(images[row]).filter(ImageFilter.GaussianBlur(radius=sigma)))
        # PIL rounds to whole levels after each of its six passes, by up to half a level each time.
        assert (found[row] - expected).abs().max() <= 3.0
        assert (found[row] - expected).abs().mean() <= 1.0


def test_blur_strength_differs_per_sample() -> None:
    images = smooth_images(1, 1, 32, 32).float().expand(2, -1, -1, -1).clone()
    found = GaussianBlur((0.1, 2.0), 1.0).recolour(images, torch.tensor([[0.0, 0.0], [0.0, 0.99]]))
    roughness = found.diff(dim=3).abs().mean(dim=(1, 2, 3))
    assert roughness[1] < 0.6 * roughness[0]


def test_tone_jitter_keeps_the_order_of_levels() -> None:
    ramp = torch.linspace(0, 255, 64).view(1, 1, 8, 8).expand(200, -1, -1, -1).clone()
    found = ToneJitter().recolour(ramp, torch.rand(200, 3)).flatten(1)
    assert (found.diff(dim=1) >= 0).all()
    assert found.min() >= 0
    assert found.max() <= 255.001


def test_tone_jitter_matches_loop_oracle() -> None:
    operation = ToneJitter(brightness=0.3, contrast=(0.5, 1.5), gamma=(0.6, 1.6))
    images = smooth_images(20, 1, 5, 6).double()
    uniforms = torch.rand(20, 3, generator=torch.Generator().manual_seed(4))
    found = operation.recolour(images.float(), uniforms)
    for row, (shift, factor, exponent) in enumerate(uniforms.double().tolist()):
        mean = images[row].mean().item()
        for level, changed in zip(images[row].flatten().tolist(), found[row].flatten().tolist(), strict=True):
            moved = (level - mean) * (0.5 + factor) + mean + (2 * shift - 1) * 0.3 * 255
            gamma = 0.6 * (1.6 / 0.6) ** exponent
            assert changed == pytest.approx(255 * (min(max(moved, 0.0), 255.0) / 255) ** gamma, abs=0.01)


def test_erasing_replaces_one_rectangle_of_the_asked_area() -> None:
    images = torch.rand(500, 1, 32, 32) * 255
    operation = RandomErasing(probability=0.25, area=(0.1, 0.2))
    uniforms = torch.rand(500, operation.draws, generator=torch.Generator().manual_seed(5))
    found = operation.recolour(images.clone(), uniforms)
    changed = (found != images).squeeze(1)
    touched = changed.flatten(1).any(dim=1)
    assert torch.equal(touched, uniforms[:, 0] < 0.25)
    area = changed[touched].float().mean(dim=(1, 2))
    assert area.min() > 0.07
    assert area.max() < 0.23
    for mask in changed[touched]:
        rows, columns = mask.any(dim=1).sum(), mask.any(dim=0).sum()
        assert mask.sum() == rows * columns
