"""Load a dataset by name or path, or prepare it so that loading needs no decoding."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

import numpy as np

from maskcon._utils.errors import UsageError, unknown
from maskcon._utils.paths import data_root, resolved
from maskcon.data.builtin.registry import SOURCES
from maskcon.data.dataset import Dataset, Variant
from maskcon.data.huggingface import PREFIX, Address, read_hub
from maskcon.data.manifest import is_manifest
from maskcon.data.packing import ImagePlan, Progress, find_pack, make_pack, pack
from maskcon.data.photos import plan_photos, read_path


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
    progress: called as progress(done, in all), in files looked at or decoded or in bytes downloaded

    A name goes before a folder of the same name in the current directory; write "./cifar10" for the folder.
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
        return plan.dataset(pack(plan.job, progress))
    return _arrays(name_or_path)(data_root(root), variant=variant, download=download, progress=progress)


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

    progress is called in bytes while an archive is downloaded, looking in files while many headers are read.
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
        layout = read_path(_own_path(name_or_path))
    return plan_photos(layout, image_size=image_size, strict=strict, looking=looking)


def takes_image_size(name_or_path: str) -> bool:
    """Tell whether a canvas size can be chosen: the images have many sizes.

    >>> takes_image_size("cifar10"), takes_image_size("cars196"), takes_image_size("./my_images")
    (False, True, True)
    """
    source = SOURCES.get(name_or_path)
    return source is None or source.load is None


@dataclass(frozen=True)
class Prepared:
    """What `prepare` made or found: the data, and the folder of the decoded images.

    place: folder of the pack or of the conversion; None if the set comes as arrays, and needs neither
    left_out: images that could not be read
    was_there: nothing had to be made; otherwise it took so many seconds
    """

    data: Dataset | None
    place: Path | None
    left_out: int
    was_there: bool
    seconds: float = 0.0

    @property
    def size_bytes(self) -> int:
        return 0 if self.place is None else sum(path.stat().st_size for path in self.place.iterdir())


def prepare(
    name_or_path: str,
    *,
    root: Path | None = None,
    image_size: int | None = None,
    download: bool = False,
    strict: bool = False,
    fetching: Progress | None = None,
    looking: Progress | None = None,
    decoding: Progress | None = None,
) -> Prepared:
    """Decode images once into a memory-mapped file that `load` finds.

    fetching is called in bytes while an archive is downloaded, looking in files while many headers are read, decoding
    in files while they are decoded or converted.
    """
    plan = image_plan(
        name_or_path,
        root=root,
        image_size=image_size,
        download=download,
        strict=strict,
        progress=fetching,
        looking=looking,
    )
    if plan is None:
        return _prepare_arrays(name_or_path, root, download, decoding)
    found = find_pack(plan.job)
    begun = time.monotonic()
    packed = make_pack(plan.job, decoding) if found is None else found
    seconds = time.monotonic() - begun
    left_out = len(plan.failures) + len(packed.failures)
    return Prepared(plan.dataset(packed), packed.folder, left_out, found is not None, seconds)


def _prepare_arrays(name: str, root: Path | None, download: bool, decoding: Progress | None) -> Prepared:
    """Convert a named dataset of arrays if it needs that."""
    if not SOURCES[name].converted:
        return Prepared(None, None, 0, was_there=True)
    calls = 0  # a conversion reports each file it has read

    def counted(done: int, total: int) -> None:
        nonlocal calls
        calls += 1
        if decoding is not None:
            decoding(done, total)

    begun = time.monotonic()
    data = _arrays(name)(data_root(root), variant="paper", download=download, progress=counted)
    seconds = time.monotonic() - begun
    images = data.train.images
    place = Path(str(images.filename)).parent if isinstance(images, np.memmap) else None
    return Prepared(data, place, 0, was_there=calls == 0, seconds=seconds)


def _arrays(name: str) -> Callable[..., Dataset]:
    """Return the loader of a named dataset of arrays."""
    load_arrays = SOURCES[name].load
    assert load_arrays is not None  # `image_plan` returns None for these alone
    return load_arrays


def is_path(name_or_path: str) -> bool:
    """Tell whether this is meant as a path, existing or not.

    >>> is_path("./photos"), is_path("photos.csv"), is_path("cifar100"), is_path("hf:user/set")
    (True, True, False, False)
    """
    if name_or_path in SOURCES or name_or_path.startswith(PREFIX):
        return False
    if os.sep in name_or_path or "/" in name_or_path or name_or_path in (".", "..", "~"):
        return True
    return bool(name_or_path) and (is_manifest(Path(name_or_path)) or _exists(Path(name_or_path)))


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # too long a name, say
        return False


def is_there(source: str) -> bool:
    """Tell whether a source can be looked up: every known name, and paths that exist.

    >>> is_there("cifar100"), is_there("hf:user/set"), is_there("./absent"), is_there("arrays")
    (True, True, False, False)
    """
    if source.startswith(PREFIX):
        address = Address.parse(source)
        return not address.is_path or address.folder is not None
    return source in SOURCES or (is_path(source) and _exists(Path(source).expanduser()))


def absolute(source: str) -> str:
    """Make a path absolute; names stay unchanged.

    >>> absolute("cifar100"), Path(absolute("photos.csv")) == Path.cwd() / "photos.csv"
    ('cifar100', True)
    """
    if source.startswith(PREFIX):
        address = Address.parse(source)
        folder = address.folder
        return source if folder is None else replace(address, name=str(folder.resolve())).text
    return str(resolved(_own_path(source))) if is_path(source) else source


def _own_path(name_or_path: str) -> Path:
    try:
        path = Path(name_or_path).expanduser()
        if is_path(name_or_path) or (name_or_path and path.exists()):
            return path
    except OSError as error:
        raise UsageError(f"cannot read {name_or_path!r}: {error.strerror or error}") from error
    except RuntimeError as error:
        raise UsageError(f"cannot read {name_or_path!r}: there is no such user") from error
    raise UsageError(
        f"{unknown('dataset', name_or_path, SOURCES)}; the path of a folder of images, of a manifest (.csv, "
        f".parquet), or {PREFIX}NAME may be given too"
    )
