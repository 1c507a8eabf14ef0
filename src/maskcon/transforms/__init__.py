"""Batched augmentation on the device of the images: one resample for all geometry, then colour; policies by name.

Randomness comes in from outside, as a table of uniforms with one row per sample and `policy.draws` columns.
Nothing here draws a random number, so a view depends, but for rounding, on its image and its row alone: not on the
batch, the rank or the device.

    weak, strong = pair("cifar")
    keys = weak(images, torch.rand(len(images), weak.draws), size=32)          # [B, 3, 32, 32] in [0, 1]
    queries = strong(images, torch.rand(len(images), strong.draws), size=32)
    queries = normalise(queries, mean, std)

Reading order: boxes (where a view looks), resample (the one interpolation), operations (warps), colour (PIL's 8-bit
operations), autoaugment (the published table), jitter (photographs), policies (what is made of them), engines (tensor
code or compiled loops), and for the latter compiled, programs, kernels.
"""

from __future__ import annotations

from maskcon.transforms.engines import compiled_policy, settled_engine
from maskcon.transforms.policies import (
    FAMILIES,
    Policy,
    ViewPolicy,
    name_for,
    normalise,
    pair,
    policy,
    policy_names,
    test_view,
)

__all__ = [
    "FAMILIES",
    "Policy",
    "ViewPolicy",
    "compiled_policy",
    "name_for",
    "normalise",
    "pair",
    "policy",
    "policy_names",
    "settled_engine",
    "test_view",
]
