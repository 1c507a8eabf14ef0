"""HOG features: histograms beside a slow count, variants, axes, and neighbours that are alike."""

from __future__ import annotations

import math

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

from maskcon.models.hog import (
    AXES,
    BINS,
    CELL,
    SHIFTS,
    SIDE,
    STRAY,
    Axes,
    HogNeighbours,
    Variants,
    hog_neighbours,
    list_length,
    mirrored,
    oriented_gradients,
    turned,
)
from maskcon.retrieval.encode import Feed

PLAIN = Variants()


def pictures(count: int, seed: int, channels: int = 3, side: int = SIDE) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, channels, side, side), generator=generator, dtype=torch.uint8)


def slow_histograms(image: torch.Tensor) -> torch.Tensor:
    """One image [C, H, W], pixel by pixel: its root histograms [BINS, H', W']."""
    grey = image.double().mean(0)
    height, width = grey.shape
    at = lambda y, x: grey[min(max(y, 0), height - 1), min(max(x, 0), width - 1)].item()  # noqa: E731
    rows, columns = (height - 2 * CELL) // CELL + 1, (width - 2 * CELL) // CELL + 1
    top, left = (height - 2 * CELL) % CELL // 2, (width - 2 * CELL) % CELL // 2  # in the middle
    cells = torch.zeros(BINS, rows, columns, dtype=torch.double)
    for row in range(rows):
        for column in range(columns):
            for y in range(top + row * CELL, top + row * CELL + 2 * CELL):
                for x in range(left + column * CELL, left + column * CELL + 2 * CELL):
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


@pytest.mark.parametrize(("turn", "number"), [(0, 0), (30, 1), (90, 3), (180, 6), (270, 9)])
def test_a_bin_is_a_twelfth_of_a_turn_from_right_over_down(turn, number):
    y, x = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
    angle = math.radians(turn)
    rising = (x * math.cos(angle) + y * math.sin(angle)) / 32 + 0.5
    inner = oriented_gradients(rising[None, None])[0, 0, :, 1, 1]
    assert inner.argmax() == number
    assert inner[number] > 10 * inner.sum().sub(inner[number])


def test_an_even_image_has_no_gradients_and_no_nan():
    assert oriented_gradients(torch.full((2, 3, 32, 32), 0.5)).eq(0).all()
    alike = Axes.of(torch.zeros(5, 972))
    assert alike(torch.zeros(5, 972)).eq(0).all()


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
    margin = 8  # of even grey: what comes in over the border has no gradient
    inner = torch.rand(6, 3, SIDE - 2 * margin, SIDE - 2 * margin, generator=torch.Generator().manual_seed(0))
    images = torch.nn.functional.pad(inner, (margin,) * 4, value=0.5)
    looked = oriented_gradients(images, SHIFTS)[:, number]
    moved = oriented_gradients(images.roll((-down, -right), (2, 3)))[:, 0]
    torch.testing.assert_close(looked, moved, atol=1e-3, rtol=0)
    assert number == 0 or not torch.allclose(looked, oriented_gradients(images)[:, 0], atol=0.05)


def found(
    images: torch.Tensor, variants: Variants = PLAIN, groups: torch.Tensor | None = None, **given
) -> HogNeighbours:
    """HOG neighbours of images ``[N, C, H, W]``, of one group where nothing is said."""
    groups = torch.zeros(len(images), dtype=torch.long) if groups is None else groups
    settings = {"length": len(images), "progress": lambda *done: None, **given}
    return hog_neighbours(lambda rows: (images[rows], None), groups, variants=variants, **settings)


def similarity(of: HogNeighbours) -> torch.Tensor:
    """[N, N]; -inf where not listed."""
    every = torch.arange(len(of.vectors))
    return of.neighbours.among(every, every).table()


def test_an_image_that_lies_elsewhere_is_found_by_its_hog_features():
    images = pictures(64, 5)[:, :, 8:24, 8:24]
    place = lambda x, y: torch.nn.functional.pad(images, (8 + x, 8 - x, 8 + y, 8 - y), value=128)  # noqa: E731
    seen = found(torch.cat([place(0, 0), place(-STRAY, 0)]))
    vectors = seen.vectors.float()
    as_they_lie = (vectors[:64] * vectors[64:]).sum(1)
    nearest = similarity(seen)[64:, :64].diagonal()
    assert (nearest > as_they_lie + 0.1).float().mean() > 0.9
    assert nearest.mean() > 0.95


def test_a_turned_image_is_the_image_in_another_place():
    image = torch.arange(16.0).view(1, 1, 4, 4)
    assert turned(image, 0) is image
    torch.testing.assert_close(turned(image, 90), image.rot90(1, (2, 3)), atol=1e-5, rtol=0)


def test_an_image_that_is_turned_is_found_by_looking_at_it_turned():
    smooth = torch.nn.functional.interpolate(
        torch.rand(48, 1, 6, 6, generator=torch.Generator().manual_seed(2)), 32
    )
    images = torch.cat([smooth, turned(smooth, 18)]).mul(255).byte()
    alone, helped = (
        similarity(found(images, variants))[48:, :48] for variants in (Variants(), Variants(turn=18.0))
    )
    assert (helped.diagonal() > alone.diagonal() + 0.1).float().mean() > 0.9
    assert helped.argmax(1).equal(torch.arange(48))


