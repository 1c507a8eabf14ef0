from __future__ import annotations

import struct
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from PIL import Image

from maskcon.data import shrinking
from maskcon.data.decoding import (
    ORIENTATION_TAG,
    REDUCING_GAP,
    UndecodableError,
    decode,
    decompression_bombs_refused,
    fitted,
    read_shape,
    to_array,
)
from tests.data.miniatures import write_picture


def corner_picture() -> Image.Image:
    """40 x 24, black but for a red corner top left."""
    image = Image.new("RGB", (40, 24))
    image.paste((255, 0, 0), (0, 0, 12, 12))
    return image


def red_corner(pixels: np.ndarray) -> tuple[str, str]:
    """Where the red is: (top or bottom, left or right)."""
    _, rows, columns = np.nonzero(pixels[:1] > 128)
    height, width = pixels.shape[1:]
    return (
        "top" if rows.mean() < height / 2 else "bottom",
        "left" if columns.mean() < width / 2 else "right",
    )


def png_chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png_claiming(width: int, height: int) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + png_chunk(b"IHDR", header)
        + png_chunk(b"IDAT", zlib.compress(b"\0" * 100))
        + png_chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp", ".tif"])
def test_stored_turn_is_undone(tmp_path: Path, orientation: int, suffix: str) -> None:
    """Files that store a turned image and say so come out as the upright one."""
    undo = {
        1: [],
        2: [Image.Transpose.FLIP_LEFT_RIGHT],
        3: [Image.Transpose.ROTATE_180],
        4: [Image.Transpose.FLIP_TOP_BOTTOM],
        5: [Image.Transpose.TRANSPOSE],
        6: [Image.Transpose.ROTATE_90],
        7: [Image.Transpose.TRANSVERSE],
        8: [Image.Transpose.ROTATE_270],
    }[orientation]
    stored = corner_picture()
    for step in undo:
        stored = stored.transpose(step)
    exif = Image.Exif()
    exif[ORIENTATION_TAG] = orientation
    path = tmp_path / f"image{suffix}"
    stored.save(path, exif=exif)
    for side in (64, 20):
        pixels = decode(path, side, 3)
        assert pixels.shape == ((3, 24, 40) if side == 64 else (3, 12, 20))
        assert red_corner(pixels) == ("top", "left")


def test_transparent_parts_lie_on_white(tmp_path: Path) -> None:
    image = Image.new("RGBA", (8, 8), (10, 20, 30, 0))
    image.paste((10, 20, 30, 255), (0, 0, 4, 8))
    image.save(tmp_path / "a.png")
    pixels = decode(tmp_path / "a.png", 8, 3)
    assert pixels[:, 0, 0].tolist() == [10, 20, 30]
    assert pixels[:, 0, 7].tolist() == [255, 255, 255]


def test_grey_with_alpha_and_palette_transparency_lie_on_white(tmp_path: Path) -> None:
    Image.new("LA", (8, 8), (50, 0)).save(tmp_path / "la.png")
    palette = Image.new("P", (8, 8), 0)
    palette.putpalette([9, 9, 9, 1, 2, 3])
    palette.save(tmp_path / "p.png", transparency=0)
    for name in ("la.png", "p.png"):
        assert decode(tmp_path / name, 8, 3).min() == 255
        assert not read_shape(tmp_path / name).is_grey


def test_palette_is_read_as_its_colours(tmp_path: Path) -> None:
    palette = Image.new("P", (8, 8), 1)
    palette.putpalette([9, 9, 9, 1, 2, 3])
    palette.save(tmp_path / "p.png")
    assert decode(tmp_path / "p.png", 8, 3)[:, 3, 3].tolist() == [1, 2, 3]


@pytest.mark.parametrize("suffix", [".jpg", ".tif"])
def test_cmyk_is_read_as_colour(tmp_path: Path, suffix: str) -> None:
    write_picture(tmp_path / f"a{suffix}", colour=(0, 255, 255, 0), mode="CMYK")  # magenta and yellow: red
    red, green, blue = decode(tmp_path / f"a{suffix}", 64, 3)[:, 8, 8].tolist()
    assert red > 200
    assert max(green, blue) < 60


@pytest.mark.parametrize("name", ["a.png", "a.tif", "a.pgm"])
def test_sixteen_bits_keep_one_scale(tmp_path: Path, name: str) -> None:
    levels = np.array([[0, 257, 32896, 65278, 65535]], dtype=np.uint16)
    if name.endswith("pgm"):
        (tmp_path / name).write_bytes(b"P5 5 1 65535\n" + levels.astype(">u2").tobytes())
    else:
        Image.fromarray(levels).save(tmp_path / name)
    assert decode(tmp_path / name, 8, 1)[0, 0].tolist() == [0, 1, 128, 254, 255]
    assert read_shape(tmp_path / name).is_grey


