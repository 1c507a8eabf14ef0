"""Crop boxes; then crop, resize, mirror and warp in one resampling step per view.

Views are resampled from the stored pixels. Boxes are in pixels of the stored image, drawn from a table of uniforms:
tensors [B] in float64, because they are rounded to whole pixels and a row must round alike in every batch.

* Rows without a warp: two small matrix products with the weights of PIL's (and torchvision's antialiased) triangle
  filter, whose width grows with the reduction. Upscaling equals bilinear interpolation of the crop, with edge pixels
  repeated at the border of the crop; downscaling does not alias. The difference from PIL's 8-bit result is PIL's own
  rounding, at most 1/255 (tested from 4x up to 8x down).
* Warped rows (perspective, rotation, shear, shift): one bilinear `grid_sample` from the stored pixels. If the crop is
  larger than the view, it is first reduced by the filter above and then warped, as in torchvision, because bilinear
  taps alone would alias.

Pixel values are on the scale 0..255.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

# Input values per block of rows: a large canvas is never converted to float at once, and a CPU's block stays in cache.
CPU_BLOCK = 2**19
DEVICE_BLOCK = 2**26
CROP_ATTEMPTS = 10


def wide(values: Tensor) -> Tensor:
    """Convert to float64, or to float32 on MPS, which has no float64."""
    return values.to(torch.float32 if values.device.type == "mps" else torch.float64)


@dataclass(frozen=True)
class Placement:
    """The part of each image that fills the view; all fields [B], in pixels, y down.

    The view shows the box (top, left, height, width). Filter taps never reach outside the rows [row_low, row_high)
    and columns [column_low, column_high): for a crop these are the box itself, because a crop is cut out before it
    is resized.
    """

    top: Tensor
    left: Tensor
    height: Tensor
    width: Tensor
    row_low: Tensor
    row_high: Tensor
    column_low: Tensor
    column_high: Tensor

    def rows(self, index: Tensor) -> Placement:
        """Return the placements of some rows."""
        return Placement(*(getattr(self, name)[index] for name in self.__dataclass_fields__))

    def to(self, device: torch.device) -> Placement:
        """Return the placements on a device."""
        return Placement(*(moved(getattr(self, name), device) for name in self.__dataclass_fields__))


def moved(values: Tensor, device: torch.device) -> Tensor:
    """Move values from the CPU without waiting; to MPS, without float64, as float32."""
    values = values.float() if device.type == "mps" and values.dtype == torch.float64 else values
    return values.to(device, non_blocking=True)


def box_placement(top: Tensor, left: Tensor, height: Tensor, width: Tensor) -> Placement:
    """Place a crop: nothing outside the box is visible."""
    return Placement(top, left, height, width, top, top + height, left, left + width)


@dataclass(frozen=True)
class RandomCrop:
    """The box of torchvision's RandomResizedCrop.

    Ten attempts draw an area share from `scale` and an aspect ratio, uniform in its logarithm, from `ratio`; the first
    box that fits is put at a uniform position. If none fits, the central box of the nearest allowed ratio is used.
    Uniforms per sample: an area and a ratio for each attempt, then the vertical and the horizontal position.
    """

    scale: tuple[float, float] = (0.2, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)

    @property
    def draws(self) -> int:
        return 2 * CROP_ATTEMPTS + 2

    def __call__(self, heights: Tensor, widths: Tensor, size: int, uniforms: Tensor) -> Placement:  # noqa: ARG002
        """Return whole-pixel boxes: heights, widths [B]; uniforms [B, draws]."""
        heights, widths, uniforms = wide(heights), wide(widths), wide(uniforms)
        share = uniforms[:, 0 : 2 * CROP_ATTEMPTS : 2]  # [B, attempts]
        tilt = uniforms[:, 1 : 2 * CROP_ATTEMPTS : 2]
        area = (heights * widths).unsqueeze(1) * (self.scale[0] + share * (self.scale[1] - self.scale[0]))
        low, high = math.log(self.ratio[0]), math.log(self.ratio[1])
        ratio = torch.exp(low + tilt * (high - low))
        tried_widths = torch.round(torch.sqrt(area * ratio))
        tried_heights = torch.round(torch.sqrt(area / ratio))
        fits = (tried_widths > 0) & (tried_widths <= widths.unsqueeze(1))
        fits &= (tried_heights > 0) & (tried_heights <= heights.unsqueeze(1))
        first = fits.to(torch.uint8).argmax(dim=1, keepdim=True)  # first attempt that fits, or 0
        found = fits.gather(1, first).squeeze(1)
        height = tried_heights.gather(1, first).squeeze(1)
        width = tried_widths.gather(1, first).squeeze(1)
        top = torch.floor(uniforms[:, -2] * (heights - height + 1))
        left = torch.floor(uniforms[:, -1] * (widths - width + 1))
        last_height, last_width = self._fallback(heights, widths)
        return box_placement(
            torch.where(found, top, torch.floor((heights - last_height) / 2)),
            torch.where(found, left, torch.floor((widths - last_width) / 2)),
            torch.where(found, height, last_height),
            torch.where(found, width, last_width),
        )

    def _fallback(self, heights: Tensor, widths: Tensor) -> tuple[Tensor, Tensor]:
        """Return height and width of the largest box whose ratio is allowed."""
        ratio = widths / heights
        height = torch.where(ratio < self.ratio[0], torch.round(widths / self.ratio[0]), heights)
        width = torch.where(ratio > self.ratio[1], torch.round(heights * self.ratio[1]), widths)
        return height.clamp_min(1), width.clamp_min(1)


@dataclass(frozen=True)
class WholeImage:
    """No crop: all of the image, stretched to the square of the view."""

    draws: int = 0

    def __call__(self, heights: Tensor, widths: Tensor, _size: int, _: Tensor | None = None) -> Placement:
        zero = torch.zeros_like(wide(heights))
        return box_placement(zero, zero, wide(heights), wide(widths))


@dataclass(frozen=True)
class CentreSquare:
    """No random crop: resize the shorter side to the view, then crop the centre.

    Filter taps may reach outside the box, because the resize comes before the crop.
    """

    draws: int = 0

    def __call__(self, heights: Tensor, widths: Tensor, size: int, _: Tensor | None = None) -> Placement:
        heights, widths = wide(heights), wide(widths)
        zero, shorter = torch.zeros_like(heights), torch.minimum(heights, widths)
        offsets, lengths = [], []
        for side in (heights, widths):
            resized = torch.floor(side * size / shorter)  # length after the resize, in whole pixels
            scale = side / resized
            offsets.append(torch.round((resized - size) / 2) * scale)
            lengths.append(size * scale)
        return Placement(offsets[0], offsets[1], lengths[0], lengths[1], zero, heights, zero, widths)


Crop = RandomCrop | WholeImage | CentreSquare


@dataclass(frozen=True)
class Warp:
    """Projective maps from coordinates of the view to those of the unwarped view.

    Attributes:
        matrices: [B, T, 3, 3], for T maps in sequence; pixel coordinates are (x, y, 1) with centres at .5.
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

    def to(self, device: torch.device) -> Warp:
        """Return the warps on a device."""
        return replace(self, matrices=moved(self.matrices, device), active=moved(self.active, device))


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
    """Compute positions for the triangle filter that resizes a part of a line.

    [start, start + length) of the line becomes `size` values.
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
    visible = (taps > low.unsqueeze(1)) & (taps < high.unsqueeze(1))
    return centres.float(), places.float(), visible.float()


def _triangle(values: Tensor, pixels: Tensor, visible: Tensor, *, dim: int) -> Tensor:
    """Compute weights from broadcastable positions; they sum to 1 along `dim`."""
    weights = torch.sub(pixels, values).abs_().neg_().add_(1.0).clamp_min_(0.0).mul_(visible)
    return weights.div_(weights.sum(dim=dim, keepdim=True))


def separable(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Compute rows @ images @ columns, [B, C, S, T].

    images: [B, C, H, W]; rows: [B, S, H]; columns: [B, W, T].

    The result is a transposed view: with the channels between the two axes, one product serves all of them.
    """
    batch, channels, height, width = images.shape
    lines = torch.empty(batch, height, channels, width, dtype=torch.float32, device=images.device)
    lines.copy_(images.transpose(1, 2))  # also converts uint8 to float
    low = torch.bmm(rows, lines.view(batch, height, channels * width))  # [B, S, C*W]
    views = torch.bmm(low.view(batch, -1, width), columns)  # [B, S*C, T]
    return views.view(batch, rows.shape[1], channels, columns.shape[2]).transpose(1, 2)


