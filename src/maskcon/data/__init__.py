"""Images and labels: one module per kind of source, one contract for all of them.

>>> from maskcon.data import load
>>> load("embedded").coarse_names
('upper body', 'full length', 'footwear', 'bag')
"""

from __future__ import annotations

from maskcon._utils.paths import data_root
from maskcon.data.builtin.registry import Description, SourceInfo, catalogue, describe
from maskcon.data.dataset import Dataset, Grouping, ImageSet
from maskcon.data.decoding import read_images
from maskcon.data.in_memory import from_arrays
from maskcon.data.loading import (
    absolute,
    image_plan,
    is_path,
    is_there,
    load,
    takes_image_size,
)

__all__ = [
    "Dataset",
    "Description",
    "Grouping",
    "ImageSet",
    "SourceInfo",
    "absolute",
    "catalogue",
    "data_root",
    "describe",
    "from_arrays",
    "image_plan",
    "is_path",
    "is_there",
    "load",
    "read_images",
    "takes_image_size",
]
