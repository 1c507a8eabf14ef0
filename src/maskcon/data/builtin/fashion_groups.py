"""The ten kinds of Fashion-MNIST and the four coarse groups that we put them in."""

from __future__ import annotations

FINE_NAMES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
COARSE_NAMES = ("upper body", "full length", "footwear", "bag")
COARSE_OF_FINE = (0, 1, 0, 1, 0, 2, 0, 2, 3, 2)  # in the order of FINE_NAMES
OFFICIAL_TRAIN_COUNT = (
    60_000  # a test image's id is its official row plus this, so no id occurs in both parts
)
