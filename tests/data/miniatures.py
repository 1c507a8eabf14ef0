"""Miniature datasets in the true file formats, written byte by byte where today's libraries write otherwise."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from maskcon.data.builtin.classes import read_grouping

Entry = NDArray[np.uint8] | list[int] | list[str] | str


def python2_pickle(entries: dict[str, Entry]) -> bytes:
    """The dictionary as Python 2's cPickle wrote it with numpy 1.x, protocol 2: byte strings, numpy.core names."""
    memo = iter(range(1, 100_000))

    def put() -> bytes:
        number = next(memo)
        return b"q" + bytes([number]) if number < 256 else b"r" + struct.pack("<I", number)

    def text(value: bytes) -> bytes:
        if len(value) < 256:
            return b"U" + bytes([len(value)]) + value + put()
        return b"T" + struct.pack("<i", len(value)) + value

    def integer(value: int) -> bytes:
        if 0 <= value < 256:
            return b"K" + bytes([value])
        return b"M" + struct.pack("<H", value) if 0 <= value < 65536 else b"J" + struct.pack("<i", value)

    def array(value: NDArray[np.uint8]) -> bytes:
        fortran = value.flags.f_contiguous and not value.flags.c_contiguous
        shape = b"(" + b"".join(integer(side) for side in value.shape) + b"t" + put()
        return (
            b"cnumpy.core.multiarray\n_reconstruct\n"
            + put()
            + b"cnumpy\nndarray\n"
            + put()
            + b"K\x00\x85U\x01b\x87R"
            + put()
            + b"(K\x01"
            + shape
            + b"cnumpy\ndtype\n"
            + put()
            + b"U\x02u1K\x00K\x01\x87R"
            + put()
            + b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
            + (b"\x88" if fortran else b"\x89")
            + text(value.tobytes(order="F" if fortran else "C"))
            + b"tb"
        )

    def encode(value: Entry) -> bytes:
        if isinstance(value, np.ndarray):
            return array(value)
        if isinstance(value, str):
            return text(value.encode("latin-1"))
        items = [integer(item) if isinstance(item, int) else text(item.encode("latin-1")) for item in value]
        return b"]" + put() + b"(" + b"".join(items) + b"e"

    body = b"".join(text(key.encode()) + encode(value) for key, value in entries.items())
    return b"\x80\x02}" + put() + b"(" + body + b"u."


def random_pixels(count: int, seed: int) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (count, 3072), dtype=np.uint8)


def write_cifar10(folder: Path, per_file: int = 20) -> None:
    """data_batch_1..5 and test_batch; labels run through the ten classes."""
    folder.mkdir(parents=True)
    labels = [row % 10 for row in range(per_file)]
    for number, name in enumerate([*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]):
        entries: dict[str, Entry] = {
            "batch_label": f"batch {number + 1}",
            "labels": labels,
            "data": random_pixels(per_file, seed=number),
            "filenames": [f"picture_{row}.png" for row in range(per_file)],
        }
        (folder / name).write_bytes(python2_pickle(entries))


def write_cifar100(folder: Path, count: int = 200) -> None:
    folder.mkdir(parents=True)
    for seed, name in enumerate(("train", "test")):
        fine = [row % 100 for row in range(count)]
        entries: dict[str, Entry] = {
            "filenames": [f"picture_{row}.png" for row in range(count)],
            "batch_label": f"{name} batch 1 of 1",
            "fine_labels": fine,
            "coarse_labels": [read_grouping("cifar100").coarse_of[label] for label in fine],
            "data": random_pixels(count, seed=seed),
        }
        (folder / name).write_bytes(python2_pickle(entries))


def idx_bytes(array: NDArray[np.uint8]) -> bytes:
    header = struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.tobytes()


def write_fashion_mnist(folder: Path, count: int = 30) -> None:
    folder.mkdir(parents=True)
    generator = np.random.default_rng(0)
    for prefix in ("train", "t10k"):
        images = generator.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        labels = (np.arange(count) % 10).astype(np.uint8)
        for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
            (folder / f"{prefix}-{kind}-ubyte.gz").write_bytes(gzip.compress(idx_bytes(array)))


def write_picture(
    path: Path, size: tuple[int, int] = (20, 16), colour: object = (200, 30, 60), mode: str = "RGB"
) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, colour).save(path)  # type: ignore[arg-type]
    return path
