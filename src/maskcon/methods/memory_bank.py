"""Memory bank: a first-in, first-out queue of keys with labels and sample numbers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

EMPTY = -1  # label and sample number of an unused slot


class MemoryBank(nn.Module):
    """The last `size` keys, for any batch size.

    `keys` [K, D], `coarse` [K] and `index` [K] return the filled part only; K grows up to `size`. All buffers are in
    the `state_dict`, so a resumed run has the same bank.

    Args:
        size: largest K.
        dim: D.
        compared_dim: F, length of a second vector per key that relations compare instead of the key (`compared`).
        device: of the buffers.

    Example:
        >>> bank = MemoryBank(size=3, dim=2)
        >>> bank.enqueue(torch.eye(2), coarse=torch.tensor([0, 1]), index=torch.tensor([10, 11]))
        >>> bank.enqueue(torch.eye(2), coarse=torch.tensor([2, 3]), index=torch.tensor([12, 13]))
        >>> bank.coarse, len(bank)  # slot 0 was overwritten
        (tensor([3, 1, 2]), 3)
    """

    def __init__(
        self,
        size: int,
        dim: int,
        *,
        compared_dim: int | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        if size < 1 or dim < 1 or (compared_dim is not None and compared_dim < 1):
            raise ValueError(f"a bank needs {size=} >= 1, {dim=} >= 1 and {compared_dim=} >= 1 or None")
        self.size, self.dim, self.compared_dim = size, dim, compared_dim
        self._keys: Tensor
        self._compared: Tensor | None
        self._coarse: Tensor
        self._index: Tensor
        self._state: Tensor
        self.register_buffer("_keys", torch.zeros(size, dim, dtype=torch.float32, device=device))
        compared = None if compared_dim is None else torch.zeros(size, compared_dim, device=device)
        self.register_buffer("_compared", compared)
        self.register_buffer("_coarse", torch.full((size,), EMPTY, dtype=torch.long, device=device))
        self.register_buffer("_index", torch.full((size,), EMPTY, dtype=torch.long, device=device))
        # Saved as a tensor; read as Python numbers, which do not synchronise with the device.
        self.register_buffer("_state", torch.zeros(2, dtype=torch.long, device=device))
        self._next, self._filled = 0, 0

    def __len__(self) -> int:
        """Return the number of keys, at most `size`."""
        return self._filled

    @property
    def keys(self) -> Tensor:
        """Keys, float32 ``[K, D]``; a view that `enqueue` writes to."""
        return self._keys[: self._filled]

    @property
    def compared(self) -> Tensor:
        """Vectors that relations compare, float32 ``[K, F]``; by default the keys."""
        return self.keys if self._compared is None else self._compared[: self._filled]

    @property
    def coarse(self) -> Tensor:
        """Coarse labels, ``[K]``."""
        return self._coarse[: self._filled]

    @property
    def index(self) -> Tensor:
        """Sample numbers, ``[K]``."""
        return self._index[: self._filled]

    @torch.no_grad()
    def enqueue(self, keys: Tensor, coarse: Tensor, index: Tensor, compared: Tensor | None = None) -> None:
        """Replace the oldest entries: keys ``[B, D]``, coarse ``[B]``, index ``[B]``.

        compared: ``[B, F]``, required if the bank has a `compared_dim`, else None.
        """
        count = len(keys)
        expected = None if self.compared_dim is None else (count, self.compared_dim)
        given = None if compared is None else tuple(compared.shape)
        if given != expected:
            raise ValueError(
                f"this bank has compared_dim={self.compared_dim}: enqueue expects compared of shape {expected}, "
                f"got {given}"
            )
        if keys.shape != (count, self.dim) or coarse.shape != (count,) or index.shape != (count,):
            raise ValueError(
                f"enqueue takes keys [B, {self.dim}], coarse [B], index [B]; "
                f"got {tuple(keys.shape)}, {tuple(coarse.shape)}, {tuple(index.shape)}"
            )
        skipped = max(0, count - self.size)  # of a batch larger than the bank, only the end is kept
        self._next = (self._next + skipped) % self.size
        done = skipped
        while done < count:  # at most twice: up to the end of the ring, then from its start
            stretch = min(count - done, self.size - self._next)
            place = slice(self._next, self._next + stretch)
            source = slice(done, done + stretch)
            self._keys[place] = keys[source].to(self._keys.dtype)
            if self._compared is not None and compared is not None:
                self._compared[place] = compared[source].to(self._compared.dtype)
            self._coarse[place] = coarse[source]
            self._index[place] = index[source]
            self._next = (self._next + stretch) % self.size
            done += stretch
        self._filled = min(self.size, self._filled + count)
        self._state.copy_(torch.tensor([self._next, self._filled]), non_blocking=True)

    @torch.no_grad()
    def compare_by(self, compared: Tensor) -> None:
        """Replace `compared` by ``[K, F]``, in the order of `index`."""
        if self._compared is None or compared.shape != self.compared.shape:
            expected = None if self._compared is None else tuple(self.compared.shape)
            raise ValueError(
                f"this bank has compared_dim={self.compared_dim}: compare_by expects vectors of shape {expected}, "
                f"got {tuple(compared.shape)}"
            )
        self.compared.copy_(compared)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._next, self._filled = (int(value) for value in self._state.tolist())

    def extra_repr(self) -> str:
        return f"size={self.size}, dim={self.dim}, filled={self._filled}"
