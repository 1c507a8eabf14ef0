"""Crop, resize, mirror and warp in one resampling step per view, from the stored pixels.

* Rows without a warp: two small matrix products with the weights of PIL's (and torchvision's antialiased) triangle
  filter, whose width grows with the reduction. Upscaling equals bilinear interpolation of the crop, with edge pixels
  repeated at the border of the crop; downscaling does not alias. The difference from PIL's 8-bit result is PIL's own
  rounding, at most 1/255 (tested from 4x up to 8x down).
* Warped rows (perspective, rotation, shear, shift): one bilinear `grid_sample` from the stored pixels. If the crop is
  larger than the view, it is first reduced by the filter above and then warped, as in torchvision, because bilinear
  taps alone would alias.

All values are on the scale 0..255.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from maskcon.transforms.boxes import Placement, WholeImage

# Input values per block of rows: a large canvas is never converted to float at once, and a CPU's block stays in cache.
CPU_BLOCK = 2**19
DEVICE_BLOCK = 2**26


@dataclass(frozen=True)
class Warp:
    """Projective maps from pixel coordinates of the view to those of the unwarped view.

    Attributes:
        matrices: [B, T, 3, 3], for T maps in sequence; coordinates are (x, y, 1) with pixel centres at .5.
        active: [B] bool, rows whose maps are not all the identity.
        fill: level 0..255 for pixels outside the unwarped view after any of the maps; None repeats the edge.
        projective: if False, the bottom rows are (0, 0, 1) and no division is needed.
    """

    matrices: Tensor
    active: Tensor
    fill: float | None
    projective: bool = False

    def rows(self, index: Tensor) -> Warp:
        """Return the warps of some rows."""
        return replace(self, matrices=self.matrices[index], active=self.active[index])


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
    """Compute positions for the triangle filter that resizes [start, start + length) of a line to `size` values.

    The weight of a pixel in a value is max(0, 1 - |value - pixel|) * visible, scaled to sum 1.

    Args:
        start, length, low, high: [B]; pixels outside low..high are not visible.
        mirrored: [B] bool, or None.
        pixels: length of the line.

    Returns:
        Positions of the values [B, size] and of the pixels [B, pixels], in units of the filter's reach, and which
        pixels are visible [B, pixels], as 0 or 1; all float32.
    """
    scale = (length / size).unsqueeze(1)  # [B, 1]
    values = torch.arange(size, device=start.device, dtype=start.dtype) + 0.5
    if mirrored is not None:
        values = torch.where(mirrored.unsqueeze(1), size - values, values)  # [B, size]
    taps = torch.arange(pixels, device=start.device, dtype=start.dtype) + 0.5
    reach = scale.clamp_min(1.0)
    # Measured from the start of the box: float32 then keeps the fractions on wide canvases.
    centres = values * (scale / reach)
    places = (taps - start.unsqueeze(1)) / reach
    seen = (taps > low.unsqueeze(1)) & (taps < high.unsqueeze(1))
    return centres.float(), places.float(), seen.float()


def _triangle(values: Tensor, pixels: Tensor, seen: Tensor, *, total: int) -> Tensor:
    """Compute weights from broadcastable positions; they sum to 1 along the axis `total`."""
    weights = torch.sub(pixels, values).abs_().neg_().add_(1.0).clamp_min_(0.0).mul_(seen)
    return weights.div_(weights.sum(dim=total, keepdim=True))


def separable(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Compute rows @ images @ columns: images [B, C, H, W], rows [B, S, H], columns [B, W, T] -> [B, C, S, T].

    The result is a transposed view: with the channels between the two axes, one product serves all of them.
    """
    batch, channels, height, width = images.shape
    lines = torch.empty(batch, height, channels, width, dtype=torch.float32, device=images.device)
    lines.copy_(images.transpose(1, 2))  # also converts uint8 to float
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
    """Compute x, y in the unwarped view per pixel of the view, and whether they lie inside; each [B, size, size]."""
    matrices = warp.matrices.float()
    steps = torch.arange(size, device=matrices.device, dtype=torch.float32) + 0.5
    x, y = steps.view(1, 1, size), steps.view(1, size, 1)
    inside: Tensor | None = None
    for turn in range(matrices.shape[1] - 1, -1, -1):  # the last map is undone first
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
    """Make views of images [B, C, H, W] (uint8, or float on 0..255): float32 [B, C, size, size] on 0..255."""
    batch, channels = images.shape[:2]
    views = torch.empty(batch, channels, size, size, dtype=torch.float32, device=images.device)
    flat = torch.ones(batch, dtype=torch.bool) if warp is None else ~warp.active.cpu()
    shrunk = ((placement.height > size) | (placement.width > size)).cpu()
    for rows in _blocks(flat | shrunk, images):
        flags = None if mirrored is None else mirrored[rows]
        views[rows] = resize(images[rows], placement.rows(rows), flags, size=size)
    if warp is None:
        return views
    for rows in _blocks(~flat & ~shrunk, images):
        flags = None if mirrored is None else mirrored[rows]
        pixels = images[rows].float()
        views[rows] = warp_view(pixels, placement.rows(rows), flags, warp.rows(rows), size=size)
    for rows in _blocks(~flat & shrunk, views):
        side = torch.full((len(rows),), float(size), device=images.device)
        whole = WholeImage()(side, side, size)
        views[rows] = warp_view(views[rows], whole, None, warp.rows(rows), size=size)
    return views


def _blocks(chosen: Tensor, images: Tensor) -> list[Tensor]:
    """Split the indices of chosen rows (bool [B], on the CPU) into blocks of bounded size."""
    limit = CPU_BLOCK if images.device.type == "cpu" else DEVICE_BLOCK
    rows = chosen.nonzero().squeeze(1).to(images.device)
    return list(torch.split(rows, max(1, limit // images[0].numel()))) if len(rows) else []
