"""Speed of packing a folder of images over that of the decoder alone, in one run on one machine.

python benchmarks/packing.py [FOLDER] [--images 2000] [--size 640x480] [--view 224] [--repeats 5] [--json FILE]

Without a folder, JPEGs of that size are made in a temporary one.
decoder           images per second of Pillow alone: open, decode at a reduced size and shrink, one process per core
packing           images per second of `maskcon pack`: find, read headers, decode, write, sync, read back
ratio             packing over decoder by wall clock, median of the turns; the goal is 0.8
cpu_ratio         the same by CPU time, which other load on the machine does not change
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

import numpy as np
from PIL import Image

from bench.packing import make_photos
from maskcon._utils.threads import usable_cores
from maskcon.data.decoding import DRAFT_MARGIN, canvas_for, fitted
from maskcon.data.packing import make_pack
from maskcon.data.photos import plan_photos, read_path

CHUNK = 32


@dataclass(frozen=True)
class Spent:
    wall: float
    cpu: float


def decode_alone(path: str, side: int) -> int:
    """Decode and shrink with Pillow alone; return the size of the result."""
    with Image.open(path) as image:
        wanted = fitted(image.size, side)
        if image.format == "JPEG":
            image.draft("RGB", (wanted[0] * DRAFT_MARGIN, wanted[1] * DRAFT_MARGIN))
        small = image.convert("RGB").resize(wanted, Image.Resampling.LANCZOS, reducing_gap=3.0)
    return np.asarray(small).size


def spent_on(work: Callable[[], object]) -> Spent:
    """Return wall and CPU seconds, child processes included."""
    before, begun = os.times(), time.perf_counter()
    work()
    wall, after = time.perf_counter() - begun, os.times()
    return Spent(wall, sum(after[:4]) - sum(before[:4]))


def decoder(paths: list[str], side: int) -> Spent:
    def work() -> None:
        with ProcessPoolExecutor(usable_cores()) as pool:
            for _ in pool.map(decode_alone, paths, repeat(side), chunksize=CHUNK):
                pass

    return spent_on(work)


def packing(folder: Path, side: int) -> Spent:
    with tempfile.TemporaryDirectory(prefix="maskcon-packing-") as cache:

        def work() -> None:
            make_pack(plan_photos(read_path(folder), image_size=side, cache=Path(cache)))

        return spent_on(work)


def measure(folder: Path, view: int, repeats: int) -> dict[str, object]:
    side = canvas_for(view)
    paths = [str(folder / found.path) for found in plan_photos(read_path(folder), image_size=side).files]
    turns = [(decoder(paths, side), packing(folder, side)) for _ in range(repeats)]
    return {
        "images": len(paths),
        "canvas": side,
        "cores": usable_cores(),
        "decoder_images_per_second": len(paths) / min(alone.wall for alone, _ in turns),
        "packing_images_per_second": len(paths) / min(packed.wall for _, packed in turns),
        "ratio": statistics.median(alone.wall / packed.wall for alone, packed in turns),
        "cpu_ratio": statistics.median(alone.cpu / packed.cpu for alone, packed in turns),
        "platform": platform.platform(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?", help="images in sub-folders")
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--size", default="640x480")
    parser.add_argument("--view", type=int, default=224, help="side of a view, as --set image_size")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="maskcon-photos-") as made:
        folder = options.folder or Path(made)
        if options.folder is None:
            width, _, height = options.size.partition("x")
            make_photos(folder, options.images, (int(width), int(height)))
        figures = measure(folder, options.view, options.repeats)
    for name, value in figures.items():
        print(f"{name:28s} {f'{value:,.3g}' if isinstance(value, float) else value}")
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
