from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from maskcon.transforms import resample
from maskcon.transforms.operations import Affine, Perspective, quad_to_square
from maskcon.transforms.resample import CentreSquare, box_placement
from tests.transforms.oracles import cropped, from_pil, smooth_images, to_pil

BOXES = [(0, 0, 32, 32), (3, 5, 14, 17), (20, 0, 12, 30), (31, 31, 1, 1), (10, 2, 9, 28)]


def placed(boxes: list[tuple[int, int, int, int]]):
    return box_placement(*(side.double() for side in torch.tensor(boxes).unbind(1)))


def view(images, boxes, mirrored, *, size, warp=None):
    flags = torch.tensor(mirrored)
    return resample.resample(images, placed(boxes), flags, warp, size=size)


def test_crop_and_upscale_equals_bilinear_interpolation_of_the_crop_alone() -> None:
    images = smooth_images(len(BOXES), 3, 32, 32)
    found = view(images, BOXES, [False] * len(BOXES), size=32)
    for row, (top, left, height, width) in enumerate(BOXES):
        crop = images[row : row + 1, :, top : top + height, left : left + width].float()
        expected = F.interpolate(crop, (32, 32), mode="bilinear", align_corners=False, antialias=True)[0]
        assert (found[row] - expected).abs().max() < 1e-2


@pytest.mark.parametrize("size", [8, 32, 45, 128])
@pytest.mark.parametrize("channels", [1, 3])
def test_crop_resize_and_mirror_match_pil_to_one_level(size: int, channels: int) -> None:
    images = smooth_images(len(BOXES), channels, 32, 32, seed=size)
    mirrored = [False, True, True, False, True]
    found = view(images, BOXES, mirrored, size=size)
    for row, box in enumerate(BOXES):
        expected = from_pil(cropped(to_pil(images[row]), box, mirrored[row], size))
        assert (found[row] - expected).abs().max() <= 1.01


@pytest.mark.parametrize("factor", [1.3, 2.0, 3.7, 8.0])
def test_downscaling_matches_pil_antialiasing_even_on_noise(factor: float) -> None:
    side = round(24 * factor)
    images = torch.randint(0, 256, (2, 3, side, side), dtype=torch.uint8)
    found = view(images, [(0, 0, side, side)] * 2, [False, False], size=24)
    for row in range(2):
        expected = from_pil(to_pil(images[row]).resize((24, 24), Image.Resampling.BILINEAR))
        assert (found[row] - expected).abs().max() <= 1.01


@pytest.mark.parametrize(
    ("height", "width", "size"), [(40, 64, 32), (64, 40, 32), (33, 20, 17), (20, 50, 48)]
)
def test_centre_square_matches_pil_resize_then_crop(height: int, width: int, size: int) -> None:
    images = smooth_images(1, 3, height, width)
    shorter = min(height, width)
    resized = to_pil(images[0]).resize(
        (int(size * width / shorter), int(size * height / shorter)), Image.Resampling.BILINEAR
    )
    left, top = round((resized.width - size) / 2), round((resized.height - size) / 2)
    expected = from_pil(resized.crop((left, top, left + size, top + size)))
    placement = CentreSquare()(torch.tensor([height]), torch.tensor([width]), size)
    found = resample.resample(images, placement, None, None, size=size)[0]
    assert (found - expected).abs().max() <= 1.01


def test_quad_to_square_takes_corners_to_corners() -> None:
    corners = torch.tensor([[[3.0, 1.0], [27.0, 4.0], [30.0, 29.0], [2.0, 25.0]]]).double()
    matrix = quad_to_square(corners, side=31)[0]
    found = torch.cat([corners[0], torch.ones(4, 1).double()], dim=1) @ matrix.T
    expected = torch.tensor([[0.0, 0.0], [31.0, 0.0], [31.0, 31.0], [0.0, 31.0]]).double()
    assert torch.allclose(found[:, :2] / found[:, 2:], expected, atol=1e-9)


def perspective_coefficients(corners: list[tuple[int, int]], side: int) -> list[float]:
    """The eight numbers PIL wants, by solving the equations that the four corners give."""
    start = [(0, 0), (side - 1, 0), (side - 1, side - 1), (0, side - 1)]
    rows, right = [], []
    for (x, y), (u, v) in zip(corners, start, strict=True):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
        right += [u, v]
    return torch.linalg.solve(torch.tensor(rows).double(), torch.tensor(right).double()).tolist()


