"""Outlines of images: their histograms beside a slow count, mirrors, axes, and neighbours that are alike."""

from __future__ import annotations

import math
from pathlib import Path

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

from maskcon.engine.feed import Feed
from maskcon.outlines import (
    AXES,
    BINS,
    CELL,
    SHIFTS,
    SIDE,
    STRAY,
    Axes,
    mirrored,
    oriented_gradients,
    outlines,
)
from tests.miniature import miniature


def pictures(count: int, seed: int, channels: int = 3, side: int = SIDE) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, channels, side, side), generator=generator, dtype=torch.uint8)


def slow_histograms(image: torch.Tensor) -> torch.Tensor:
    """One image [C, H, W], pixel by pixel: its root histograms [BINS, H', W']."""
    grey = image.double().mean(0)
    height, width = grey.shape
    at = lambda y, x: grey[min(max(y, 0), height - 1), min(max(x, 0), width - 1)].item()  # noqa: E731
    rows, columns = (height - 2 * CELL) // CELL + 1, (width - 2 * CELL) // CELL + 1
    cells = torch.zeros(BINS, rows, columns, dtype=torch.double)
    for row in range(rows):
        for column in range(columns):
            for y in range(row * CELL, row * CELL + 2 * CELL):
                for x in range(column * CELL, column * CELL + 2 * CELL):
                    right, down = at(y, x + 1) - at(y, x - 1), at(y + 1, x) - at(y - 1, x)
                    place = math.atan2(down, right) % (2 * math.pi) / (2 * math.pi) * BINS
                    lower = math.floor(place)
                    steep = math.hypot(right, down)
                    cells[lower % BINS, row, column] += steep * (1 - (place - lower))
                    cells[(lower + 1) % BINS, row, column] += steep * (place - lower)
    return (cells / cells.norm().clamp_min(1e-30)).sqrt()


