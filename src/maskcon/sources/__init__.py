"""Where images and labels come from: one file a data set family, one contract for all of them.

>>> from maskcon.sources import load
>>> load("embedded").coarse_names
('upper body', 'full length', 'footwear', 'bag')
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal, get_args

from maskcon.download import Progress as DownloadProgress
from maskcon.errors import UsageError, unknown
from maskcon.locations import data_root
from maskcon.sources.catalogue import SOURCES, SourceInfo, catalogue
from maskcon.sources.cifar import Variant
from maskcon.sources.contract import Dataset, ImageSet
from maskcon.sources.folder import load_folder
from maskcon.sources.pack import Progress
from maskcon.sources.pictures import read_images

__all__ = [
    "Dataset",
    "ImageSet",
    "SourceInfo",
    "catalogue",
    "data_root",
    "load",
    "load_folder",
    "read_images",
]


def load(
    name_or_path: str,
    *,
    root: Path | None = None,
    variant: Literal["paper", "reference"] = "paper",
    image_size: int | None = None,
    download: bool = False,
    strict: bool = False,
    progress: Progress | None = None,
) -> Dataset:
    """The data set of this name (see `catalogue`), or the folder of pictures at this path.

    root: where named data sets live; default $MASKCON_DATA, else the user's cache
    variant: labels as in the paper's text or as in its authors' code, where the two differ
    image_size, strict: for folders, see `load_folder`
    download: fetch a named data set that is not here yet
    progress: called as progress(done, in all), in files decoded or in bytes downloaded

    A name goes before a folder of the same name in the current directory; write "./cifar10" for the folder.
    """
    if variant not in get_args(Variant):
        raise unknown("variant", variant, get_args(Variant))
    source = SOURCES.get(name_or_path)
    if source is None:
        return load_folder(
            _existing_folder(name_or_path), image_size=image_size, strict=strict, progress=progress
        )
    if image_size is not None:
        raise UsageError(
            f"image_size={image_size} is for folders of pictures; {name_or_path!r} has images of {source.info.image}"
        )
    return source.load(
        data_root(root), variant=variant, download=download, progress=_with_known_total(progress)
    )


def _with_known_total(progress: Progress | None) -> DownloadProgress | None:
    """A server may not say how much is to come; then what came so far counts as all."""
    if progress is None:
        return None
    return lambda done, total: progress(done, total or done)


def _existing_folder(name_or_path: str) -> Path:
    looks_like_path = os.sep in name_or_path or "/" in name_or_path or name_or_path in (".", "..", "~")
    try:
        path = Path(name_or_path).expanduser()
        if looks_like_path or (name_or_path and path.exists()):
            return path
    except OSError as error:
        raise UsageError(f"cannot read {name_or_path!r}: {error.strerror or error}") from error
    except RuntimeError as error:
        raise UsageError(f"cannot read {name_or_path!r}: there is no such user") from error
    raise UsageError(
        f"{unknown('data set', name_or_path, SOURCES)}; the path of a folder of images may be given too"
    )