def test_similarity_is_the_mean_of_how_each_seems_to_the_other():
    images = pictures(30, 7)
    axes = Axes.of(oriented_gradients(images / 255).flatten(1))
    variants = Variants(mirror=True, turn=10.0)
    each = axes(variants.histograms(images / 255).flatten(2))  # [N, V, A]
    assert each.shape == (30, 30, AXES)
    seems = torch.stack([torch.stack([(one @ other[0]).max() for other in each]) for one in each])
    torch.testing.assert_close(similarity(found(images, variants)), (seems + seems.T) / 2, atol=5e-3, rtol=0)


def test_axes_are_scaled_by_their_deviation_and_a_floor():
    generator = torch.Generator().manual_seed(0)
    deviations = torch.tensor([4.0, 2.0, 1.0, 0.01])
    values = torch.randn(4000, 4, generator=generator) * deviations + 3
    axes = Axes.of(values)
    seen = ((values - axes.mean) @ axes.matrix).var(0, correction=0)
    variances = deviations.square()
    torch.testing.assert_close(seen, variances / (variances + 1.6), atol=0.05, rtol=0)
    torch.testing.assert_close(axes(values).norm(dim=1), torch.ones(4000))


@pytest.mark.parametrize(("mirror", "turn", "variants"), [(True, 0, 10), (False, 0, 5), (True, 18, 30)])
def test_an_image_is_looked_at_by_each_shift_turned_and_all_that_in_a_mirror(mirror, turn, variants):
    images = pictures(8, 1) / 255
    seen = Variants(mirror, float(turn)).histograms(images)
    assert seen.shape == (8, variants, BINS, 9, 9)
    torch.testing.assert_close(seen[:, 0], oriented_gradients(images)[:, 0])
    if mirror:
        flipped = Variants(False, float(turn)).histograms(images.flip(3))
        assert torch.allclose(seen[:, variants // 2], flipped[:, 0], atol=1e-3)


def test_neighbours_are_of_the_own_group_and_the_image_itself_is_the_nearest():
    images, groups = pictures(700, 1), torch.arange(700) % 3  # more than a batch
    told = []
    seen = found(images, groups=groups, length=9, progress=lambda *done: told.append(done))
    assert seen.vectors.shape == (700, AXES)
    assert seen.vectors.dtype == torch.float16
    torch.testing.assert_close(seen.vectors.float().norm(dim=1), torch.ones(700), atol=2e-3, rtol=0)
    lists = seen.neighbours
    assert lists.images.shape == lists.similarity.shape == (700, 9)
    assert lists.images[:, 0].equal(torch.arange(700, dtype=torch.int32))
    assert (groups[lists.images.long()] == groups.unsqueeze(1)).all()
    assert (lists.similarity.diff(dim=1) <= 0).all()
    assert told[-1] == (700, 700)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_a_group_too_large_is_dealt_out_into_parts(monkeypatch):
    monkeypatch.setattr("maskcon.models.hog.LARGEST_PART", 10)
    seen = similarity(found(pictures(25, 6)))
    part = torch.arange(25) % 3
    assert ((seen > -math.inf) == (part.unsqueeze(1) == part)).all()


def test_as_many_neighbours_are_kept_as_a_bank_should_hold():
    assert list_length(2048, 2048) == list_length(10, 2048) == 41
    assert list_length(4096, 2048) == 81
    assert list_length(10**9, 2048) == 512


def test_images_of_other_sizes_are_looked_at_as_the_test_does():
    small = pictures(6, 2)
    large = small.repeat_interleave(3, dim=2).repeat_interleave(3, dim=3)  # 96 px
    canvas = torch.zeros(6, 3, 120, 100, dtype=torch.uint8)
    canvas[:, :, :96, :96] = large
    sizes = torch.full((6, 2), 96)

    def alike(take):
        one_group = torch.zeros(6, dtype=torch.long)
        seen = hog_neighbours(take, one_group, length=6, variants=Variants(), progress=lambda *done: None)
        vectors = seen.vectors.float()
        return vectors @ vectors.T  # an axis may point either way

    plain = alike(lambda rows: (small[rows], None))
    on_canvas = alike(lambda rows: (canvas[rows], sizes[rows]))
    torch.testing.assert_close(plain, on_canvas, atol=0.05, rtol=0)
    assert (plain - torch.eye(6)).abs().max() > 0.1


def test_hog_features_are_taken_from_where_training_takes_its_images():
    images = pictures(20, 8)
    feed = Feed(images.numpy(), None, torch.device("cpu"))
    groups = torch.zeros(20, dtype=torch.long)
    seen = hog_neighbours(feed.take, groups, length=20, variants=Variants(), progress=lambda *done: None)
    assert similarity(seen).equal(similarity(found(images)))


def test_the_mirror_image_finds_what_the_image_misses():
    images = pictures(64, 3)
    both = torch.cat([images, images.flip(3)])
    plain, either = (similarity(found(both, Variants(mirror=mirror)))[:64, 64:] for mirror in (False, True))
    assert either.argmax(1).equal(torch.arange(64))
    assert not plain.argmax(1).equal(torch.arange(64))


def test_axes_found_from_a_part_of_the_images_serve_all(monkeypatch):
    images = pictures(90, 4)
    whole = found(images).vectors.float()
    monkeypatch.setattr("maskcon.models.hog.FITTED_ON", 30)
    monkeypatch.setattr("maskcon.models.hog.BATCH", 16)
    part = found(images).vectors.float()
    axes = Axes.of(oriented_gradients(images[::3] / 255).flatten(1))
    expected = axes(oriented_gradients(images / 255).flatten(1))
    # an axis may point either way, so similarities are compared
    torch.testing.assert_close(part @ part.T, expected @ expected.T, atol=5e-3, rtol=0)
    assert not torch.allclose(part @ part.T, whole @ whole.T, atol=0.1)
