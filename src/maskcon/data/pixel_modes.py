"""Convert images of any mode to 8-bit grey or colour, in strips to bound memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from PIL import Image

GREY_MODES = frozenset({"1", "L", "I", "I;16", "I;16B", "I;16L", "I;16N"})
STRIP_PIXELS, STRIP_BYTES = 1 << 18, 16 << 20  # pixels of a strip, and the most memory to convert one
SIXTEEN_BITS = (0.0, 65535.0)


def convert(image: Image.Image, mode: str, factor: int = 1) -> Image.Image:
    """Convert to mode L or RGB and average over squares of factor x factor pixels.

    Transparent parts are put on white.
    """
    limits = _limits(image) if _is_deep(image) else (0.0, 0.0)
    strips = list(_strips(image, factor))
    if len(strips) == 1 or (image.mode == mode and "transparency" not in image.info):
        return _reduced(image, mode, factor, limits)
    whole = Image.new(mode, (-(-image.width // factor), -(-image.height // factor)))
    for top, bottom in strips:
        strip = image.crop((0, top, image.width, bottom))
        whole.paste(_reduced(strip, mode, factor, limits), (0, top // factor))
    return whole


def _strips(image: Image.Image, factor: int = 1) -> Iterator[tuple[int, int]]:
    """Yield first and last row (exclusive) of strips; heights divide by `factor`."""
    rows = max(1, STRIP_PIXELS // (image.width * factor)) * factor
    for top in range(0, image.height, rows):
        yield top, min(top + rows, image.height)


def _reduced(image: Image.Image, mode: str, factor: int, limits: tuple[float, float]) -> Image.Image:
    plain = _plain(image, limits)
    if plain.mode != mode:  # Pillow's conversion copies even if the mode is the same
        plain = plain.convert(mode)
    return plain.reduce(factor) if factor > 1 else plain


def _plain(image: Image.Image, limits: tuple[float, float]) -> Image.Image:
    """Convert an image to 8 bits, without transparency."""
    if _is_deep(image):
        return Image.fromarray(_to_bytes(image, *limits))
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        colour = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", colour.size, "white"), colour).convert("RGB")
    mode = "L" if image.mode in GREY_MODES else "RGB"
    return image if image.mode == mode else image.convert(mode)


def _is_deep(image: Image.Image) -> bool:
    return image.mode.startswith("I") or image.mode == "F"


def _values(image: Image.Image) -> NDArray[np.float64]:
    values = np.asarray(image).astype(np.float64)
    return np.nan_to_num(values, copy=False, posinf=0.0, neginf=0.0) if image.mode == "F" else values


def _limits(image: Image.Image) -> tuple[float, float]:
    """Return the values that become black and white.

    16-bit files keep one common scale, others are stretched.
    """
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM")):
        return SIXTEEN_BITS
    low, high = np.inf, -np.inf
    for top, bottom in _strips(image):
        values = _values(image.crop((0, top, image.width, bottom)))
        low, high = min(low, float(values.min())), max(high, float(values.max()))
    if image.mode == "I" and low >= 0 and 255 < high <= 65535:
        return SIXTEEN_BITS
    if low >= 0 and high <= 1 and image.mode == "F":
        return 0.0, 1.0
    if low >= 0 and high <= 255:
        return 0.0, 255.0
    return low, high


def _to_bytes(image: Image.Image, low: float, high: float) -> NDArray[np.uint8]:
    """Scale greys of low..high to 0..255."""
    scaled = (_values(image) - low) * (255.0 / max(high - low, 1e-12))
    return np.clip(np.rint(scaled), 0, 255).astype(np.uint8)
