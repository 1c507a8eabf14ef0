"""ImageNet-1K downsampled to 32x32 (Chrabaszcz et al., 2017), in the paper's 12 coarse classes.

Fine classes are numbered by sorted WNID, as everywhere but in the files: their labels follow an order of their own,
which imagenet32.csv holds for each WNID; scripts/build_imagenet_groups.py writes that table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from maskcon._utils.download import Progress
from maskcon._utils.errors import CorruptFileError, DataError
from maskcon._utils.paths import cache_root, has_file
from maskcon.data.builtin.batch_files import Batches, Converted, ConvertedPart, convert_once
from maskcon.data.builtin.classes import read_grouping, read_table
from maskcon.data.dataset import Dataset, ImageSet, Variant

PAGE = "https://image-net.org/download-images"
OFFICIAL_TRAIN_COUNT = 1_281_167  # a test image's id is its row plus this
OFFICIAL_TEST_COUNT = 50_000
TRAIN_FILES = tuple(f"train_data_batch_{number}" for number in range(1, 11))
TEST_FILE = "val_data"
FOLDERS = (".", "imagenet32", "Imagenet32")  # below the root, where the files or their own folders may lie


@dataclass(frozen=True)
class _Release:
    """One zip of the dataset: its batch files also lie in a folder of its name, or loose."""

    part: str
    archive: str
    names: tuple[str, ...]

    def find(self, root: Path) -> Batches | None:
        """The files if they are all there, else the zip, else nothing."""
        for folder in self.folders(root):
            if all(has_file(folder / name) for name in self.names):
                return Batches(self.part, self.names, folder)
        for archive in (root / folder / self.archive for folder in FOLDERS):
            if has_file(archive):
                return Batches(self.part, self.names, archive)
        return None

    def folders(self, root: Path) -> list[Path]:
        own = self.archive.removesuffix(".zip")
        return [root / folder / inner for folder in FOLDERS for inner in (".", own)]

    def lacking(self, root: Path) -> str:
        """One line on what is not there, knowing that `find` found nothing."""
        for folder in self.folders(root):
            absent = [name for name in self.names if not has_file(folder / name)]
            if len(absent) < len(self.names):
                return f"{', '.join(absent)} of {self.archive} (the rest lies in {folder})"
        files = self.names[0] if len(self.names) == 1 else f"{self.names[0]} to {self.names[-1]}"
        return f"{self.archive} (or its unpacked {files})"


TRAIN = _Release("train", "Imagenet32_train.zip", TRAIN_FILES)
TEST = _Release("test", "Imagenet32_val.zip", (TEST_FILE,))

# md5 of the unpacked files, as public loaders of the set list them. There are two lists, which share no file, so each
# is taken for a release of its own.
KNOWN_MD5: tuple[dict[str, str], ...] = (
    {
        "train_data_batch_1": "6c4495e65cd24a8c3019857ef9b758ee",
        "train_data_batch_2": "3dd727de4155836807dfc19f98c9fe70",
        "train_data_batch_3": "03d3dc4e850e23e1d526f268a0196296",
        "train_data_batch_4": "876f7e6d6ddb1f52ecb654ffdc8293f6",
        "train_data_batch_5": "c789bcdd1feed34a9bc58598a1a1bf7d",
        "train_data_batch_6": "8ce5344cb1e11f31bc507cae4c856083",
        "train_data_batch_7": "32ecc8ad6c55b1c9cb6cf79a2cc46094",
        "train_data_batch_8": "bdeb6da3d05771121992b48c59c69439",
        "train_data_batch_9": "58417149b5ce31688f805341e7f57b4f",
        "train_data_batch_10": "46ad60a1144aaf97a143914453b0dabb",
        "val_data": "06c02b8b4c8de8b3a36b07859a49de6f",
    },
    {
        "train_data_batch_1": "dd6683a336ab645d336f7b47c67d8456",
        "train_data_batch_2": "b9b1f5ad237638a41e80944fc03b42af",
        "train_data_batch_3": "e33306a0f4234b5c5812a32845bfbd04",
        "train_data_batch_4": "4db6d81c460a5170a03ef03e1ddd21dd",
        "train_data_batch_5": "baa0f1d06099f55e5fe50d43fca4d334",
        "train_data_batch_6": "bba3bc6e83e0703df1ec7e277e0b6800",
        "train_data_batch_7": "48dd0fd4511b39d518dbabba2f5b36b7",
        "train_data_batch_8": "46583e44f926baaeacbf8c333dc6110f",
        "train_data_batch_9": "7c82c36ce028b457204f1080d1793669",
        "train_data_batch_10": "14e3a6ce19d584ba97208a1d9f551e63",
        "val_data": "4836a1eec28cd4476eb017126cd0f059",
    },
)


GROUPING = read_grouping("imagenet32")  # fine classes by sorted WNID
FILE_LABELS = tuple(int(row["file_label"]) for row in read_table("imagenet32"))  # from 1, by fine class


def missing(root: Path) -> tuple[str, ...]:
    """What is not here, one line each; empty if everything needed is."""
    return tuple(release.lacking(root) for release in (TRAIN, TEST) if release.find(root) is None)


def load_imagenet32(
    root: Path,
    *,
    variant: Variant = "paper",  # noqa: ARG001 - one grouping for both
    download: bool = False,
    progress: Progress | None = None,
) -> Dataset:
    """All of ImageNet-1K at 32x32: 1,281,167 + 50,000 images [3, 32, 32], memory-mapped.

    The first call converts the official files (unpacked, or their zips) below `root` into the cache; progress is then
    called with the batch files done and in all. The official validation images are the test part.
    """
    converted = _convert(root, download, progress)
    train = _image_set(converted.parts[TRAIN.part], first_index=0)
    test = _image_set(converted.parts[TEST.part], first_index=OFFICIAL_TRAIN_COUNT)
    return GROUPING.dataset("imagenet32", "cifar", train, test, notes=_notes(converted, train, test))


def _convert(root: Path, download: bool, progress: Progress | None) -> Converted:
    train, test = TRAIN.find(root), TEST.find(root)
    if train is None or test is None:
        login = "--download cannot fetch it, since image-net.org asks for a login. " if download else ""
        raise DataError(
            f"ImageNet 32x32 is not complete in {root}; missing: {'; '.join(missing(root))}. {login}"
            f"Log in at {PAGE} (free account), download {TRAIN.archive} and {TEST.archive}, and put them there"
        )
    return convert_once(
        "imagenet32",
        root,
        (train, test),
        cache_root() / "converted",
        class_count=len(FILE_LABELS),
        check_md5=_check_md5,
        progress=progress,
    )


def _known_release(md5: Mapping[str, str]) -> dict[str, str] | None:
    """The release that most of these files belong to; None if not one file is known."""
    matches = [sum(md5.get(name) == value for name, value in known.items()) for known in KNOWN_MD5]
    return KNOWN_MD5[matches.index(max(matches))] if max(matches) else None


def _check_md5(md5: Mapping[str, str]) -> None:
    """Refuse a file that is not of the release of the others.

    Files of which none is known are let through, with a note: their release may be in neither list.
    """
    known = _known_release(md5)
    for name, value in md5.items():
        if known is not None and value != known[name]:
            raise CorruptFileError(
                f"{name}: its md5 is {value}, but {known[name]} in the release of the other files; "
                f"get it again from {PAGE}. Nothing was used"
            )


def _image_set(part: ConvertedPart, first_index: int) -> ImageSet:
    fine_of_label = np.empty(len(FILE_LABELS) + 1, dtype=np.int64)
    fine_of_label[list(FILE_LABELS)] = np.arange(len(FILE_LABELS))
    fine = fine_of_label[part.labels]
    return GROUPING.image_set(part.images, fine, np.arange(len(fine), dtype=np.int64) + first_index)


def _notes(converted: Converted, train: ImageSet, test: ImageSet) -> tuple[str, ...]:
    if (len(train), len(test)) != (OFFICIAL_TRAIN_COUNT, OFFICIAL_TEST_COUNT):
        return (
            f"{len(train)} + {len(test)} images were read; the official ImageNet 32x32 has "
            f"{OFFICIAL_TRAIN_COUNT} + {OFFICIAL_TEST_COUNT}",
        )
    if _known_release(converted.md5) is None:
        return ("the files' checksums are in no list known to us, so their contents could not be verified",)
    return ()