@settings(deadline=None)
@given(st.integers(0, 2**30), st.sampled_from([1, 3]), st.sampled_from([(8, 8), (12, 16), (19, 9)]))
def test_histograms_are_those_of_a_count_pixel_by_pixel(seed, channels, shape):
    image = torch.rand(1, channels, *shape, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(
        oriented_gradients(image)[0, 0].double(), slow_histograms(image[0]), atol=2e-3, rtol=0
    )


@pytest.mark.parametrize(("turn", "number"), [(0, 0), (90, 2), (180, 4), (270, 6)])
def test_a_bin_is_an_eighth_of_a_turn_from_right_over_down(turn, number):
    y, x = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
    angle = math.radians(turn)
    rising = (x * math.cos(angle) + y * math.sin(angle)) / 32 + 0.5
    inner = oriented_gradients(rising[None, None])[0, 0, :, 1, 1]
    assert inner.argmax() == number
    assert inner[number] > 10 * inner.sum().sub(inner[number])


def test_an_even_image_has_no_outlines_and_no_nan():
    assert oriented_gradients(torch.full((2, 3, 32, 32), 0.5)).eq(0).all()
    alike = Axes.of(torch.zeros(5, 392))
    assert alike(torch.zeros(5, 392)).eq(0).all()


def test_in_a_mirror_the_histograms_are_those_of_the_mirrored_image():
    images = pictures(20, 0).float() / 255
    torch.testing.assert_close(
        mirrored(oriented_gradients(images)), oriented_gradients(images.flip(3)), atol=1e-4, rtol=0
    )
    twice = mirrored(mirrored(oriented_gradients(images)))
    assert twice.equal(oriented_gradients(images))


@pytest.mark.parametrize("number", range(len(SHIFTS)))
def test_a_shifted_look_is_that_at_the_shifted_image(number):
    right, down = SHIFTS[number]
    margin = 8  # of even grey: what comes in over the border has no outlines
    inner = torch.rand(6, 3, SIDE - 2 * margin, SIDE - 2 * margin, generator=torch.Generator().manual_seed(0))
    images = torch.nn.functional.pad(inner, (margin,) * 4, value=0.5)
    looked = oriented_gradients(images, SHIFTS)[:, number]
    moved = oriented_gradients(images.roll((-down, -right), (2, 3)))[:, 0]
    torch.testing.assert_close(looked, moved, atol=1e-3, rtol=0)
    assert number == 0 or not torch.allclose(looked, oriented_gradients(images)[:, 0], atol=0.05)


def test_an_image_that_lies_elsewhere_is_found_by_its_outlines():
    images = pictures(64, 5)[:, :, 8:24, 8:24]
    place = lambda x, y: torch.nn.functional.pad(images, (8 + x, 8 - x, 8 + y, 8 - y), value=128)  # noqa: E731
    both = torch.cat([place(0, 0), place(-STRAY, 0)])
    found = outlines(lambda rows: (both[rows], None), 128, mirror=False, progress=lambda *done: None).float()
    as_they_lie = (found[:64, 0] * found[64:, 0]).sum(1)
    nearest = (found[64:] @ found[:64, 0].unsqueeze(2)).amax(dim=(1, 2))
    assert (nearest > as_they_lie + 0.1).float().mean() > 0.9
    assert nearest.mean() > 0.95


def test_axes_are_scaled_by_their_deviation_and_a_floor():
    generator = torch.Generator().manual_seed(0)
    deviations = torch.tensor([4.0, 2.0, 1.0, 0.01])
    values = torch.randn(4000, 4, generator=generator) * deviations + 3
    axes = Axes.of(values)
    seen = ((values - axes.mean) @ axes.matrix).var(0, correction=0)
    variances = deviations.square()
    torch.testing.assert_close(seen, variances / (variances + 1.6), atol=0.05, rtol=0)
    torch.testing.assert_close(axes(values).norm(dim=1), torch.ones(4000))


@pytest.mark.parametrize(("mirror", "vectors"), [(True, 10), (False, 5)])
def test_every_image_gets_a_unit_vector_of_each_shift_and_as_many_of_its_mirror_image(mirror, vectors):
    images = pictures(700, 1)  # more than a batch
    told = []
    found = outlines(
        Feed(images.numpy(), None, torch.device("cpu")).take,
        700,
        mirror=mirror,
        progress=lambda *done: told.append(done),
    )
    assert found.shape == (700, vectors, AXES)
    assert found.dtype == torch.float16
    torch.testing.assert_close(found.float().norm(dim=2), torch.ones(700, vectors), atol=2e-3, rtol=0)
    assert told == [(512, 700), (700, 700)]


def test_images_of_other_sizes_are_looked_at_as_the_test_does():
    small = pictures(6, 2)
    large = small.repeat_interleave(3, dim=2).repeat_interleave(3, dim=3)  # 96 px
    canvas = torch.zeros(6, 3, 120, 100, dtype=torch.uint8)
    canvas[:, :, :96, :96] = large
    sizes = torch.full((6, 2), 96)

    def found(take):
        vectors = outlines(take, 6, mirror=False, progress=lambda *done: None).float()[:, 0]
        return vectors @ vectors.T  # an axis may point either way

    plain = found(lambda rows: (small[rows], None))
    on_canvas = found(lambda rows: (canvas[rows], sizes[rows]))
    torch.testing.assert_close(plain, on_canvas, atol=0.05, rtol=0)
    assert (plain - torch.eye(6)).abs().max() > 0.1


def test_the_mirror_image_finds_what_the_image_misses():
    images = pictures(64, 3)
    both = torch.cat([images, images.flip(3)])
    found = outlines(lambda rows: (both[rows], None), 128, mirror=True, progress=lambda *done: None).float()
    plain = found[:64, 0] @ found[64:, 0].T
    either = torch.maximum(plain, found[:64, len(SHIFTS)] @ found[64:, 0].T)
    assert either.argmax(1).equal(torch.arange(64))
    assert not plain.argmax(1).equal(torch.arange(64))


def test_axes_found_from_a_part_of_the_images_serve_all(monkeypatch):
    images = pictures(90, 4)

    def found():
        vectors = outlines(lambda rows: (images[rows], None), 90, mirror=True, progress=lambda *done: None)
        return vectors.float()

    whole = found()
    monkeypatch.setattr("maskcon.outlines.FITTED_ON", 30)
    monkeypatch.setattr("maskcon.outlines.BATCH", 16)
    part = found()
    assert part.shape == whole.shape
    axes = Axes.of(oriented_gradients(images[::3] / 255).flatten(1))
    expected = axes(oriented_gradients(images / 255).flatten(1))
    # an axis may point either way, so similarities are compared
    torch.testing.assert_close(part[:, 0] @ part[:, 0].T, expected @ expected.T, atol=5e-3, rtol=0)
    assert not torch.allclose(part[:, 0] @ part[:, 0].T, whole[:, 0] @ whole[:, 0].T, atol=0.1)


def test_recall_of_outlines_alone_leaves_the_image_itself_out(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    import outlines_alone

    similarity = torch.tensor([[1.0, 0.9, 0.1], [0.9, 1.0, 0.2], [0.1, 0.2, 1.0]])
    assert outlines_alone.recall_at_1(similarity, torch.tensor([0, 0, 1])) == pytest.approx(200 / 3)
    images = miniature(20, 20).test
    assert outlines_alone.histograms(images).shape == (len(images), len(SHIFTS), BINS, 7, 7)
