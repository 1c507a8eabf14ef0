"""PIL's 8-bit colour operations on batches.

Functions take and return views [B, C, S, T], float32 with whole numbers 0..255; results equal `PIL.ImageOps` and
`PIL.ImageEnhance` exactly. `factors` and `thresholds` are [B]. C is 3 (RGB) or 1 (grey).
"""

from __future__ import annotations

import torch
from torch import Tensor

from maskcon.transforms.boxes import wide

# PIL's weights of red, green and blue in luma, in units of 1/65536.
LUMA = (19595.0, 38470.0, 7471.0)


def luma(views: Tensor) -> Tensor:
    """Convert to "L" as PIL does: [B, C, S, T] -> [B, 1, S, T]."""
    if views.shape[1] == 1:
        return views
    red, green, blue = views.unbind(1)
    # All sums are whole numbers below 2**24, so float32 holds them exactly.
    total = (red * LUMA[0]).add_(green * LUMA[1]).add_(blue * LUMA[2]).add_(32768.0)
    return total.mul_(1 / 65536).floor_().unsqueeze(1)


def blend(base: Tensor, views: Tensor, factors: Tensor) -> Tensor:
    """Compute PIL's Image.blend: base + factor * (views - base), clipped to 0..255 and truncated."""
    # Multiply and add round separately, as in PIL; a fused operation could differ by one level.
    change = (views - base).mul_(factors.float().view(-1, 1, 1, 1))
    return change.add_(base).clamp_(0.0, 255.0).floor_()


def brightness(views: Tensor, factors: Tensor) -> Tensor:
    """ImageEnhance.Brightness: towards black (0) or away from it (above 1)."""
    return (views * factors.float().view(-1, 1, 1, 1)).clamp_(0.0, 255.0).floor_()


def contrast(views: Tensor, factors: Tensor) -> Tensor:
    """ImageEnhance.Contrast: towards the mean luma of each image or away from it."""
    pixels = views.shape[2] * views.shape[3]
    totals = luma(views).to(torch.int32).sum(dim=(1, 2, 3))  # int64, exact
    mean = torch.div(2 * totals + pixels, 2 * pixels, rounding_mode="floor").float()  # floor(mean + .5)
    return blend(mean.view(-1, 1, 1, 1), views, factors)


def saturation(views: Tensor, factors: Tensor) -> Tensor:
    """ImageEnhance.Color: towards grey or away from it; grey images are unchanged."""
    if views.shape[1] == 1:
        return views
    return blend(luma(views), views, factors)


def sharpness(views: Tensor, factors: Tensor) -> Tensor:
    """ImageEnhance.Sharpness: towards PIL's SMOOTH filter or away from it; the outermost pixels are unchanged."""
    if min(views.shape[2:]) < 3:
        return views
    lines = views[:, :, :-2] + views[:, :, 1:-1] + views[:, :, 2:]  # [B, C, S-2, T]
    total = lines[:, :, :, :-2] + lines[:, :, :, 1:-1] + lines[:, :, :, 2:]
    total.add_(views[:, :, 1:-1, 1:-1], alpha=4.0)  # whole numbers, so exact
    smooth = views.clone()
    smooth[:, :, 1:-1, 1:-1] = total.add_(6.5).div_(13.0).floor_()
    return blend(smooth, views, factors)


def invert(views: Tensor) -> Tensor:
    """ImageOps.invert."""
    return 255.0 - views


def solarize(views: Tensor, thresholds: Tensor) -> Tensor:
    """ImageOps.solarize: invert what is at or above the threshold."""
    return torch.where(views < thresholds.float().view(-1, 1, 1, 1), views, 255.0 - views)


def posterize(views: Tensor, bits: Tensor) -> Tensor:
    """ImageOps.posterize: keep the highest bits."""
    step = torch.pow(2.0, 8 - bits.float()).view(-1, 1, 1, 1)
    return torch.floor(views / step).mul_(step)


def autocontrast(views: Tensor) -> Tensor:
    """ImageOps.autocontrast without cutoff: each channel stretched to 0..255."""
    lines = views.reshape(views.shape[0] * views.shape[1], -1)  # one line per channel
    low = lines.amin(dim=1, keepdim=True)  # aminmax takes five times as long as both
    span = lines.amax(dim=1, keepdim=True) - low
    # PIL multiplies in float64 and truncates: a whole-number result may come out slightly below and lose a level.
    # A table of the 256 levels repeats its arithmetic and is smaller than the images.
    # Divide a tensor by a tensor: `255.0 / tensor` multiplies by the reciprocal, which rounds twice.
    scale = torch.full_like(wide(span), 255.0) / span.clamp_min(1.0)
    levels = torch.arange(256, device=views.device, dtype=scale.dtype)
    table = (levels * scale).add_(-low * scale).clamp_(0.0, 255.0).floor_()  # [lines, 256]
    table = torch.where(span > 0, table, levels)
    return _look_up(table, _keys(lines)).view_as(views)


def equalize(views: Tensor) -> Tensor:
    """ImageOps.equalize: each channel's levels spread by its histogram."""
    lines = views.reshape(views.shape[0] * views.shape[1], -1)
    keys = _keys(lines)
    histogram = torch.bincount(keys, minlength=lines.shape[0] * 256).view(-1, 256)
    counts = wide(histogram)
    below = counts.cumsum(1).sub_(counts)  # pixels under each level
    # All pixels but those of the highest level present make 255 steps.
    last = lines.amax(dim=1, keepdim=True).long()
    step = below.gather(1, last).div_(255).floor_()  # [lines, 1]
    table = below.add_(step.div(2).floor_()).div_(step.clamp_min(1)).floor_().clamp_max_(255)
    levels = torch.arange(256, device=views.device, dtype=table.dtype)
    return _look_up(torch.where(step > 0, table, levels), keys).view_as(views)


def _keys(lines: Tensor) -> Tensor:
    """Return the flat index of each pixel of lines [L, P] in a table [L, 256], int32."""
    offsets = torch.arange(lines.shape[0], device=lines.device, dtype=torch.int32).mul_(256)
    return lines.to(torch.int32).add_(offsets.unsqueeze(1)).view(-1)


def _look_up(table: Tensor, keys: Tensor) -> Tensor:
    return table.float().view(-1).index_select(0, keys)
