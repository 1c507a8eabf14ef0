from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from maskcon.transforms.resample import RandomCrop
from tests.transforms.oracles import crop_box


def boxes(crop: RandomCrop, height: int, width: int, uniforms: torch.Tensor) -> torch.Tensor:
    """[B, 4] as (top, left, height, width)."""
    heights, widths = (torch.full((uniforms.shape[0],), side) for side in (height, width))
    placed = crop(heights, widths, 32, uniforms)
    return torch.stack([placed.top, placed.left, placed.height, placed.width], dim=1)


@settings(max_examples=150, deadline=None)
@given(
    height=st.integers(1, 90), width=st.integers(1, 90), low=st.floats(0.05, 1.0), seed=st.integers(0, 2**31)
)
def test_crop_boxes_equal_loop_oracle(height: int, width: int, low: float, seed: int) -> None:
    crop = RandomCrop(scale=(low, 1.0))
    uniforms = torch.rand(16, crop.draws, generator=torch.Generator().manual_seed(seed))
    expected = [crop_box(row, height, width, crop.scale, crop.ratio) for row in uniforms.double().tolist()]
    assert boxes(crop, height, width, uniforms).tolist() == [list(box) for box in expected]


def test_panorama_falls_back_to_the_central_box_of_the_widest_ratio() -> None:
    crop = RandomCrop(scale=(0.9, 1.0))
    found = boxes(crop, 12, 120, torch.rand(50, crop.draws))
    assert found.unique(dim=0).tolist() == [[0, 52, 12, 16]]


def test_crop_areas_and_ratios_follow_the_asked_distribution() -> None:
    crop = RandomCrop()
    uniforms = torch.rand(20_000, crop.draws, generator=torch.Generator().manual_seed(3))
    top, left, height, width = boxes(crop, 256, 256, uniforms).unbind(1)
    share = height * width / 256**2
    assert share.min() > 0.19
    assert share.max() <= 1.0
    # Nearly uniform on (0.2, 1): large boxes of an extreme ratio do not fit and are drawn again.
    assert 0.5 < share.mean() < 0.6
    assert (width / height).log().mean().abs() < 0.01
    assert (width / height).max() < 1.36
    assert ((top + height <= 256) & (left + width <= 256)).all()
    assert abs((top / (256 - height).clamp_min(1)).mean() - 0.5) < 0.02


def test_boxes_differ_between_samples_and_stay_within_valid_sizes() -> None:
    crop = RandomCrop()
    heights, widths = torch.randint(1, 60, (200,)), torch.randint(1, 60, (200,))
    placed = crop(heights, widths, 32, torch.rand(200, crop.draws))
    assert ((placed.height >= 1) & (placed.width >= 1)).all()
    assert ((placed.top >= 0) & (placed.top + placed.height <= heights)).all()
    assert ((placed.left >= 0) & (placed.left + placed.width <= widths)).all()
    assert placed.height.unique().numel() > 20
