"""Keys without a key encoder: of each training image, a running mean of what the encoder made of its views."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from maskcon.models.heads import unit_rows


class KeyMeans(nn.Module):
    """The mean query of every training image, on the unit sphere: ``[N, D]``, all of it in the `state_dict`.

    A key encoder costs about a quarter of a step. A mean of the image's queries of earlier epochs, the older the less
    they count, costs hardly anything (docs/performance.md tells when it serves).

    Args:
        images: N.
        dim: D.
        kept: share of the old mean in the new one, 0 <= kept < 1; 0 is the last query alone.

    Example:
        >>> means = KeyMeans(images=3, dim=2, kept=0.5)
        >>> means.take_in(torch.tensor([0, 2]), torch.eye(2))
        >>> means.take_in(torch.tensor([0]), torch.tensor([[0.0, 1.0]]))
        >>> unseen = torch.tensor([[-1.0, 0.0]] * 3)
        >>> means.of(torch.arange(3), unseen)
        tensor([[ 0.7071,  0.7071],
                [-1.0000,  0.0000],
                [ 0.0000,  1.0000]])
    """

    def __init__(
        self, images: int, dim: int, *, kept: float, device: torch.device | str | None = None
    ) -> None:
        super().__init__()
        if not 0 <= kept < 1:
            raise ValueError(f"{kept=} must be at least 0 and less than 1")
        self.kept = kept
        self._means: Tensor
        self.register_buffer("_means", torch.zeros(images, dim, device=device))

    @torch.no_grad()
    def of(self, rows: Tensor, queries: Tensor) -> Tensor:
        """Keys ``[B, D]`` of images by their row numbers ``[B]``; of one never seen, its query ``[B, D]`` itself."""
        found = self._means[rows]
        return torch.where(found.any(dim=1, keepdim=True), found, queries.float())

    @torch.no_grad()
    def take_in(self, rows: Tensor, queries: Tensor) -> None:
        """Move the means of these rows ``[B]`` towards unit vectors ``[B, D]``; the first of an image is its mean."""
        mixed = torch.lerp(queries.float(), self.of(rows, queries), self.kept)
        self._means[rows] = unit_rows(mixed)

    def extra_repr(self) -> str:
        return f"images={len(self._means)}, dim={self._means.shape[1]}, kept={self.kept:g}"
