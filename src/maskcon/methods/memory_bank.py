"""A first-in, first-out memory of keys, with the coarse label and the sample number of each."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

EMPTY = -1  # label and sample number of a place that holds no key yet


class MemoryBank(nn.Module):
    """The last `size` keys seen, of any batch size, exact at every wrap-around.

    `keys`, `coarse` and `index` show the filled part only, so a bank that is not yet full is simply smaller.
    Everything is in the `state_dict`: a resumed run goes on with the same bank.

    compared_dim: beside each key another vector of this length is kept, by which relations compare (`compared`).

    Example:
        >>> bank = MemoryBank(size=3, dim=2)
        >>> bank.enqueue(torch.eye(2), coarse=torch.tensor([0, 1]), index=torch.tensor([10, 11]))
        >>> bank.enqueue(torch.eye(2), coarse=torch.tensor([2, 3]), index=torch.tensor([12, 13]))
        >>> bank.coarse, len(bank)  # place 0 was overwritten
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
        # Saved as a tensor; read from plain numbers, which need no wait for the device.
        self.register_buffer("_state", torch.zeros(2, dtype=torch.long, device=device))
        self._next, self._filled = 0, 0

    def __len__(self) -> int:
        """Keys held, at most `size`."""
        return self._filled

    @property
    def keys(self) -> Tensor:
        """Keys held, float32 ``[K, D]``; a view that `enqueue` writes to."""
        return self._keys[: self._filled]

    @property
    def compared(self) -> Tensor:
        """What relations compare them by, float32 ``[K, F]``: the keys themselves where nothing is kept beside them."""
        return self.keys if self._compared is None else self._compared[: self._filled]

    @property
    def coarse(self) -> Tensor:
        """Their labels, ``[K]``."""
        return self._coarse[: self._filled]

    @property
    def index(self) -> Tensor:
        """Their sample numbers, ``[K]``."""
        return self._index[: self._filled]

    @torch.no_grad()
    def enqueue(self, keys: Tensor, coarse: Tensor, index: Tensor, compared: Tensor | None = None) -> None:
        """Take in a batch, over the oldest entries: keys ``[B, D]``, coarse ``[B]``, index ``[B]``.

        compared: ``[B, F]``, where the bank has a `compared_dim`, and only there.
        """
        count = len(keys)
        wanted = None if self.compared_dim is None else (count, self.compared_dim)
        if (None if compared is None else tuple(compared.shape)) != wanted:
            raise ValueError(
                f"this bank compares by {'its keys' if wanted is None else f'vectors {list(wanted)}'}; "
                f"enqueue got {'none' if compared is None else list(compared.shape)} beside them"
            )
        if keys.shape != (count, self.dim) or coarse.shape != (count,) or index.shape != (count,):
            raise ValueError(
                f"enqueue takes keys [B, {self.dim}], coarse [B], index [B]; "
                f"got {tuple(keys.shape)}, {tuple(coarse.shape)}, {tuple(index.shape)}"
            )
        skipped = max(0, count - self.size)  # of a batch larger than the bank, only the end can stay
        self._next = (self._next + skipped) % self.size
        done = skipped
        while done < count:  # at most two stretches: up to the end of the ring, then from its start
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
        """Have relations compare by these from now on: ``[K, F]``, one for each key held, in the order of `index`."""
        if self._compared is None or compared.shape != self.compared.shape:
            raise ValueError(
                f"this bank compares by {list(self.compared.shape)} vectors, got {list(compared.shape)}"
            )
        self.compared.copy_(compared)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._next, self._filled = (int(value) for value in self._state.tolist())

    def extra_repr(self) -> str:
        return f"size={self.size}, dim={self.dim}, filled={self._filled}"
