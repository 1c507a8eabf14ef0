"""Write src/maskcon/data/builtin/embedded.npz from the official Fashion-MNIST files, and print what is in it.

    python scripts/build_embedded.py --idx /usr/share/datasets/fashion-mnist --sheet sheet.png

The result is part of the package and of published numbers: rebuild it only to check that it can be rebuilt.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from maskcon.data.builtin.fashion_mnist import CLASSES, OFFICIAL_TRAIN_COUNT, as_part, read_idx
from maskcon.data.dataset import Dataset

SEED = 20_230_618
CANVAS = 32
TRAIN_PER_CLASS = 600
TEST_PER_CLASS = 200
MAX_TURN_DEGREES = 20.0
SCALE_RANGE = (0.75, 1.0)
EXTRA_SHIFT_PIXELS = 1.5  # beyond the room that the shrunken item leaves
CONTRAST_RANGE = (0.6, 1.0)
MAX_BACKGROUND = 60.0
MAX_GRADIENT = 12.0  # grey levels from the middle of the canvas to its edge
GREY_STEP = 4  # a coarser grey: not visible, and a third less to ship


def sample_rows(labels: NDArray[np.uint8], per_class: int, random: np.random.Generator) -> NDArray[np.int32]:
    """Rows of a balanced sample, in the order of the official file."""
    chosen = [
        random.permutation(np.flatnonzero(labels == kind))[:per_class]
        for kind in range(len(CLASSES.fine_names))
    ]
    return np.sort(np.concatenate(chosen)).astype(np.int32)


def bilinear(
    images: NDArray[np.float64], rows: NDArray[np.float64], columns: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Each image [N, 28, 28] read at real positions [N, H, W]; black outside."""
    border = 2
    padded = np.pad(images, ((0, 0), (border, border), (border, border)))
    last = padded.shape[1] - 1
    top, left = np.floor(rows), np.floor(columns)
    part_down, part_right = rows - top, columns - left
    which = np.arange(len(images))[:, None, None]

    def at(down: int, right: int) -> NDArray[np.float64]:
        row = np.clip(top + border + down, 0, last).astype(np.int64)
        column = np.clip(left + border + right, 0, last).astype(np.int64)
        return np.asarray(padded[which, row, column])

    upper = at(0, 0) * (1 - part_right) + at(0, 1) * part_right
    lower = at(1, 0) * (1 - part_right) + at(1, 1) * part_right
    return np.asarray(upper * (1 - part_down) + lower * part_down)


def place(images: NDArray[np.uint8], random: np.random.Generator) -> NDArray[np.uint8]:
    """[N, 28, 28] -> [N, 32, 32]: turned, scaled, shifted, mirrored, with its own contrast and background."""

    def draw(low: float, high: float) -> NDArray[np.float64]:
        return random.uniform(low, high, size=(len(images), 1, 1))

    angle = np.deg2rad(draw(-MAX_TURN_DEGREES, MAX_TURN_DEGREES))
    scale = draw(*SCALE_RANGE)
    mirror = np.where(draw(0, 1) < 0.5, -1.0, 1.0)
    room = (CANVAS - images.shape[1] * scale) / 2 + EXTRA_SHIFT_PIXELS
    down, right = draw(-1, 1) * room, draw(-1, 1) * room
    contrast = draw(*CONTRAST_RANGE)
    level = draw(0, MAX_BACKGROUND)
    slope_down, slope_right = draw(-MAX_GRADIENT, MAX_GRADIENT), draw(-MAX_GRADIENT, MAX_GRADIENT)

    middle = (CANVAS - 1) / 2
    row, column = np.mgrid[0:CANVAS, 0:CANVAS] - middle  # both [32, 32]
    y, x = row - down, column - right
    source_middle = (images.shape[1] - 1) / 2
    source_row = (np.cos(angle) * y - np.sin(angle) * x) / scale + source_middle
    source_column = mirror * (np.cos(angle) * x + np.sin(angle) * y) / scale + source_middle
    item = bilinear(images.astype(np.float64), source_row, source_column) / 255  # [N, 32, 32] in 0..1
    background = np.clip(level + (slope_down * row + slope_right * column) / (CANVAS / 2), 0, 255)
    canvas = background + item * contrast * (255 - background)
    levels = np.rint(canvas / GREY_STEP) * GREY_STEP
    return np.asarray(np.clip(levels, 0, 255), dtype=np.uint8)


def contact_sheet(
    images: NDArray[np.uint8], labels: NDArray[np.uint8], path: Path, columns: int = 20
) -> None:
    """One row of images per class, twice enlarged."""
    rows = [np.hstack(list(images[labels == kind][:columns])) for kind in range(len(CLASSES.fine_names))]
    sheet = Image.fromarray(np.vstack(rows))
    sheet.resize((2 * sheet.width, 2 * sheet.height), Image.Resampling.NEAREST).save(path)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--idx", type=Path, required=True, help="folder of the four official IDX .gz files")
    package = Path(__file__).resolve().parent.parent / "src" / "maskcon" / "data" / "builtin"
    parser.add_argument("--out", type=Path, default=package / "embedded.npz")
    parser.add_argument(
        "--sheet", type=Path, help="also write an image of the first test images of each class"
    )
    arguments = parser.parse_args()

    random = np.random.Generator(np.random.PCG64(SEED))
    arrays: dict[str, Any] = {}
    parts = []
    for part, prefix, per_class, first_id in (
        ("train", "train", TRAIN_PER_CLASS, 0),
        ("test", "t10k", TEST_PER_CLASS, OFFICIAL_TRAIN_COUNT),
    ):
        images = read_idx(arguments.idx / f"{prefix}-images-idx3-ubyte.gz", (28, 28))
        labels = read_idx(arguments.idx / f"{prefix}-labels-idx1-ubyte.gz", ())
        row = sample_rows(labels, per_class, random)
        placed = place(images[row], random)
        arrays |= {f"{part}_images": placed, f"{part}_fine": labels[row], f"{part}_row": row}
        parts.append(as_part(placed, labels[row], row, first_id))
        if part == "test" and arguments.sheet is not None:
            contact_sheet(placed, labels[row], arguments.sheet)
    np.savez_compressed(arguments.out, **arrays)
    data = Dataset(
        "embedded",
        parts[0],
        parts[1],
        CLASSES.coarse_names,
        CLASSES.fine_names,
        "embedded",
        CLASSES.coarse_of,
    )
    print(f"{arguments.out}: {arguments.out.stat().st_size / 1e6:.2f} MB, fingerprint {data.fingerprint()}")


if __name__ == "__main__":
    main()
