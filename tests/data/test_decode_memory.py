"""Decoding within a stated memory, whatever the file."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngImageFile

from maskcon.data import decoding, pixel_modes
from maskcon.data.decoding import MemoryBudget, UndecodableError, decode, read_shape

GREYS = np.arange(90 * 80).reshape(90, 80)
TRANSPARENT = {"P": 7, "L": 7, "RGB": (1, 2, 3)}


def picture(mode: str) -> Image.Image:
    """An image with all kinds of values of its mode."""
    if mode == "F":
        return Image.fromarray(np.where(GREYS % 97, GREYS / 3 - 700, np.nan).astype(np.float32))
    if mode == "I":
        return Image.fromarray((GREYS * 11 - 3000).astype(np.int32))
    if mode == "I;16":
        return Image.fromarray((GREYS * 9).astype(np.uint16))
    bands = np.stack([GREYS * factor % 256 for factor in (1, 3, 7, 5)], axis=2).astype(np.uint8)
    colour = Image.fromarray(bands)
    return colour.convert("RGB").quantize() if mode == "P" else colour.convert(mode)


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "LA", "CMYK", "YCbCr", "I", "I;16", "F"])
@pytest.mark.parametrize("transparent", [False, True])
@pytest.mark.parametrize("factor", [1, 4])
def test_strips_give_the_bytes_of_the_whole_image(
    mode: str, transparent: bool, factor: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = picture(mode)
    if transparent and mode in TRANSPARENT:
        image.info["transparency"] = TRANSPARENT[mode]
    for target in ("L", "RGB"):
        whole = pixel_modes.convert(image, target, factor)
        monkeypatch.setattr(pixel_modes, "STRIP_PIXELS", 700)
        strips = pixel_modes.convert(image, target, factor)
        monkeypatch.undo()
        assert whole.mode == strips.mode == target
        assert np.array_equal(np.asarray(whole), np.asarray(strips))


def write_large(path: Path) -> Path:
    """An image of 16 million pixels in a small file."""
    side = 4000
    kind = {"float.tif": np.float32, "grey16.png": np.uint16}.get(path.name)
    mode = "RGB" if path.suffix == ".jpg" else "RGBA"
    image = Image.new(mode, (side, side)) if kind is None else Image.fromarray(np.zeros((side, side), kind))
    image.save(
        path, **{".tif": {"compression": "tiff_deflate"}, ".jpg": {"progressive": True}}.get(path.suffix, {})
    )
    return path


# MB beyond what the process takes before: 64 are the pixels, and 550 a float image converted as a whole
MOST_MB = {"float.tif": 150, "grey16.png": 150, "rgba.png": 150, "a.jpg": 512, "a.webp": 512, "a.jp2": 512}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("name", MOST_MB)
def test_memory_of_a_large_image_is_little_more_than_that_of_its_pixels(name: str, tmp_path: Path) -> None:
    code = """
        import sys
        from pathlib import Path
        import maskcon.data.shrinking
        from maskcon.data.decoding import decode
        def peak():
            lines = Path("/proc/self/status").read_text().splitlines()
            return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
        before = peak()
        assert decode(Path(sys.argv[1]), 64, 3).shape == (3, 64, 64)
        print(peak() - before)
    """
    path = write_large(tmp_path / name)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(path)], capture_output=True, text=True, check=True
    )
    assert float(done.stdout) < MOST_MB[name]


def test_image_beyond_the_budget_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Image.new("RGB", (1500, 1000)).save(tmp_path / "a.png")
    monkeypatch.setattr(decoding, "DECODING_MEMORY", MemoryBudget(5 << 20))
    with pytest.raises(UndecodableError, match="needs about 22 MB to decode, more than 5 MB; shrink it"):
        decode(tmp_path / "a.png", 64, 3)


@pytest.mark.parametrize(
    ("name", "options"),
    [("a.webp", {}), ("a.jp2", {}), ("a.jpg", {"progressive": True}), ("a.tif", {"compression": "tiff_lzw"})],
)
def test_codecs_that_hold_the_whole_image_count_for_more(
    name: str, options: dict[str, Any], tmp_path: Path
) -> None:
    Image.new("RGB", (900, 800)).save(tmp_path / name, **options)
    Image.new("RGB", (900, 800)).save(tmp_path / "a.png")
    needed = {}
    for path in (tmp_path / name, tmp_path / "a.png"):
        with Image.open(path) as image:
            needed[path.name] = decoding._peak_bytes(image, image.size, 10, 3)
    assert needed[name] > needed["a.png"]


def test_threads_share_the_budget() -> None:
    budget, inside, entered = MemoryBudget(10), threading.Barrier(2), []

    def work(number: int) -> None:
        with budget.reserve(4):
            inside.wait(30)  # two are inside at a time
            entered.append(number)
            inside.wait(30)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    with budget.reserve(4):
        threads[0].start()
        threads[0].join(0.2)
        threads[1].start()
        threads[1].join(0.2)
        assert entered == []  # the second waits: 4 + 4 + 4 are more than 10
    for thread in threads[2:]:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(entered) == [0, 1, 2, 3]
    with budget.reserve(10):
        pass  # all is free again


def test_size_of_a_png_is_read_without_decoding_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # lies on its side
    Image.new("RGB", (30, 20)).save(tmp_path / "turned.png", exif=exif)
    Image.new("RGB", (30, 20)).save(tmp_path / "upright.png")
    monkeypatch.setattr(PngImageFile, "load", lambda _: pytest.fail("decoded"))
    shapes = [read_shape(tmp_path / name) for name in ("turned.png", "upright.png")]
    assert [(shape.width, shape.height) for shape in shapes] == [(20, 30), (30, 20)]