@pytest.mark.parametrize("size", [16, 32])
def test_perspective_matches_pil_with_corners_from_the_same_uniforms(size: int) -> None:
    operation = Perspective(0.5, probability=1.0)
    images = smooth_images(6, 3, size, size, seed=4)
    uniforms = torch.rand(6, operation.draws, generator=torch.Generator().manual_seed(1))
    found = view(
        images, [(0, 0, size, size)] * 6, [False] * 6, size=size, warp=operation.warp(uniforms, size)
    )
    reach = int(0.5 * (size // 2))
    far = size - 1 - reach
    for row, values in enumerate(uniforms.double().tolist()):
        moves = [int(value * (reach + 1)) for value in values[1:]]
        corners = [
            (moves[0], moves[1]),
            (far + moves[2], moves[3]),
            (far + moves[4], far + moves[5]),
            (moves[6], far + moves[7]),
        ]
        coefficients = perspective_coefficients(corners, size)
        expected = from_pil(
            to_pil(images[row]).transform(
                (size, size),
                Image.Transform.PERSPECTIVE,
                coefficients,
                Image.Resampling.BILINEAR,
                fillcolor=0,
            )
        )
        wrong = ((found[row] - expected).abs() > 1.01).any(dim=0)
        assert not (wrong & ~on_the_border(coefficients, size)).any()


def on_the_border(coefficients: list[float], side: int) -> torch.Tensor:
    """Pixels whose source lies on the very edge of the image, where rounding decides if they are filled."""
    a, b, c, d, e, f, g, h = coefficients
    y, x = torch.meshgrid(torch.arange(side) + 0.5, torch.arange(side) + 0.5, indexing="ij")
    depth = g * x.double() + h * y.double() + 1
    u, v = (a * x + b * y + c) / depth, (d * x + e * y + f) / depth
    return torch.stack([u, v, u - side, v - side]).abs().amin(dim=0) < 1e-4


def test_perspective_happens_to_half_of_the_samples() -> None:
    operation = Perspective(0.5, 0.5)
    assert abs(operation.warp(torch.rand(4000, operation.draws), 32).active.float().mean() - 0.5) < 0.04


def test_warped_crop_is_resampled_once_from_the_stored_pixels() -> None:
    """A warp that shifts by half a pixel: bilinear taps of the crop, not of its resized copy."""
    images = smooth_images(1, 1, 16, 16)
    shift = torch.eye(3).view(1, 1, 3, 3).clone()
    shift[0, 0, 0, 2] = 0.5
    warp = resample.Warp(shift, torch.tensor([True]), fill=None)
    found = view(images, [(4, 4, 8, 8)], [False], size=16, warp=warp)[0, 0]
    stored = images[0, 0].float()
    # Column x of the view looks at column 4 + (x + .5 + .5) / 2 - .5 of the image.
    for x in range(14):
        place = 4 + (x + 1) / 2 - 0.5
        low, part = int(place), place - int(place)
        expected = stored[4, low] * (1 - part) + stored[4, low + 1] * part
        assert abs(found[0, x] - expected) < 1e-2


def test_warped_row_with_a_large_crop_is_reduced_without_aliasing() -> None:
    board = (torch.arange(128).view(1, -1) + torch.arange(128).view(-1, 1)) % 2 * 255
    images = board.to(torch.uint8).expand(1, 1, 128, 128)
    warp = Affine(rotation=20, area=(0.8, 0.8), shift=0.0).warp(torch.tensor([[0.9, 0.5, 0.5, 0.5]]), 32)
    found = view(images, [(0, 0, 128, 128)], [False], size=32, warp=warp)
    assert (found - 127.5).abs().max() < 3


def test_affine_turns_a_line_by_the_drawn_angle() -> None:
    images = torch.zeros(1, 1, 65, 65, dtype=torch.uint8)
    images[:, :, 32, :] = 255
    operation = Affine(rotation=45, area=(1.0, 1.0), shift=0.0)
    warp = operation.warp(torch.tensor([[1.0, 0.5, 0.5, 0.5]]), 65)
    found = view(images, [(0, 0, 65, 65)], [False], size=65, warp=warp)[0, 0]
    falling, rising = found.diagonal().mean(), found.flip(1).diagonal().mean()
    assert max(falling, rising) > 200
    assert min(falling, rising) < 20


def test_affine_zoom_shows_the_drawn_share_of_the_area() -> None:
    ramp = torch.arange(64, dtype=torch.uint8).view(1, 1, 1, 64).expand(1, 1, 64, 64)
    operation = Affine(rotation=0, area=(0.25, 0.25), shift=0.0)
    warp = operation.warp(torch.tensor([[0.5, 0.5, 0.5, 0.5]]), 64)
    found = view(ramp, [(0, 0, 64, 64)], [False], size=64, warp=warp)[0, 0, 32]
    assert found[0] == pytest.approx(15.75, abs=0.3)
    assert found[-1] == pytest.approx(47.25, abs=0.3)


def test_blocks_do_not_change_the_views(monkeypatch: pytest.MonkeyPatch) -> None:
    images = smooth_images(7, 3, 24, 24)
    boxes = [(row, 2 * row, 10, 12) for row in range(6)] + [(0, 0, 24, 24)]
    operation = Perspective(0.5, 0.5)
    warp = operation.warp(torch.rand(7, operation.draws), 16)
    whole = view(images, boxes, [True, False] * 3 + [True], size=16, warp=warp)
    monkeypatch.setattr(resample, "CPU_BLOCK", 2 * 3 * 24 * 24)
    assert torch.allclose(
        view(images, boxes, [True, False] * 3 + [True], size=16, warp=warp), whole, atol=1e-3
    )
