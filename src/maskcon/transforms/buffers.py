"""Memory for views that is used again once nobody looks at them: fresh memory costs as much time as making a view.

A system hands out a large block page by page, at the first touch of each; a batch of views is several hundred pages.
"""

from __future__ import annotations

import weakref

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

KEPT = 2  # blocks kept for later: the views of one step may still be looked at while the next are made


class Lender:
    """Hands out tensors and takes their memory back when the last tensor or array that shows any of it is gone."""

    def __init__(self) -> None:
        self._kept: list[NDArray[np.float32]] = []

    def lend(self, rows: int, values: int) -> Tensor:
        """float32 [rows, values] on the CPU, with anything in it."""
        count = rows * values
        try:
            block = self._kept.pop()
        except IndexError:  # or another thread was faster
            block = np.empty(count, np.float32)
        if len(block) < count:
            self._kept.clear()  # larger ones are wanted from now on
            block = np.empty(count, np.float32)
        lent = block[:count].reshape(rows, values)
        # A tensor of this array keeps it alive, and so does all that shares the tensor's memory.
        weakref.finalize(lent, _take_back, self._kept, block).atexit = False
        return torch.from_numpy(lent)


def _take_back(kept: list[NDArray[np.float32]], block: NDArray[np.float32]) -> None:
    if len(kept) < KEPT:
        kept.append(block)
