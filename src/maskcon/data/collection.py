"""Open the images of any source, with or without labels, for `embed` and `index`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from maskcon._utils.errors import DataError, UsageError
from maskcon._utils.paths import data_root, exists, has_folder
from maskcon._utils.text import counted
from maskcon.data.builtin.registry import SOURCES
from maskcon.data.dataset import Dataset, Variant
from maskcon.data.decoding import EXTENSIONS
from maskcon.data.folder_layout import read_any_depth, show
from maskcon.data.image_readers import ImageArrays, ImageFiles
from maskcon.data.loading import absolute, is_path, load, own_path, takes_image_size
from maskcon.data.manifest import folder_of, is_manifest, listed_images
from maskcon.data.packing import Progress

ADVICE = "give a folder of images, a manifest (.csv, .parquet) with a column path, or images"
Given = str | Path | Dataset | Sequence[str | Path]


def gather(
    source: Given,
    *,
    canvas: int,
    channels: int,
    root: Path | None = None,
    variant: Variant = "paper",
    download: bool = False,
    strict: bool = False,
    progress: Progress | None = None,
) -> ImageFiles | ImageArrays:
    """Open the images of a folder, of a list of files, or of a dataset.

    Args:
        source: a folder, with or without class folders; a manifest (.csv, .parquet) with a column path, relative to
            its folder; one or more images; a dataset by name, or hf:NAME; or a `Dataset`.
        canvas, channels: what images of many sizes are decoded onto. Images that come in one size keep it.
        root, variant, download: for datasets by name; see `load`.
        strict, progress: for datasets that are decoded or fetched here, as a whole; see `load`.
    """
    if isinstance(source, Dataset):
        return ImageArrays(source.name, source, channels=channels)
    make = partial(ImageFiles, canvas=canvas, channels=channels)
    if not isinstance(source, str | Path):
        return _of_names(source, f"{len(source)} files", make)
    name = str(source)
    known = SOURCES.get(name)
    if known is not None and known.listing is not None:
        listing = known.listing(data_root(root), variant=variant, download=download, progress=progress)
        named = [(found.path, found.coarse) for found in listing.files]
        empty = f"{listing.name} lists no image"
        return make(listing.name, listing.root.resolve(), named, empty=empty, notes=tuple(listing.notes))
    if is_path(name) or Path(name).suffix.lower() in EXTENSIONS:
        path = own_path(name) if is_path(name) else Path(name)
        if not exists(path):
            raise DataError(f"{show(name)} does not exist; {ADVICE}")
        return _of_path(path, name, make)
    data = load(
        name,
        root=root,
        variant=variant,
        image_size=canvas if takes_image_size(name) else None,
        download=download,
        strict=strict,
        progress=progress,
    )
    return ImageArrays(absolute(name), data, channels=channels)


def _of_path(path: Path, name: str, make: Callable[..., ImageFiles]) -> ImageFiles:
    """Open a folder, a manifest, a list, or an image."""
    source, suffix = absolute(name), path.suffix.lower()
    if path.is_dir():
        layout = read_any_depth(path)
        named = [(found.path, found.coarse) for found in layout.files]
        others = f" ({counted(layout.ignored_files, 'other file')})" if layout.ignored_files else ""
        empty = f"no image found in {show(name)} or below it{others}; give a folder of images"
        return make(source, path.resolve(), named, empty=empty, unreadable=dict(layout.unreadable))
    if suffix in EXTENSIONS:
        return _of_names([path], source, make)
    if is_manifest(path):
        empty = f"{show(name)} lists no image; write one line per image"
        return make(source, folder_of(path), listed_images(path), empty=empty)
    raise DataError(f"{show(name)} is no image of a known kind ({suffix or 'no ending'}); {ADVICE}")


def _of_names(names: Sequence[str | Path], source: str, make: Callable[..., ImageFiles]) -> ImageFiles:
    """Open images by name; refuse folders, whose paths would be unclear."""
    for name in names:
        if has_folder(Path(name)):
            raise UsageError(f"{show(str(name))} is a folder; give one folder alone, or several images")
    return make(source, Path.cwd(), [(str(name), None) for name in names], empty=f"{source} names no file")
