"""Views by compiled loops equal those by tensor code but for rounding, and repeat to the bit."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from maskcon import transforms
from maskcon._utils.errors import UsageError
from maskcon.transforms import compiled as engines
from maskcon.transforms.boxes import RandomCrop
from maskcon.transforms.operations import Operation
from maskcon.transforms.policies import POLICIES, ViewPolicy
from tests.transforms.oracles import made_by, names_of, smooth_images

pytest.importorskip("numba")

NAMES = names_of("compiled")


def table(name: str, batch: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(batch, transforms.policy(name).draws, generator=torch.Generator().manual_seed(seed))


def both(name: str, images: torch.Tensor, size: int, seed: int, sizes: torch.Tensor | None = None):
    uniforms = table(name, len(images), seed)
    return [
        made_by(engine, name)(images, uniforms, size=size, sizes=sizes) for engine in ("tensor", "compiled")
    ]


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25, deadline=None)
@given(
    channels=st.sampled_from([1, 3]),
    height=st.integers(1, 70),
    width=st.integers(1, 70),
    size=st.sampled_from([1, 2, 3, 7, 16, 32, 45]),
    valid=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_compiled_views_equal_tensor_views_for_any_shape(
    name: str, channels: int, height: int, width: int, size: int, valid: bool, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (6, channels, height, width), generator=generator, dtype=torch.uint8)
    sizes = None
    if valid:
        sides = [torch.randint(1, side + 1, (6,), generator=generator) for side in (height, width)]
        sizes = torch.stack(sides, dim=1)
    tensor, compiled = both(name, images, size, seed, sizes)
    assert compiled.shape == tensor.shape
    margin = 4e-7 * max(height, width)  # in pixels, by which the tensor code misses a box of a single one
    assert (tensor - compiled).abs().max() < 1e-5 + margin


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("canvas", "size"), [((256, 300), 96), ((90, 100), 112), ((33, 40), 28)])
def test_compiled_views_of_pictures_equal_tensor_views(name: str, canvas: tuple[int, int], size: int) -> None:
    tensor, compiled = both(name, smooth_images(12, 3, *canvas), size, seed=5)
    assert (tensor - compiled).abs().max() < 1e-5


@pytest.mark.parametrize("name", NAMES)
def test_bits_depend_neither_on_threads_nor_on_the_batch_nor_on_its_order(name: str) -> None:
    view = made_by("compiled", name)
    images, uniforms = smooth_images(50, 3, 40, 36), table(name, 50)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = view(images, uniforms, size=32)
        torch.set_num_threads(3)
        assert torch.equal(view(images, uniforms, size=32), alone)
    finally:
        torch.set_num_threads(threads)
    order = torch.randperm(50, generator=torch.Generator().manual_seed(0))
    assert torch.equal(view(images[order], uniforms[order], size=32), alone[order])
    single = torch.cat([view(images[row, None], uniforms[row, None], size=32) for row in range(50)])
    assert torch.equal(single, alone)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("channels_last", [True, False])
def test_views_come_normalised_and_in_the_layout_asked_for(channels: int, channels_last: bool) -> None:
    mean, std = (0.4, 0.5, 0.6)[:channels], (0.2, 0.25, 0.3)[:channels]
    images, uniforms = smooth_images(9, channels, 20, 24), table("cifar-weak", 9)
    expected = transforms.normalise(made_by("compiled", "cifar-weak")(images, uniforms, size=16), mean, std)
    view = transforms.compiled_policy("cifar-weak", mean, std, channels_last=channels_last)
    found = view(images, uniforms, size=16)
    assert torch.allclose(found, expected, rtol=0, atol=1e-6)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    assert found.is_contiguous(memory_format=layout)


def test_other_images_than_bytes_are_refused() -> None:
    with pytest.raises(
        UsageError, match=r"need uint8 images on the CPU, got torch.float32 on cpu; use policy"
    ):
        made_by("compiled", "cifar-weak")(torch.rand(2, 3, 8, 8), table("cifar-weak", 2), size=8)


def test_images_that_are_no_contiguous_block_are_read_right() -> None:
    view, uniforms = made_by("compiled", "cifar-weak"), table("cifar-weak", 5)
    images = smooth_images(5, 3, 32, 32)
    turned = images.contiguous(memory_format=torch.channels_last)
    assert torch.equal(view(turned, uniforms, size=32), view(images, uniforms, size=32))
    one = images[:1].expand(5, -1, -1, -1)
    assert torch.equal(view(one, uniforms, size=32), view(one.contiguous(), uniforms, size=32))


def test_a_point_at_infinity_is_filled_and_breaks_nothing() -> None:
    """Depth 0 for whole columns of the view: coordinates become infinite or NaN."""
    from maskcon.transforms.kernels import geometry

    images = np.full((1, 1, 8, 8), 200, np.uint8)
    places = np.array([[0.0, 0, 8, 8, 0, 8, 0, 8]])
    matrices = np.array([[[[1.0, 0, -0.5], [0, 0, 0], [1, 0, -0.5]]]], np.float32)  # 0/0 in the first column
    for fill, first in ((7.0, 7.0), (math.nan, 200.0)):
        found = np.empty((1, 1, 8, 8), np.float32)
        kinds = np.array([geometry.WARPED], np.uint8)
        geometry.resample_rows(images, places, np.zeros(1, bool), kinds, matrices, True, fill, 0, found)
        assert np.abs(found[0, 0, :, 0] - first).max() < 1e-3
        assert np.abs(found[0, 0, :, 1:] - 200).max() < 1e-3


def test_a_policy_with_an_operation_of_ones_own_keeps_to_the_tensor_code(monkeypatch) -> None:
    class Inverted(Operation):
        def recolour(self, views: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
            return 255 - transforms

    monkeypatch.setitem(POLICIES, "own", ViewPolicy("own", RandomCrop(), operations=(Inverted(),)))
    assert engines.settled_engine("auto", "own", "cifar-weak") == "tensor"
    assert engines.settled_engine("auto", "cifar-weak") == "compiled"
    with pytest.raises(UsageError, match=r"'own' has no compiled loops.*another --out"):
        engines.settled_engine("compiled", "cifar-weak", "own")


def test_without_numba_auto_is_the_tensor_code_and_compiled_names_the_extra(monkeypatch) -> None:
    monkeypatch.setattr(engines, "find_spec", lambda name: None)
    assert engines.settled_engine("auto", "cifar-weak") == "tensor"
    with pytest.raises(UsageError, match=r"pip install 'maskcon\[compiled\]'"):
        engines.compiled_policy("cifar-weak", (0.5,), (0.5,), channels_last=True)


@pytest.mark.parametrize(
    "error", [RuntimeError("no locator available"), OSError(28, "No space left on device")]
)
def test_loops_are_compiled_anew_where_no_cache_can_be_written(monkeypatch, error: Exception) -> None:
    import numba

    from maskcon.transforms import kernels

    real = numba.njit

    def njit(*given, cache=False, **options):
        if cache:
            raise error
        return real(*given, **options)

    monkeypatch.setattr(kernels.numba, "njit", njit)

    def double(values):
        values[0] *= 2

    found = np.array([3.0])
    kernels.entry("float64[::1]")(double)(found)
    assert found[0] == 6


def test_numba_is_imported_by_compiled_views_alone() -> None:
    code = "import sys, maskcon.transforms, maskcon.training.setup; print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_photo_families_are_compiled_and_others_use_the_tensor_code() -> None:
    compiled = {
        family
        for family in transforms.FAMILIES
        if all(engines.can_compile(v) for v in transforms.pair(family))
    }
    assert compiled == {"products", "cars", "photos"}
