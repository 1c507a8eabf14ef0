"""The row `views_per_core`: both views of an image, weak and strong, on one thread; against PIL, an image at a time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor

from maskcon import transforms
from maskcon.bench import pil_views
from maskcon.bench.figures import Row
from maskcon.bench.measure import ON_ONE_THREAD, Effort, in_turns

# family, side of the stored images, side of a view, images a batch
SETTINGS = (("cifar", 32, 32, 512), ("photos", 256, 224, 48))
QUICK_BATCH = 64


def views_per_core(effort: Effort) -> Row:
    """Images a second that get both views, over PIL's; higher is better."""
    row: Row = {}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for family, stored, size, batch in SETTINGS:
            row |= _against_pil(
                family, stored, size, min(batch, QUICK_BATCH) if effort.quick else batch, effort
            )
    finally:
        torch.set_num_threads(threads)
    return row


def as_a_run_makes_them(family: str) -> Callable[[Tensor, int], list[Tensor]]:
    """Makes weak and strong views of uint8 images ``[B, 3, H, W]`` as a run on a CPU does: compiled where numba is.

    As in a run the policies are made once, and lend the memory of earlier views again.
    """
    policies = transforms.pair(family)
    if transforms.settled_engine("auto", *(policy.name for policy in policies)) == "compiled":
        compiled = partial(transforms.compiled_policy, mean=(0.5,) * 3, std=(0.25,) * 3, channels_last=True)
        policies = (compiled(policies[0].name), compiled(policies[1].name))

    def make(images: Tensor, size: int) -> list[Tensor]:
        return [policy(images, torch.rand(len(images), policy.draws), size=size) for policy in policies]

    return make


def with_pil(images: np.ndarray, family: str, size: int) -> list[np.ndarray]:
    """The same of uint8 images ``[B, H, W, 3]``."""
    return [
        pil_views.made_of(images, make, torch.rand(len(images), policy.draws).tolist(), size)
        for policy, make in zip(transforms.pair(family), pil_views.PAIRS[family], strict=True)
    ]


def _against_pil(family: str, stored: int, size: int, batch: int, effort: Effort) -> Row:
    images = pictures(batch, stored)
    last = np.ascontiguousarray(images.permute(0, 2, 3, 1).numpy())
    make = as_a_run_makes_them(family)
    turns = in_turns(
        {
            "ours": lambda: make(images, size),
            "pil": lambda: with_pil(last, family, size),
        },
        effort.turns(9),
        clock=ON_ONE_THREAD,
    )
    return {
        f"ratio_to_pil_{size}": turns.ratio("pil", "ours"),
        f"images_per_second_{size}": batch / turns.median("ours"),
        f"pil_images_per_second_{size}": batch / turns.median("pil"),
    }


def pictures(count: int, side: int) -> Tensor:
    """Colour images with gradients and grain, uint8 ``[N, 3, side, side]``."""
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(count, 3, 6, 6, generator=generator)
    smooth = torch.nn.functional.interpolate(coarse, (side, side), mode="bilinear", align_corners=True)
    grain = torch.rand(count, 3, side, side, generator=generator)
    return (smooth * 230 + grain * 25).to(torch.uint8)
