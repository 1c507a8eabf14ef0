"""The pictures of a source, whatever it is: listed without decoding any, then read some at a time onto one canvas.

    given      a folder, a manifest, a list, pictures, a data set by name, `hf:NAME` or a `Dataset`: what is there
    files      pictures that are files of their own
    arrays     pictures that come as arrays

`embed` and `index` read pictures through this. Labels are told where a source has them, and never needed.
"""

from __future__ import annotations

from maskcon.data.collection.arrays import ArrayPictures, with_channels
from maskcon.data.collection.base import Block, Pictures, Stamp, at_once, none_readable
from maskcon.data.collection.files import FilePictures
from maskcon.data.collection.opening import Given, gather

__all__ = [
    "ArrayPictures",
    "Block",
    "FilePictures",
    "Given",
    "Pictures",
    "Stamp",
    "at_once",
    "gather",
    "none_readable",
    "with_channels",
]
