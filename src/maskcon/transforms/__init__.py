"""Batched augmentations on the device of the images; policies by name.

Random numbers are an argument: a table of uniforms with one row per image and `policy.draws` columns. A view depends,
up to rounding, on its image and its row only, not on the batch, the rank or the device.

    weak, strong = pair("cifar")
    keys = weak(images, torch.rand(len(images), weak.draws), size=32)          # [B, 3, 32, 32] in [0, 1]
    queries = strong(images, torch.rand(len(images), strong.draws), size=32)
    queries = normalise(queries, mean, std)

Reading order: resample (crops, and all geometry in one interpolation), operations (warps), autoaugment (the published
table and PIL's 8-bit operations), jitter (photographs), policies (all of it by name).
"""

from __future__ import annotations

from maskcon.transforms.policies import (
    FAMILIES,
    Policy,
    ViewPolicy,
    name_for,
    normalise,
    pair,
    policy,
    test_view,
)

__all__ = [
    "FAMILIES",
    "Policy",
    "ViewPolicy",
    "name_for",
    "normalise",
    "pair",
    "policy",
    "test_view",
]
