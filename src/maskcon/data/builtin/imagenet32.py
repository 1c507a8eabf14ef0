"""Load ImageNet-1K at 32x32 (Chrabaszcz et al., 2017), in the paper's 12 classes.

Fine classes are numbered by sorted WNID, as usual. Labels in the files have an order of their own, which imagenet32.csv
holds for each WNID; scripts/build_imagenet_groups.py writes that table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.download import Progress
from maskcon._utils.errors import CorruptFileError, DataError
from maskcon._utils.files import file_digest, sync_file
from maskcon._utils.paths import cache_root, has_file
from maskcon.data.builtin.classes import count_notes, read_grouping, read_table
from maskcon.data.cache import cached_folder, check_space, files_key, place_key
from maskcon.data.dataset import Dataset, ImageSet, Variant
from maskcon.data.safe_pickle import IMAGE_BYTES, IMAGE_SHAPE, read_batch

PAGE = "https://image-net.org/download-images"
OFFICIAL_TRAIN_COUNT = 1_281_167  # a test image's id is its row plus this
OFFICIAL_TEST_COUNT = 50_000
TRAIN_FILES = tuple(f"train_data_batch_{number}" for number in range(1, 11))
TEST_FILE = "val_data"
FOLDERS = (".", "imagenet32", "Imagenet32")  # below the root, where the files or their own folders may lie
FORMAT_VERSION = 2
LABELS = "labels.npz"  # of a conversion: labels of both parts, and the md5 of the files they come from


PARTS = {  # the batch files of each zip; they lie in a folder of its name, or loose
    "train": ("Imagenet32_train.zip", TRAIN_FILES),
    "test": ("Imagenet32_val.zip", (TEST_FILE,)),
}
# md5 of the unpacked files as public loaders list them, for the two releases of the dataset
KNOWN_MD5 = {row["file"]: (row["md5_first"], row["md5_second"]) for row in read_table("imagenet32_md5")}

GROUPING = read_grouping("imagenet32")  # fine classes by sorted WNID
FILE_LABELS = tuple(int(row["file_label"]) for row in read_table("imagenet32"))  # from 1, by fine class


def missing(root: Path) -> tuple[str, ...]:
    """List what is not here, one line each."""
    return tuple(lacking for part in PARTS if (lacking := _find(root, part)[1]))


def _find(root: Path, part: str) -> tuple[Path, str]:
    """Find the folder with most of a part's batch files; return it and what it lacks."""
    archive, names = PARTS[part]
    folders = [root / folder / inner for folder in FOLDERS for inner in (".", archive.removesuffix(".zip"))]
    absent = {folder: [name for name in names if not has_file(folder / name)] for folder in folders}
    best = min(folders, key=lambda folder: len(absent[folder]))
    if 0 < len(absent[best]) < len(names):
        return best, f"{', '.join(absent[best])} of {archive} (the rest lies in {best})"
    span = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
    return best, f"{span} of {archive}" if absent[best] else ""


def load_imagenet32(
    root: Path,
    *,
    variant: Variant = "paper",  # noqa: ARG001 - one grouping for both
    download: bool = False,
    progress: Progress | None = None,
) -> Dataset:
    """Load 1,281,167 + 50,000 memory-mapped images [3, 32, 32] of ImageNet-1K.

    The first call converts the official batch files, unpacked below `root`, into the cache; progress is then called
    as progress(batch files done, total). The official validation images are the test part.
    """
    lacking = missing(root)
    if lacking:
        login = "--download cannot fetch it, since image-net.org asks for a login. " if download else ""
        archives = " and ".join(archive for archive, _ in PARTS.values())
        raise DataError(
            f"ImageNet 32x32 is not complete in {root}; missing: {'; '.join(lacking)}. {login}"
            f"Log in at {PAGE} (free account), download {archives}, and unzip them there"
        )
    batches = {part: [_find(root, part)[0] / name for name in names] for part, (_, names) in PARTS.items()}

    def locate() -> Path:
        paths = [str(path.resolve()) for files in batches.values() for path in files]
        key = files_key(Path(), paths, f"{FORMAT_VERSION};")
        return cache_root() / "converted" / f"imagenet32-{place_key(root)}-{key}"

    parts, md5 = _open(locate()) or cached_folder(
        locate, _open, lambda folder: _convert(folder, batches, progress)
    )
    train, test = parts
    official = (OFFICIAL_TRAIN_COUNT, OFFICIAL_TEST_COUNT)
    notes = count_notes("ImageNet 32x32", (len(train), len(test)), official)
    if not notes and not _verified(md5):
        notes = ("the files' checksums are in no list known to us, so their contents could not be verified",)
    return GROUPING.dataset("imagenet32", "cifar", train, test, notes=notes)


def _open(folder: Path) -> tuple[list[ImageSet], dict[str, str]] | None:
    """Read parts and md5 per batch file of a conversion; None if absent or damaged."""
    fine_of_label = np.empty(len(FILE_LABELS) + 1, dtype=np.int64)
    fine_of_label[list(FILE_LABELS)] = np.arange(len(FILE_LABELS))
    parts = []
    try:
        with np.load(folder / LABELS, allow_pickle=False) as stored:
            md5: dict[str, str] = json.loads(str(stored["md5"]))
            for part, first_index in (("train", 0), ("test", OFFICIAL_TRAIN_COUNT)):
                fine = fine_of_label[stored[part]]
                path = folder / f"{part}.images"
                if path.stat().st_size != len(fine) * IMAGE_BYTES:
                    return None
                images = np.memmap(path, dtype=np.uint8, mode="r", shape=(len(fine), *IMAGE_SHAPE))
                index = np.arange(len(fine), dtype=np.int64) + first_index
                parts.append(GROUPING.image_set(images, fine, index))
    except Exception:  # numpy and zipfile raise many types on damaged data
        return None
    return parts, md5


def _convert(folder: Path, batches: Mapping[str, Sequence[Path]], progress: Progress | None) -> None:
    """Write the pixels and labels of both parts; holds one batch in memory at a time."""
    every = [path for paths in batches.values() for path in paths]
    check_space(folder, sum(path.stat().st_size for path in every), "converting")
    md5: dict[str, str] = {}
    labels: dict[str, NDArray[np.int16]] = {}
    for part, paths in batches.items():
        found = []
        with (folder / f"{part}.images").open("wb") as out:
            for path in paths:
                pixels, read = read_batch(path, labels=range(1, len(FILE_LABELS) + 1))
                out.write(np.ascontiguousarray(pixels).reshape(-1).data)
                found.append(read["labels"].astype("<i2"))
                del pixels  # before the next batch is read
                md5[path.name] = file_digest(path, "md5")
                if progress is not None:
                    progress(len(md5), len(every))
            sync_file(out)
        labels[part] = np.concatenate(found)
    _verified(md5)
    with (folder / LABELS).open("wb") as out:
        np.savez(out, allow_pickle=False, md5=np.array(json.dumps(md5)), **labels)
        sync_file(out)


def _verified(md5: Mapping[str, str]) -> bool:
    """Tell whether the checksums are known; refuse unknown ones among known ones."""
    unknown = [name for name, value in md5.items() if value not in KNOWN_MD5[name]]
    if 0 < len(unknown) < len(md5):
        name = unknown[0]
        raise CorruptFileError(
            f"{name}: its md5 is {md5[name]}, but {' or '.join(KNOWN_MD5[name])} in the releases of the dataset; "
            f"get it again from {PAGE}. Nothing was used"
        )
    return not unknown
