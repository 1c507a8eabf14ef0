"""The frozen path: every image is seen by a pretrained backbone once, and only a head is trained on what it saw.

pictures -> views, a few each -> backbone -> cache on disk     (extract.py, cache.py; once)
cache -> one of the cached views, at random -> head -> ...     (prepared.py; the usual engine)
"""

from __future__ import annotations

from maskcon.training.frozen.axes import axes_kept
from maskcon.training.frozen.prepared import (
    FrozenFeatures,
    frozen_backbone,
    prepare,
    require_weights,
)

__all__ = [
    "FrozenFeatures",
    "axes_kept",
    "frozen_backbone",
    "prepare",
    "require_weights",
]