def test_float_images_are_scaled_to_bytes(tmp_path: Path) -> None:
    Image.fromarray(np.array([[0.0, 0.5, 1.0]], dtype=np.float32)).save(tmp_path / "unit.tif")
    Image.fromarray(np.array([[-10.0, 0.0, 10.0]], dtype=np.float32)).save(tmp_path / "signed.tif")
    assert decode(tmp_path / "unit.tif", 8, 1)[0, 0].tolist() == [0, 128, 255]
    assert decode(tmp_path / "signed.tif", 8, 1)[0, 0].tolist() == [0, 128, 255]


def test_one_bit_images_are_black_and_white(tmp_path: Path) -> None:
    write_picture(tmp_path / "a.png", mode="1", colour=1)
    assert decode(tmp_path / "a.png", 64, 1).min() == 255


@pytest.mark.parametrize("suffix", [".gif", ".webp", ".png"])
def test_first_frame_of_an_animation_is_taken(tmp_path: Path, suffix: str) -> None:
    frames = [Image.new("RGB", (16, 16), colour) for colour in ("red", "lime", "blue")]
    frames[0].save(
        tmp_path / f"a{suffix}", save_all=True, append_images=frames[1:], duration=50, lossless=True
    )
    red, green, blue = decode(tmp_path / f"a{suffix}", 16, 3)[:, 8, 8].tolist()
    assert (red > 240, green < 16, blue < 16) == (True, True, True)


def test_large_images_shrink_and_small_ones_stay(tmp_path: Path) -> None:
    write_picture(tmp_path / "wide.jpg", size=(3000, 1001))
    write_picture(tmp_path / "tiny.png", size=(1, 1))
    write_picture(tmp_path / "strip.png", size=(20_000, 2))
    assert decode(tmp_path / "wide.jpg", 100, 3).shape == (3, 33, 100)
    assert decode(tmp_path / "tiny.png", 100, 3).shape == (3, 1, 1)
    assert decode(tmp_path / "strip.png", 100, 3).shape == (3, 1, 100)


def test_shrinking_averages_instead_of_skipping(tmp_path: Path) -> None:
    """A fine checkerboard becomes grey; a filter without antialiasing would give black or white."""
    board = (np.indices((512, 512)).sum(axis=0) % 2 * 255).astype(np.uint8)
    Image.fromarray(board).save(tmp_path / "a.png")
    pixels = decode(tmp_path / "a.png", 64, 1)
    assert pixels.min() >= 120
    assert pixels.max() <= 135


