"""Embedders that are fitted in a second, and the images and labels for it."""

from __future__ import annotations

import numpy as np

from maskcon.sklearn import MaskConEmbedder
from tests.miniature import miniature

TINY_NET = {"backbone": "resnet6", "width": 8, "projection_dim": 8}
FEATURES = 16

DATA = miniature(train=48, test=4).train
GREY = DATA.images[:, 0]  # uint8 [48, 16, 16]
LABELS = np.array(["stripes", "checks"])[DATA.coarse]


def tiny(**changes) -> MaskConEmbedder:
    given = {"epochs": 2, "random_state": 0, "device": "cpu", "settings": TINY_NET, **changes}
    return MaskConEmbedder(**given)