def resize(images: Tensor, placement: Placement, mirrored: Tensor | None, *, size: int) -> Tensor:
    """Crop, resize and mirror without a warp: [B, C, H, W] -> [B, C, size, size]."""
    at = placement
    height, width = images.shape[2:]
    values, pixels, visible = filter_places(
        at.top, at.height, at.row_low, at.row_high, None, pixels=height, size=size
    )
    rows = _triangle(values.unsqueeze(2), pixels.unsqueeze(1), visible.unsqueeze(1), dim=2)  # [B, size, H]
    values, pixels, visible = filter_places(
        at.left, at.width, at.column_low, at.column_high, mirrored, pixels=width, size=size
    )
    columns = _triangle(values.unsqueeze(1), pixels.unsqueeze(2), visible.unsqueeze(2), dim=1)  # [B, W, size]
    return separable(images, rows, columns)


def warped_grid(warp: Warp, *, size: int) -> tuple[Tensor, Tensor, Tensor | None]:
    """Compute where the pixels of the view lie in the unwarped view.

    Returns:
        x, y, and whether they lie inside (None if no fill is needed), each [B, size, size].
    """
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
    """Crop, mirror and warp in one sampling: [B, C, H, W] -> [B, C, size, size]."""
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
    """Make views on 0..255, float32 [B, C, size, size].

    images: [B, C, H, W], uint8, or float on 0..255.
    placement, mirrored, warp: on the CPU, where rows are grouped without waiting for the device of the images.
    """
    batch, channels = images.shape[:2]
    views = torch.empty(batch, channels, size, size, dtype=torch.float32, device=images.device)
    flat = torch.ones(batch, dtype=torch.bool) if warp is None else ~warp.active
    shrunk = (placement.height > size) | (placement.width > size)
    placement = placement.to(images.device)
    mirrored = None if mirrored is None else moved(mirrored, images.device)
    warp = None if warp is None else warp.to(images.device)
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
    """Split the numbers of chosen rows into blocks of bounded size.

    chosen: bool [B], on the CPU.
    """
    limit = CPU_BLOCK if images.device.type == "cpu" else DEVICE_BLOCK
    rows = chosen.nonzero().squeeze(1).to(images.device)
    return list(torch.split(rows, max(1, limit // images[0].numel()))) if len(rows) else []
