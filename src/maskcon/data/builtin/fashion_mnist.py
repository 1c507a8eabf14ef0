"""Load Fashion-MNIST in four coarse groups, complete or as the sample `embedded`.

The complete set is read from its four IDX files. The sample's 8,000 images come with the package, so that everything
can be tried offline: turned, scaled, shifted and put on a background, see embedded.md. These finished images are
stored, so that every machine trains on the same bytes.
"""

from __future__ import annotations

import gzip
import struct
import zipfile
import zlib
from importlib.resources import files
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.download import Progress, fetch
from maskcon._utils.errors import CorruptFileError, DataError
from maskcon._utils.paths import has_file
from maskcon.data.builtin.classes import read_grouping
from maskcon.data.dataset import Dataset, ImageSet, Variant

CLASSES = read_grouping("fashion_mnist")
FOLDER = "fashion-mnist"
DEBIAN_FOLDER = Path("/usr/share/datasets/fashion-mnist")  # of Debian's package dataset-fashion-mnist
URL = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
MD5 = {  # as published by the authors
    "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
    "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
    "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
}
OFFICIAL_TRAIN_COUNT = 60_000  # added to the row of a test image, so that ids are unique
BORDER = 2  # 28 -> 32 pixels, the canvas of the other small sets


def load_fashion_mnist(
    root: Path,
    *,
    variant: Variant = "paper",  # noqa: ARG001 - one grouping for both
    download: bool = False,
    progress: Progress | None = None,
) -> Dataset:
    """Load 60,000 train and 10,000 test images [N, 1, 32, 32] of root/fashion-mnist.

    The images of 28 x 28 get a black border.
    """
    folder = find_folder(root)
    if folder is None and download:
        folder = root / FOLDER
        for name, md5 in MD5.items():
            fetch(URL + name, folder / name, algorithm="md5", digest=md5, progress=progress)
    if folder is None:
        raise DataError(
            f"fashion-mnist was not found in {root / FOLDER}; download it with --download, "
            f"or put {', '.join(_absent(root / FOLDER))} there, or install Debian's dataset-fashion-mnist"
        )
    train, test = _read_part(folder, "train", 0), _read_part(folder, "t10k", OFFICIAL_TRAIN_COUNT)
    return CLASSES.dataset("fashion-mnist", "embedded", train, test)


def find_folder(root: Path) -> Path | None:
    """Find the first folder that holds all four files."""
    return next((folder for folder in (root / FOLDER, DEBIAN_FOLDER) if not _absent(folder)), None)


def missing(root: Path) -> tuple[str, ...]:
    """List what is not here, one line each."""
    return () if find_folder(root) else tuple(f"{name} in {root / FOLDER}" for name in _absent(root / FOLDER))


def _absent(folder: Path) -> list[str]:
    return [name for name in MD5 if not has_file(folder / name)]


def _read_part(folder: Path, prefix: str, first_id: int) -> ImageSet:
    images = read_idx(folder / f"{prefix}-images-idx3-ubyte.gz", (28, 28))
    labels = read_idx(folder / f"{prefix}-labels-idx1-ubyte.gz", ())
    if len(images) != len(labels) or labels.max(initial=0) >= len(CLASSES.fine_names):
        raise CorruptFileError(
            f"{folder}: {len(images)} images and {len(labels)} labels of {prefix}, the highest is "
            f"{labels.max(initial=0)}; one per image, at most {len(CLASSES.fine_names) - 1}, is needed"
        )
    padded = np.pad(images, ((0, 0), (BORDER, BORDER), (BORDER, BORDER)))[:, None]
    return CLASSES.image_set(
        padded, labels.astype(np.int64), np.arange(len(labels), dtype=np.int64) + first_id
    )


MAX_BYTES = 1 << 30  # far above the largest genuine file (47 MB); stops a decompression bomb


def read_idx(path: Path, item: tuple[int, ...]) -> NDArray[np.uint8]:
    """Read N items of unsigned bytes from a gzipped IDX file: [N, *item]."""
    try:
        with gzip.open(path) as file:
            data = file.read(MAX_BYTES)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise CorruptFileError(f"{path}: damaged gzip data ({error}); fetch the file again") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    rank = 1 + len(item)
    count = int.from_bytes(data[4:8], "big")
    # two zeros, 8 for unsigned bytes, the number of dimensions, and their sizes
    header = struct.pack(f">HBB{rank}I", 0, 8, rank, count, *item)
    if not data.startswith(header) or len(data) != len(header) + count * prod(item):
        raise CorruptFileError(
            f"{path}: {len(data)} bytes that begin with {data[: len(header)].hex()} are not an IDX file of unsigned "
            f"bytes [N{''.join(f', {side}' for side in item)}]"
        )
    return np.frombuffer(data, dtype=np.uint8, offset=len(header)).reshape(count, *item)


FILE_NAME = "embedded.npz"
FINGERPRINT = "b180fb346effd9fcd74464adac4a22f60b300adeb2e5040568e9396e9adf0887"
# What numpy and zipfile raise for truncated and altered archives.
DAMAGE = (OSError, EOFError, ValueError, KeyError, IndexError, RuntimeError, zipfile.BadZipFile, zlib.error)


def load_embedded() -> Dataset:
    """Load 6,000 train and 2,000 test images [N, 1, 32, 32] of 4 coarse classes.

    >>> data = load_embedded()
    >>> data.train.images.shape, data.test.images.shape, len(data.coarse_names)
    ((6000, 1, 32, 32), (2000, 1, 32, 32), 4)
    """
    try:
        with (
            files("maskcon.data.builtin").joinpath(FILE_NAME).open("rb") as file,
            np.load(file, allow_pickle=False) as stored,
        ):
            train = as_part(stored["train_images"], stored["train_fine"], stored["train_row"], 0)
            test = as_part(
                stored["test_images"], stored["test_fine"], stored["test_row"], OFFICIAL_TRAIN_COUNT
            )
    except DAMAGE as error:
        reason = str(error) or type(error).__name__
        raise CorruptFileError(
            f"the packaged {FILE_NAME} is damaged ({reason}); reinstall maskcon"
        ) from error
    data = CLASSES.dataset("embedded", "embedded", train, test)
    if data.fingerprint() != FINGERPRINT:
        raise CorruptFileError(
            f"the packaged {FILE_NAME} has fingerprint {data.fingerprint()[:12]}, "
            f"expected {FINGERPRINT[:12]}; reinstall maskcon"
        )
    return data


def as_part(
    images: NDArray[np.uint8], fine: NDArray[np.uint8], row: NDArray[np.int32], first_id: int
) -> ImageSet:
    """Make a part from images [N, 32, 32], fine labels [N] and official rows [N]."""
    return CLASSES.image_set(images[:, None], fine.astype(np.int64), row.astype(np.int64) + first_id)