@settings(deadline=None)  # the first one imports torch
@given(
    size=st.tuples(st.integers(1, 90), st.integers(1, 90)),
    side=st.integers(1, 60),
    grey=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_shrinking_gives_the_pixels_of_pillow(
    size: tuple[int, int], side: int, grey: bool, seed: int
) -> None:
    """But for a rounding each: both round between the passes over rows and columns, which may come in another order.

    The greys leave room for the filter to overshoot: cut off at 0 and 255, the order would be seen.
    """
    shape = size if grey else (*size, 3)
    image = Image.fromarray(np.random.default_rng(seed).integers(80, 176, shape, dtype=np.uint8))
    wanted = fitted(image.size, side)
    assume(max(image.size) < 2 * REDUCING_GAP * max(wanted))
    expected = np.asarray(image.resize(wanted, Image.Resampling.LANCZOS), dtype=np.int16)
    pixels = to_array(image, side, 1 if grey else 3)
    planes = expected[None] if grey else expected.transpose(2, 0, 1)
    assert pixels.dtype == np.uint8
    assert pixels.flags.c_contiguous
    assert np.abs(pixels - planes).max() <= 2


@pytest.mark.parametrize("size", [(1800, 1200), (1201, 1799), (1777, 3)])
def test_a_large_image_is_averaged_first_and_looks_the_same(size: tuple[int, int]) -> None:
    """A slope of greys, which a shift by half a pixel of the small image would change by more."""
    wide = np.linspace(20, 235, size[0])[None, :].repeat(size[1], axis=0)
    image = Image.fromarray(np.rint(wide).astype(np.uint8))
    expected = np.asarray(image.resize(fitted(size, 60), Image.Resampling.LANCZOS), dtype=np.int16)
    pixels = to_array(image, 60, 1)
    assert pixels.shape == (1, *expected.shape)
    assert np.abs(pixels[0] - expected).max() <= 2


@pytest.mark.parametrize("mode", ["L", "RGB"])
@pytest.mark.parametrize("orientation", [1, 6])
def test_shrinking_without_torch_differs_by_rounding(tmp_path, mode, orientation):
    pixels = np.random.default_rng(0).integers(80, 176, (90, 123, 3), dtype=np.uint8)
    exif = Image.Exif()
    exif[ORIENTATION_TAG] = orientation
    path = tmp_path / "image.png"
    Image.fromarray(pixels).convert(mode).save(path, exif=exif)
    ours, theirs = (decode(path, 40, 3, without_torch=without) for without in (False, True))
    assert ours.shape == theirs.shape
    assert np.abs(ours.astype(int) - theirs).max() <= 2


@pytest.mark.parametrize("error", [NotImplementedError, ValueError])
@pytest.mark.parametrize("channels", [1, 3])
def test_an_older_torch_without_the_filter_leaves_it_to_pillow(monkeypatch, error, channels) -> None:
    pixels = np.random.default_rng(0).integers(80, 176, (30, 41, channels), dtype=np.uint8)
    ours = shrinking.shrunk(pixels, (13, 9))

    def unknown(*_: object, **__: object) -> None:
        raise error("Anti-alias option is restricted to bilinear and bicubic modes")

    monkeypatch.setattr(shrinking, "interpolate", unknown)
    theirs = shrinking.shrunk(pixels, (13, 9))
    assert theirs.shape == (channels, 9, 13)
    assert np.abs(ours.astype(int) - theirs).max() <= 2


def test_jpeg_read_at_reduced_size_equals_the_full_read(tmp_path: Path) -> None:
    rows, columns = np.mgrid[0:1200, 0:1600]
    smooth = np.stack([rows / 5, columns / 7, (rows + columns) / 12], axis=2).astype(np.uint8)
    Image.fromarray(smooth).save(tmp_path / "a.jpg", quality=95)
    with Image.open(tmp_path / "a.jpg") as image:
        full = np.asarray(image.resize((128, 96), Image.Resampling.LANCZOS)).transpose(2, 0, 1)
    assert np.abs(decode(tmp_path / "a.jpg", 128, 3).astype(int) - full).max() <= 4


def test_jpeg_with_a_second_image_inside_is_read_like_any_other(tmp_path: Path) -> None:
    """As phones write them; at a reduced size too, which is what makes reading them fast."""
    pixels = np.random.default_rng(0).integers(0, 256, (60, 80, 3), dtype=np.uint8)
    image = Image.fromarray(pixels).resize((1600, 1200), Image.Resampling.BICUBIC)
    image.save(tmp_path / "plain.jpg", quality=90)
    small = image.resize((80, 60))
    image.save(tmp_path / "phone.jpg", format="MPO", save_all=True, append_images=[small], quality=90)
    assert read_shape(tmp_path / "phone.jpg").format == "MPO"
    np.testing.assert_array_equal(
        decode(tmp_path / "phone.jpg", 128, 3), decode(tmp_path / "plain.jpg", 128, 3)
    )


def test_truncated_image_is_an_error(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    for name in ("a.jpg", "a.png"):
        Image.fromarray(noise).save(tmp_path / name)
        data = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(data[: len(data) // 2])
        with pytest.raises(UndecodableError, match=r"truncated|broken|PNG"):
            decode(tmp_path / name, 64, 3)


def test_text_with_an_image_name_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_text("hello")
    with pytest.raises(UndecodableError, match="not an image"):
        read_shape(tmp_path / "a.jpg")


@pytest.mark.parametrize("side", [12_000, 30_000, 2**31 - 1])
def test_image_bomb_is_an_error_before_it_is_decoded(tmp_path: Path, side: int) -> None:
    (tmp_path / "a.png").write_bytes(png_claiming(side, side))
    with decompression_bombs_refused(), pytest.raises(UndecodableError, match="pixels"):
        read_shape(tmp_path / "a.png")


def test_warning_filters_are_put_back() -> None:
    before = list(warnings.filters)
    with decompression_bombs_refused():
        pass
    assert warnings.filters == before


def test_postscript_is_never_opened(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n")
    with pytest.raises(UndecodableError, match="not an image"):
        read_shape(tmp_path / "a.png")


def _mutation_round(tmp_path: Path, rounds: int, seed: int) -> tuple[int, int]:
    """Change and cut off bytes in small files of eight formats; count what decodes and what is refused."""
    generator = np.random.default_rng(seed)
    noise = Image.fromarray(generator.integers(0, 256, (24, 20, 3), dtype=np.uint8))
    originals = []
    for suffix in (".jpg", ".png", ".gif", ".bmp", ".webp", ".tif", ".ppm", ".tga"):
        noise.save(tmp_path / f"base{suffix}")
        originals.append((tmp_path / f"base{suffix}").read_bytes())
    read = refused = 0
    with decompression_bombs_refused():
        for number in range(rounds):
            data = bytearray(originals[number % len(originals)])
            for _ in range(int(generator.integers(1, 8))):
                # most of what can go wrong is in the header
                limit = len(data) if generator.random() < 0.3 else min(len(data), 120)
                data[int(generator.integers(0, limit))] = int(generator.integers(0, 256))
            if generator.random() < 0.2:
                del data[int(generator.integers(1, len(data))) :]
            path = tmp_path / "mutated.png"
            path.write_bytes(data)
            try:
                read_shape(path)
                pixels = decode(path, 32, 3)
            except UndecodableError:
                refused += 1
            else:
                assert pixels.shape[0] == 3
                assert max(pixels.shape[1:]) <= 32
                read += 1
    return read, refused


def test_mutated_files_are_read_or_refused(tmp_path: Path) -> None:
    read, refused = _mutation_round(tmp_path, rounds=600, seed=0)
    assert read > 0
    assert refused > 0


@pytest.mark.slow
def test_ten_thousand_mutated_files_are_read_or_refused(tmp_path: Path) -> None:
    read, refused = _mutation_round(tmp_path, rounds=10_000, seed=1)
    assert read + refused == 10_000
