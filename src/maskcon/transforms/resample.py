"""One resample per view: crop, resize, mirror and any warp, evaluated straight from the stored pixels.

Two evaluators share the work, row by row:

* Rows without a warp are separable: two small matrix products with per-row filter weights. The weights are PIL's
  (and torchvision's antialiased) triangle filter, whose width grows with the reduction, so upscaling equals bilinear
  interpolation of the crop, edge pixels replicated at the CROP's border, and downscaling does not alias. Against PIL's
  8-bit result the difference is PIL's own rounding: at most 1/255 (tested from 4x up to 8x down).
* Warped rows (perspective, rotation, shear, shift) are one bilinear `grid_sample` from the stored pixels. A warped row
  whose crop is LARGER than the view is first reduced by the filter above and then warped, because bilinear taps alone
  would alias; that row is the only kind that is interpolated twice, as it is in torchvision.

Values are on the scale 0..255 throughout.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from maskcon.transforms.boxes import Piece, Placement, box_placement, take

# Input values per piece of rows: on a CPU a piece stays in the cache, and a large canvas is never converted to float
# at once.
CPU_PIECE = 2**19
DEVICE_PIECE = 2**26


@dataclass(frozen=True)
class Warp:
    """Projective maps from the view's pixel coordinates back into the unwarped view's.

    matrices: [B, T, 3, 3], for T maps done one after the other; coordinates are (x, y, 1) with pixel centres at .5.
    active: [B] bool, rows whose maps are not all the identity.
    fill: level 0..255 for what lies outside the unwarped view after any of the maps, or None to repeat its edge.
    projective: False promises that the bottom rows are (0, 0, 1), which saves the division.
    """

    matrices: Tensor
    active: Tensor
    fill: float | None
    projective: bool = False

    def rows(self, piece: Piece) -> Warp:
        """Return the matrices of some rows; `active` is unchanged."""
        return replace(self, matrices=take(self.matrices, piece))


def filter_places(
    start: Tensor,
    length: Tensor,
    low: Tensor,
    high: Tensor,
    mirrored: Tensor | None,
    *,
    pixels: int,
    size: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Places for the triangle filter that resizes [start, start + length) of a line of `pixels` to `size` values.

    start, length, low, high: [B]; mirrored: [B] bool or None. Returns, in float32 and in units of the filter's reach,
    where the middle of each value lies [B, size] and where each pixel lies [B, pixels]; and which pixels may be seen
    [B, pixels], as 0 or 1. The weight of a pixel in a value is max(0, 1 - |value - pixel|) * seen, scaled to sum 1.
    """
    scale = (length / size).unsqueeze(1)  # [B, 1]
    values = torch.arange(size, device=start.device, dtype=start.dtype) + 0.5
    if mirrored is not None:
        values = torch.where(mirrored.unsqueeze(1), size - values, values)  # [B, size]
    taps = torch.arange(pixels, device=start.device, dtype=start.dtype) + 0.5
    reach = scale.clamp_min(1.0)
    # Measured from the start of the box, so that float32 keeps the fractions on wide canvases too.
    centres = values * (scale / reach)
    places = (taps - start.unsqueeze(1)) / reach
    seen = (taps > low.unsqueeze(1)) & (taps < high.unsqueeze(1))
    return centres.float(), places.float(), seen.float()


def _triangle(values: Tensor, pixels: Tensor, seen: Tensor, *, total: int) -> Tensor:
    """Weights from broadcastable distances, each summing to 1 along the axis `total`."""
    weights = torch.sub(pixels, values).abs_().neg_().add_(1.0).clamp_min_(0.0).mul_(seen)
    return weights.div_(weights.sum(dim=total, keepdim=True))


