"""Images of every mode that cameras, scanners and the net produce, through a folder and a manifest alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from maskcon.data import Dataset, from_arrays, load
from maskcon.data.decoding import ORIENTATION_TAG
from tests.data.miniatures import write_picture

SIZE = (24, 16)  # width, height
LEFT, RIGHT = (255, 0, 0), (0, 0, 255)


def halves(left: tuple[int, int, int] = LEFT, right: tuple[int, int, int] = RIGHT) -> Image.Image:
    image = Image.new("RGB", SIZE, right)
    image.paste(left, (0, 0, SIZE[0] // 2, SIZE[1]))
    return image


def save_turned(path: Path) -> None:
    exif = Image.Exif()
    exif[ORIENTATION_TAG] = 6  # to be turned right by 90 degrees
    halves().transpose(Image.Transpose.ROTATE_90).save(path, exif=exif)


def save_palette_with_transparency(path: Path) -> None:
    image = Image.new("P", SIZE, 1)
    image.putpalette([255, 0, 0, 0, 255, 0])
    image.paste(0, (0, 0, SIZE[0] // 2, SIZE[1]))
    image.save(path, transparency=1)


def save_sixteen_bits(path: Path) -> None:
    values = np.full((SIZE[1], SIZE[0]), 65535, np.uint16)
    values[:, : SIZE[0] // 2] = 32768
    Image.fromarray(values).save(path)


def save_animation(path: Path) -> None:
    frames = [halves(RIGHT, LEFT) for _ in range(2)]
    halves().save(path, save_all=True, append_images=frames)


def save_see_through(path: Path) -> None:
    image = halves().convert("RGBA")
    image.paste((0, 0, 0, 0), (SIZE[0] // 2, 0, *SIZE))
    image.save(path)


def save_grey(path: Path) -> None:
    image = Image.new("L", SIZE, 200)
    image.paste(100, (0, 0, SIZE[0] // 2, SIZE[1]))
    image.save(path)


WHITE = (255, 255, 255)
CASES: dict[str, tuple[Callable[[Path], None], tuple[int, int, int], tuple[int, int, int]]] = {
    "turned.jpg": (save_turned, (254, 0, 0), (0, 0, 254)),
    "cmyk.jpg": (lambda path: halves().convert("CMYK").save(path), (254, 0, 0), (0, 0, 254)),
    "cmyk.tif": (lambda path: halves().convert("CMYK").save(path), LEFT, RIGHT),
    "palette.png": (save_palette_with_transparency, LEFT, WHITE),
    "palette.gif": (lambda path: halves().convert("P").save(path), LEFT, RIGHT),
    "deep.png": (save_sixteen_bits, (128, 128, 128), WHITE),
    "deep.tif": (save_sixteen_bits, (128, 128, 128), WHITE),
    "moving.gif": (save_animation, LEFT, RIGHT),
    "moving.png": (save_animation, LEFT, RIGHT),
    "moving.webp": (save_animation, LEFT, RIGHT),
    "through.png": (save_see_through, LEFT, WHITE),
    "grey.png": (save_grey, (100, 100, 100), (200, 200, 200)),
    "grey.jpg": (save_grey, (100, 100, 100), (200, 200, 200)),
    "one_bit.png": (lambda path: halves((0, 0, 0), WHITE).convert("1").save(path), (0, 0, 0), WHITE),
}


def write_all(root: Path) -> list[str]:
    """Every case in each of two classes, beside a plain colour image; the paths."""
    paths = []
    for label in ("a", "b"):
        write_picture(root / label / "plain.png", SIZE)
        paths.append(f"{label}/plain.png")
        for name, (save, _, _) in CASES.items():
            save(root / label / name)
            paths.append(f"{label}/{name}")
    return paths


def check(data: Dataset) -> None:
    seen = set()
    for part in (data.train, data.test):
        assert part.images.shape[1:] == (3, SIZE[1], SIZE[0])  # all of one size: turned upright, first frame
        for path, image in zip(part.paths or (), part.images, strict=True):
            name = path.rpartition("/")[2]
            if name not in CASES:
                continue
            seen.add(path)
            for columns, colour in ((slice(2, 9), CASES[name][1]), (slice(15, 22), CASES[name][2])):
                found = image[:, 2:-2, columns].reshape(3, -1).mean(axis=1)
                assert np.abs(found - colour).max() < 6, (name, found, colour)
    assert len(seen) == 2 * len(CASES)
    assert not any("could not be read" in note for note in data.notes)


def test_every_mode_is_read_from_a_folder_and_from_a_manifest(tmp_path: Path) -> None:
    paths = write_all(tmp_path / "photos")
    folder = load(str(tmp_path / "photos"))
    check(folder)
    lines = ["path,coarse", *(f"{path},{path[0]}" for path in paths)]
    (tmp_path / "photos" / "list.csv").write_text("\n".join(lines))
    manifest = load(str(tmp_path / "photos" / "list.csv"))
    check(manifest)
    assert manifest.fingerprint() == folder.fingerprint()


@pytest.mark.parametrize("name", CASES)
def test_every_mode_is_read_as_an_open_image(tmp_path: Path, name: str) -> None:
    save, left, right = CASES[name]
    save(tmp_path / name)
    with Image.open(tmp_path / name) as image:
        data = from_arrays([image, halves()], ["a", "b"])
    part = data.train if len(data.train.coarse) else data.test
    row = part.images[part.coarse.tolist().index(0)]
    for columns, colour in ((slice(2, 9), left), (slice(15, 22), right)):
        assert np.abs(row[:, 2:-2, columns].reshape(3, -1).mean(axis=1) - colour).max() < 6
