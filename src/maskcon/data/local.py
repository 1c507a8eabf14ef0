"""One's own pictures at a path: a folder of them, or a manifest that lists them."""

from __future__ import annotations

from pathlib import Path

from maskcon._utils.paths import has_folder
from maskcon.data.dataset import Dataset
from maskcon.data.folder import folder_photos
from maskcon.data.manifest import is_manifest, manifest_photos
from maskcon.data.packing import Progress, pack
from maskcon.data.photos import PhotoPlan, plan_photos
from maskcon.data.splits import HELD_OUT_FRACTION


def load_photos(
    path: Path,
    *,
    image_size: int | None = None,
    strict: bool = False,
    held_out: float = HELD_OUT_FRACTION,
    progress: Progress | None = None,
    cache: Path | None = None,
) -> Dataset:
    """Read a folder or a manifest; ids are hashes of the relative paths, so adding files changes no other id.

    image_size: side of the canvas; larger pictures are shrunk to fit. None: the largest side, at most 256.
    strict: a picture that cannot be read is an error; otherwise it is left out, with a line in `notes`.
    held_out: share kept for testing where there is no part for it, chosen by a hash of each path.
    progress: called as progress(files done, files in all), while looking at them if they are many, then while decoding.
    cache: where decoded pictures are kept; by default the user's cache.
    """
    plan = plan_path(
        path, image_size=image_size, strict=strict, held_out=held_out, looking=progress, cache=cache
    )
    return plan.dataset(pack(plan.job, progress))


def plan_path(
    path: Path,
    *,
    image_size: int | None = None,
    strict: bool = False,
    held_out: float = HELD_OUT_FRACTION,
    looking: Progress | None = None,
    cache: Path | None = None,
) -> PhotoPlan:
    """Find the pictures and read how large they are; see `load_photos`."""
    listed = is_manifest(path) and not has_folder(path)
    origin, layout = manifest_photos(path) if listed else folder_photos(path)
    return plan_photos(
        origin,
        layout,
        image_size=image_size,
        strict=strict,
        fraction=held_out,
        cache=cache,
        looking=looking,
    )
