"""Decode an image file of any size and mode to uint8 pixels on a square canvas."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from maskcon._utils.errors import DataError, UsageError, stop_at_breakdown
from maskcon._utils.paths import check_regular
from maskcon.data.pixel_modes import GREY_MODES, STRIP_BYTES, convert

EXTENSIONS = frozenset(
    (
        *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff"),
        *(".ppm", ".pgm", ".pbm", ".pnm", ".tga", ".jp2", ".avif"),
    )
)
# images that Pillow cannot read (HEIC of iPhones, JPEG XL) are reported; other files are ignored
FOREIGN_EXTENSIONS = frozenset({".heic", ".heif", ".jxl"})
# Pillow's readers in use: some of the others start programs or parse documents
FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "PPM", "TGA", "JPEG2000", "AVIF")
ORIENTATION_TAG = 0x0112
TURN = {  # EXIF orientation -> operation that turns the image upright
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
SWAPPED = (5, 6, 7, 8)  # EXIF orientations that swap width and height
# a JPEG is decoded at no less than this multiple of the target size; a better filter does the rest
DRAFT_MARGIN = 2
# other images are first averaged over squares of pixels, which is fast, to no less than this multiple
REDUCING_GAP = 3


class MemoryBudget:
    """Bytes that all threads may use together; a thread waits for its share."""

    def __init__(self, size: int) -> None:
        self.size = self._free = size
        self._changed = threading.Condition()

    @contextmanager
    def reserve(self, size: int) -> Iterator[None]:
        """Reserve bytes inside the block; raise `ValueError` if they exceed the budget.

        Not reentrant: a thread that reserves twice may wait for itself.
        """
        if size > self.size:
            raise ValueError(
                f"needs about {size >> 20:,} MB to decode, more than {self.size >> 20:,} MB; "
                "shrink it, or save it as a baseline JPEG"
            )
        with self._changed:
            self._changed.wait_for(lambda: self._free >= size)
            self._free -= size
        try:
            yield
        finally:
            with self._changed:
                self._free += size
                self._changed.notify_all()


DECODING_MEMORY = MemoryBudget(512 << 20)  # of all threads together
# bytes per pixel of a decoded image, by mode (4 for others), and of codecs that decode a whole image at once (measured)
MODE_BYTES = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16B": 2, "I;16L": 2, "I;16N": 2}
CODEC_BYTES = {"WEBP": 19, "AVIF": 16, "JPEG2000": 7 * 4}
TIFF_BITS_PER_SAMPLE, TIFF_SAMPLES_PER_PIXEL, TIFF_ROWS_PER_STRIP, TIFF_TILE_LENGTH = 258, 277, 278, 323


class UndecodableError(Exception):
    """A file is not a usable image; the message says why in a few words."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Size of the upright image, its mode and format in Pillow's names.

    is_grey: one channel is enough
    """

    width: int
    height: int
    mode: str
    format: str
    is_grey: bool = False

    @property
    def longest_side(self) -> int:
        return max(self.width, self.height)


@contextmanager
def decompression_bombs_refused() -> Iterator[None]:
    """Turn Pillow's warning about huge images into an error; silence its other ones.

    Warning filters belong to the whole process: enter this once around a pool of threads, not in each of them.
    """
    _readable_formats()  # registers Pillow's readers before threads could race to do it
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"PIL\..*")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


def is_grey(image: Image.Image) -> bool:
    """Tell whether one channel is enough; False with transparency, put on RGB white."""
    return image.mode in GREY_MODES and "transparency" not in image.info


def read_shape(file: Path | BytesIO) -> Shape:
    """Read size, mode and format of an image without decoding it."""
    with _opened(file) as image:
        return _shape(image)


def examine(file: Path | BytesIO, side: int) -> tuple[Shape, NDArray[np.uint8]]:
    """Read the shape and decode in colour, opening the file once."""
    with _opened(file) as image:
        return _shape(image), to_array(image, side, 3, reduce=True)


def decode(
    file: Path | BytesIO, side: int, channels: int, *, without_torch: bool = False
) -> NDArray[np.uint8]:
    """Decode upright, shrunk (never enlarged) to fit side x side: [C, H, W].

    Transparent parts become white, 16-bit greys are scaled to 8 bits, and the first frame of an animation is used.

    without_torch: shrink with Pillow, for processes that would load torch (200 MB) only for this; pixels differ by
        rounding
    """
    with _opened(file) as image:
        return to_array(image, side, channels, reduce=True, without_torch=without_torch)


def to_array(
    image: Image.Image, side: int, channels: int, *, reduce: bool = False, without_torch: bool = False
) -> NDArray[np.uint8]:
    """Convert an open image like `decode`.

    reduce: a JPEG may be read at a reduced size, which is faster but shrinks `image` itself.
    """
    try:
        full_size, target = image.size, fitted(image.size, side)
        if reduce:
            # affects JPEG files only, including those of phones with a second image inside (MPO)
            image.draft(None, (target[0] * DRAFT_MARGIN, target[1] * DRAFT_MARGIN))
        factor = max(1, max(image.size) // (max(target) * REDUCING_GAP))
        with DECODING_MEMORY.reserve(_peak_bytes(image, full_size, factor, channels)):
            image.load()
            turn = TURN.get(_orientation(image))  # after load, which turns TIFF files itself
            small = convert(image, "L" if channels == 1 else "RGB", factor)
            if reduce and small is not image:
                image.close()  # its pixels take most of the memory
            upright = small if turn is None else small.transpose(turn)
            # turned above, or by Pillow while loading
            is_turned = (upright.width >= upright.height) != (target[0] >= target[1])
            size = target[::-1] if is_turned else target
            if without_torch and upright.size != size:
                upright = upright.resize(size, Image.Resampling.LANCZOS)
            pixels = np.asarray(upright).reshape(upright.height, upright.width, channels)
            if upright.size == size:
                return np.ascontiguousarray(pixels.transpose(2, 0, 1))
            # imported here, since it imports torch, which takes seconds: headers and small images do not need it
            from maskcon.data.shrinking import shrunk

            return shrunk(pixels, size)
    except Exception as error:  # decoders raise many types on damaged data
        raise UndecodableError(_reason(error)) from error


def fitted(size: tuple[int, int], side: int) -> tuple[int, int]:
    """Shrink (width, height) to fit side x side; at least 1 pixel each way.

    >>> fitted((400, 100), 64), fitted((30, 20), 64), fitted((1, 20000), 64)
    ((64, 16), (30, 20), (1, 64))
    """
    longest = max(size)
    if longest <= side:
        return size
    width, height = (max(1, round(length * side / longest)) for length in size)
    return width, height


@contextmanager
def _opened(file: Path | BytesIO) -> Iterator[Image.Image]:
    try:
        if isinstance(file, Path):
            check_regular(file)
        image = Image.open(file, formats=_readable_formats())
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise UndecodableError(f"larger than {Image.MAX_IMAGE_PIXELS} pixels") from error
    except UnidentifiedImageError as error:
        raise UndecodableError("not an image of a known format") from error
    except Exception as error:  # decoders raise many types on damaged data
        stop_at_breakdown(error, file)
        raise UndecodableError(_reason(error)) from error
    with image:
        if min(image.size) < 1:
            raise UndecodableError(f"has the size {image.size[0]} x {image.size[1]}")
        try:
            yield image
        except UndecodableError as error:
            stop_at_breakdown(error.__cause__, file)
            raise


@cache
def _readable_formats() -> tuple[str, ...]:
    """Return those of FORMATS that this build of Pillow can read."""
    # one block per image: large freed blocks go back to the system, while each thread would keep smaller ones
    Image.core.set_block_size(1 << 30)  # type: ignore[attr-defined]
    Image.preinit()
    if not all(name in Image.OPEN for name in FORMATS):
        Image.init()
    return tuple(name for name in FORMATS if name in Image.OPEN)


def _shape(image: Image.Image) -> Shape:
    width, height = image.size
    if _orientation(image) in SWAPPED:
        width, height = height, width
    return Shape(width, height, image.mode, image.format or "", is_grey(image))


def _orientation(image: Image.Image) -> int:
    try:
        # the base class's method: that of PNG files decodes the image
        return int(Image.Image.getexif(image).get(ORIENTATION_TAG, 1))
    except Exception:  # damaged EXIF data: the image is not turned
        return 1


def _peak_bytes(image: Image.Image, full_size: tuple[int, int], factor: int, channels: int) -> int:
    """Estimate the peak memory of decoding; `full_size` is the size before `draft`."""
    width, height = image.size
    compressed = image.info.get("compression", "raw") != "raw"
    per_pixel = CODEC_BYTES.get(image.format or "", MODE_BYTES.get(image.mode, 4))
    peak = width * height * per_pixel
    if image.info.get("progressive"):  # libjpeg holds all coefficients, 16 bits each
        peak += full_size[0] * full_size[1] * 2 * len(image.getbands())
    elif image.format == "TIFF" and compressed:  # libtiff holds a strip or a row of tiles
        tags: Mapping[int, Any] = image.tag_v2  # type: ignore[attr-defined]
        rows = min(height, int(tags.get(TIFF_ROWS_PER_STRIP, tags.get(TIFF_TILE_LENGTH, height))))
        bits = int(np.max(tags.get(TIFF_BITS_PER_SAMPLE, 8)))
        peak += rows * width * bits * int(tags.get(TIFF_SAMPLES_PER_PIXEL, 1)) // 8
    elif image.format == "JPEG2000":  # 7 bytes per channel
        peak = peak * len(image.getbands()) // 4
    elif image.format == "PPM" and image.tile[0][0] != "raw":  # type: ignore[attr-defined]  # decoded by Python
        peak += width * height * 12
    # a strip, and the converted and reduced image as Pillow's, numpy's and torch's
    reduced = -(-width // factor) * -(-height // factor)
    return peak + min(64 * width * height, STRIP_BYTES) + reduced * (4 + 2 * channels)


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = " ".join(str(error).split())[:120]
    return text or type(error).__name__


DEFAULT_SIDE = 256  # canvas_for(224), the views of the paper's large images
SIDE_RANGE = (8, 4096)
LARGEST_WITHOUT_MARGIN = 64


def canvas_for(image_size: int) -> int:
    """Return the side of stored images for views of this size, with a margin.

    >>> canvas_for(224), canvas_for(32)
    (256, 32)
    """
    return image_size if image_size <= LARGEST_WITHOUT_MARGIN else round(image_size * 8 / 7)


def checked_side(image_size: int | None) -> int:
    """Return the requested side, by default the usual one; refuse an impossible one."""
    if image_size is None:
        return DEFAULT_SIDE
    if not SIDE_RANGE[0] <= image_size <= SIDE_RANGE[1]:
        raise UsageError(f"the image size must lie in {SIDE_RANGE[0]}..{SIDE_RANGE[1]}, got {image_size}")
    return image_size


def read_images(
    images: Sequence[str | Path | Image.Image], *, channels: int, canvas: int
) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    """Read images onto a common canvas: uint8 ``[N, C, S, S]``, sizes ``[N, 2]``.

    Each is turned upright, shrunk (never enlarged) to fit S x S and placed in the top-left corner, as a folder's
    images are before training. An image that cannot be read is an error here, since the caller relies on N rows.
    """
    if isinstance(images, str | Path | Image.Image):
        raise UsageError("images must be given as a list, even a single one")
    array = np.zeros((len(images), channels, canvas, canvas), dtype=np.uint8)
    sizes = np.empty((len(images), 2), dtype=np.int32)
    with decompression_bombs_refused():
        for row, image in enumerate(images):
            pixels = _pixels(image, canvas, channels)  # [C, H, W]
            sizes[row] = pixels.shape[1:]
            array[row, :, : pixels.shape[1], : pixels.shape[2]] = pixels
    return array, sizes


def _pixels(image: str | Path | Image.Image, canvas: int, channels: int) -> NDArray[np.uint8]:
    try:
        if isinstance(image, Image.Image):
            return to_array(image, canvas, channels)
        if isinstance(image, str | Path):
            return decode(Path(image), canvas, channels)
    except UndecodableError as error:
        name = "a given image" if isinstance(image, Image.Image) else str(image)
        raise DataError(f"cannot read {name}: {error}") from None
    raise UsageError(f"images are given as paths, Pillow images or a uint8 array, not {type(image).__name__}")
