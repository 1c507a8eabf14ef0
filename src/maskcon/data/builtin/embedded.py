"""`embedded`: 8,000 images of clothes that come with the package, so that everything can be tried offline.

A sample of Fashion-MNIST, turned, scaled, shifted and set on a background; see embedded.md for how it was made.
The placed images themselves are stored, so that every machine trains on the same bytes.
"""

from __future__ import annotations

import zipfile
import zlib
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.errors import CorruptFileError
from maskcon.data.builtin.fashion_mnist import CLASSES, OFFICIAL_TRAIN_COUNT
from maskcon.data.dataset import Dataset, ImageSet

FILE_NAME = "embedded.npz"
FINGERPRINT = "b180fb346effd9fcd74464adac4a22f60b300adeb2e5040568e9396e9adf0887"
# What numpy and zipfile raise for truncated and altered archives.
DAMAGE = (OSError, EOFError, ValueError, KeyError, IndexError, RuntimeError, zipfile.BadZipFile, zlib.error)


def load_embedded() -> Dataset:
    """6,000 train and 2,000 test images, [N, 1, 32, 32], in 4 coarse groups of 10 fine kinds.

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
    """Stored images [N, 32, 32], fine labels [N] and official rows [N] as a part of the set."""
    return CLASSES.image_set(images[:, None], fine.astype(np.int64), row.astype(np.int64) + first_id)
