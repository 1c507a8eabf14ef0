"""Load a dataset by name or path."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import get_args

from maskcon._utils.errors import UsageError, unknown
from maskcon._utils.paths import data_root, exists, resolved
from maskcon.data.builtin.registry import SOURCES
from maskcon.data.dataset import Dataset, Variant
from maskcon.data.huggingface import PREFIX, Address, read_hub
from maskcon.data.manifest import is_manifest
from maskcon.data.packing import ImagePlan, Progress, pack
from maskcon.data.photos import assemble, plan_photos, read_path


def load(
    name_or_path: str,
    *,
    root: Path | None = None,
    variant: Variant = "paper",
    image_size: int | None = None,
    download: bool = False,
    strict: bool = False,
    progress: Progress | None = None,
) -> Dataset:
    """Load a dataset by name (see `catalogue`), folder, manifest or `hf:NAME`.

    root: where named datasets live; default $MASKCON_DATA, else the user's cache
    variant: labels as in the paper's text or as in its authors' code, where the two differ
    image_size: side of the canvas, for own images and datasets of photographs. None: the largest side, at most 256
    download: fetch a dataset that is not here yet
    strict: an image that cannot be read is an error, not left out
    progress: called as progress(done, total), in files examined or decoded or in bytes downloaded

    A dataset name takes precedence over a folder of that name; write "./cifar10" for the folder.
    """
    plan = image_plan(
        name_or_path,
        root=root,
        variant=variant,
        image_size=image_size,
        download=download,
        strict=strict,
        progress=progress,
        looking=progress,
    )
    if plan is not None:
        return assemble(plan, pack(plan, progress))
    arrays = SOURCES[name_or_path].load
    assert arrays is not None  # `image_plan` returns None for these alone
    return arrays(data_root(root), variant=variant, download=download, progress=progress)


def image_plan(
    name_or_path: str,
    *,
    root: Path | None = None,
    variant: Variant = "paper",
    image_size: int | None = None,
    download: bool = False,
    strict: bool = False,
    progress: Progress | None = None,
    looking: Progress | None = None,
) -> ImagePlan | None:
    """Find the images that `load` would decode; None for datasets of arrays.

    progress counts bytes while an archive is downloaded; looking counts files while many headers are read.
    """
    if variant not in get_args(Variant):
        raise unknown("variant", variant, get_args(Variant))
    source = SOURCES.get(name_or_path)
    if source is not None and source.load is not None:
        if image_size is not None:
            large = [other for other in SOURCES if takes_image_size(other)]
            raise UsageError(
                f"image_size={image_size} is for folders of images and for {', '.join(large)}; "
                f"{name_or_path!r} has images of {source.info.image}"
            )
        return None
    if source is not None and source.listing is not None:
        layout = source.listing(data_root(root), variant=variant, download=download, progress=progress)
    elif name_or_path.startswith(PREFIX):
        layout = read_hub(name_or_path, download=download, looking=looking)
    else:
        layout = read_path(own_path(name_or_path))
    return plan_photos(layout, image_size=image_size, strict=strict, looking=looking)


def takes_image_size(name_or_path: str) -> bool:
    """Tell whether a canvas size can be chosen: the images have many sizes.

    >>> takes_image_size("cifar10"), takes_image_size("cars196"), takes_image_size("./my_images")
    (False, True, True)
    """
    source = SOURCES.get(name_or_path)
    return source is None or source.load is None


def is_path(name_or_path: str) -> bool:
    """Tell whether this is meant as a path, existing or not.

    >>> is_path("./photos"), is_path("photos.csv"), is_path("cifar100"), is_path("hf:user/set")
    (True, True, False, False)
    """
    if name_or_path in SOURCES or name_or_path.startswith(PREFIX):
        return False
    if os.sep in name_or_path or "/" in name_or_path or name_or_path in (".", "..", "~"):
        return True
    return bool(name_or_path) and (exists(Path(name_or_path)) or is_manifest(Path(name_or_path)))


def is_there(source: str) -> bool:
    """Tell whether a source can be looked up: every known name, and paths that exist.

    >>> is_there("cifar100"), is_there("hf:user/set"), is_there("./absent"), is_there("arrays")
    (True, True, False, False)
    """
    if source.startswith(PREFIX):
        address = Address.parse(source)
        return not address.is_path or address.folder is not None
    return source in SOURCES or (is_path(source) and exists(Path(source).expanduser()))


def absolute(source: str) -> str:
    """Make a path absolute; names stay unchanged.

    >>> absolute("cifar100"), Path(absolute("photos.csv")) == Path.cwd() / "photos.csv"
    ('cifar100', True)
    """
    if source.startswith(PREFIX):
        address = Address.parse(source)
        folder = address.folder
        return source if folder is None else replace(address, name=str(folder.resolve())).text
    return str(resolved(own_path(source))) if is_path(source) else source


def own_path(name_or_path: str) -> Path:
    """Return the path of the user's folder or file; refuse a misspelt name."""
    try:
        path = Path(name_or_path).expanduser()
    except RuntimeError as error:
        raise UsageError(f"cannot read {name_or_path!r}: there is no such user") from error
    if is_path(name_or_path) or (name_or_path and exists(path)):
        return path
    raise UsageError(
        f"{unknown('dataset', name_or_path, SOURCES)}; the path of a folder of images, of a manifest (.csv, "
        f".parquet), or {PREFIX}NAME may be given too"
    )
