"""The row `pack_read`: large images from a pack against decoding their JPEG files, on one thread."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from maskcon.data.decoding import canvas_for, decode
from maskcon.data.packing import make_pack
from maskcon.data.photos import plan_photos, read_path
from maskcon.retrieval.encode import Feed

from .figures import Row
from .measure import ON_ONE_THREAD, Effort, in_turns

VIEW = 224
PHOTO = (640, 480)
IMAGES, QUICK_IMAGES = 256, 2 * 32
BATCH = 32


def pack_read(effort: Effort) -> Row:
    """Images per second from a cached pack over those of the decoder; higher is better."""
    count, side = QUICK_IMAGES if effort.quick else IMAGES, canvas_for(VIEW)
    with tempfile.TemporaryDirectory(prefix="maskcon-bench-") as scratch:
        folder = Path(scratch, "photos")
        make_photos(folder, count)
        plan = plan_photos(read_path(folder), image_size=side, cache=Path(scratch, "packs"))
        packed = make_pack(plan)
        feed = Feed(packed.images, packed.sizes, torch.device("cpu"))
        order = torch.randperm(len(packed.images), generator=torch.Generator().manual_seed(0))
        batches = torch.split(order, BATCH)

        def from_jpeg() -> None:
            for rows in batches:
                decoded(folder, [plan.files[row].path for row in rows.tolist()], side)

        turns = in_turns(
            {"pack": lambda: [feed.take(rows) for rows in batches], "jpeg": from_jpeg},
            effort.turns(5),
            clock=ON_ONE_THREAD,
        )
        feed.close()
    return {
        "ratio_to_jpeg": turns.ratio("jpeg", "pack"),
        "images_per_second": count / turns.median("pack"),
        "jpeg_images_per_second": count / turns.median("jpeg"),
    }


def decoded(root: Path, paths: list[str], side: int) -> Tensor:
    """Decode files into a batch, uint8 ``[B, 3, side, side]``."""
    batch = np.zeros((len(paths), 3, side, side), dtype=np.uint8)
    for row, path in enumerate(paths):
        pixels = decode(root / path, side, 3)
        batch[row, :, : pixels.shape[1], : pixels.shape[2]] = pixels
    return torch.from_numpy(batch)


def make_photos(folder: Path, count: int, size: tuple[int, int] = PHOTO) -> None:
    """Write JPEGs with the detail of photographs (blobs with grain) in two classes."""
    generator = np.random.default_rng(0)
    for number in range(count):
        blobs = Image.fromarray(generator.integers(0, 256, (12, 16, 3), dtype=np.uint8))
        pixels = np.asarray(blobs.resize(size, Image.Resampling.BICUBIC), dtype=np.int16)
        grain = generator.integers(-12, 13, (size[1], size[0], 1), dtype=np.int16)
        target = folder / ("one", "two")[number % 2] / f"{number}.jpg"
        target.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.clip(pixels + grain, 0, 255).astype(np.uint8)).save(target, quality=88)