def separable(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """images [B, C, H, W], rows [B, S, H], columns [B, W, T] -> rows @ images @ columns, float32 [B, C, S, T].

    The result is a transposed view: channels lie between the two axes, so that one product serves all of them.
    """
    batch, channels, height, width = images.shape
    lines = torch.empty(batch, height, channels, width, dtype=torch.float32, device=images.device)
    lines.copy_(images.transpose(1, 2))  # the one pass that also turns uint8 into float
    low = torch.bmm(rows, lines.view(batch, height, channels * width))  # [B, S, C*W]
    views = torch.bmm(low.view(batch, -1, width), columns)  # [B, S*C, T]
    return views.view(batch, rows.shape[1], channels, columns.shape[2]).transpose(1, 2)


def resize(images: Tensor, placement: Placement, mirrored: Tensor | None, *, size: int) -> Tensor:
    """Crop, resize and mirror without a warp: images [B, C, H, W] on the scale 0..255 -> [B, C, size, size]."""
    at = placement
    height, width = images.shape[2:]
    values, pixels, seen = filter_places(
        at.top, at.height, at.row_low, at.row_high, None, pixels=height, size=size
    )
    rows = _triangle(values.unsqueeze(2), pixels.unsqueeze(1), seen.unsqueeze(1), total=2)  # [B, size, H]
    values, pixels, seen = filter_places(
        at.left, at.width, at.column_low, at.column_high, mirrored, pixels=width, size=size
    )
    columns = _triangle(values.unsqueeze(1), pixels.unsqueeze(2), seen.unsqueeze(2), total=1)  # [B, W, size]
    return separable(images, rows, columns)


def warped_grid(warp: Warp, *, size: int) -> tuple[Tensor, Tensor, Tensor | None]:
    """x and y in the unwarped view for each pixel of the view, and which of them lie inside; each [B, size, size]."""
    matrices = warp.matrices.float()
    steps = torch.arange(size, device=matrices.device, dtype=torch.float32) + 0.5
    x, y = steps.view(1, 1, size), steps.view(1, size, 1)
    inside: Tensor | None = None
    # The last map done is the first to be undone.
    for turn in range(matrices.shape[1] - 1, -1, -1):
        a, b, c, d, e, f, g, h, i = matrices[:, turn].reshape(-1, 9, 1, 1).unbind(1)  # each [B, 1, 1]
        new_x, new_y = a * x + b * y + c, d * x + e * y + f
        if warp.projective:
            depth = g * x + h * y + i
            new_x, new_y = new_x / depth, new_y / depth
        x, y = new_x, new_y
        if warp.fill is not None:
            here = (x >= 0) & (x < size) & (y >= 0) & (y < size)
            inside = here if inside is None else inside & here
    return x, y, inside


def warp_view(
    images: Tensor, placement: Placement, mirrored: Tensor | None, warp: Warp, *, size: int
) -> Tensor:
    """Crop, mirror and warp in one bilinear sampling: images [B, C, H, W] -> [B, C, size, size]."""
    height, width = images.shape[2:]
    x, y, inside = warped_grid(warp, size=size)
    scale_x, start_x = placement.width / size, placement.left
    if mirrored is not None:
        start_x = torch.where(mirrored, start_x + placement.width, start_x)
        scale_x = torch.where(mirrored, -scale_x, scale_x)
    scale_y = placement.height / size

    def source(view: Tensor, start: Tensor, scale: Tensor, low: Tensor, high: Tensor, length: int) -> Tensor:
        start, scale, low, high = (value.float().view(-1, 1, 1) for value in (start, scale, low, high))
        # grid_sample rounds: without the margin, the pixel beyond the last valid one would get a weight of 1e-6.
        margin = 4e-7 * length
        stored = torch.minimum(torch.maximum(view * scale + start, low + 0.5), high - (0.5 + margin))
        return stored * (2 / length) - 1  # grid_sample's scale, align_corners=False

    grid = torch.stack(
        [
            source(x, start_x, scale_x, placement.column_low, placement.column_high, width),
            source(y, placement.top, scale_y, placement.row_low, placement.row_high, height),
        ],
        dim=3,
    )  # [B, size, size, 2]
    views = F.grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=False)
    if inside is None or warp.fill is None:
        return views
    return views.masked_fill_(inside.logical_not_().unsqueeze(1), warp.fill)


def resample(
    images: Tensor, placement: Placement, mirrored: Tensor | None, warp: Warp | None, *, size: int
) -> Tensor:
    """Views of images [B, C, H, W] (uint8, or float on 0..255): float32 [B, C, size, size] on 0..255."""
    batch, channels, height, width = images.shape
    views = torch.empty(batch, channels, size, size, dtype=torch.float32, device=images.device)
    flat = torch.ones(batch, dtype=torch.bool) if warp is None else ~warp.active.cpu()
    shrunk = torch.zeros(batch, dtype=torch.bool)
    if warp is not None and (height > size or width > size):
        shrunk = ((placement.height > size) | (placement.width > size)).cpu()
    for piece in _pieces(flat | shrunk, images):
        turned = None if mirrored is None else take(mirrored, piece)
        _put(views, piece, resize(take(images, piece), placement.rows(piece), turned, size=size))
    if warp is None:
        return views
    for piece in _pieces(~flat & ~shrunk, images):
        turned = None if mirrored is None else take(mirrored, piece)
        pixels = take(images, piece).float()
        _put(views, piece, warp_view(pixels, placement.rows(piece), turned, warp.rows(piece), size=size))
    for piece in _pieces(~flat & shrunk, views):
        reduced = take(views, piece)
        side = torch.full((reduced.shape[0],), float(size), device=images.device)
        whole = box_placement(torch.zeros_like(side), torch.zeros_like(side), side, side)
        _put(views, piece, warp_view(reduced, whole, None, warp.rows(piece), size=size))
    return views


def _pieces(chosen: Tensor, images: Tensor) -> list[Piece]:
    """The chosen rows (bool [B], on the CPU) in pieces of bounded size; slices, which cost no copy, if all are."""
    batch = chosen.shape[0]
    rows = chosen.nonzero().squeeze(1)
    if rows.shape[0] == 0:
        return []
    limit = CPU_PIECE if images.device.type == "cpu" else DEVICE_PIECE
    step = max(1, limit // images[0].numel())
    if rows.shape[0] == batch:
        return [slice(first, min(first + step, batch)) for first in range(0, batch, step)]
    return [piece.to(images.device) for piece in torch.split(rows, step)]


def _put(views: Tensor, piece: Piece, values: Tensor) -> None:
    if isinstance(piece, slice):
        views[piece] = values
    else:
        views.index_copy_(0, piece, values)
