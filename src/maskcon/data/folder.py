"""Images at a path of the user: a folder with one sub-folder per class, or a manifest that lists them.

flowers/daisy/1.jpg                    coarse labels only; about a fifth of the images is held out to score on
flowers/daisy/oxeye/1.jpg              coarse and fine labels
flowers/train/daisy/1.jpg, flowers/test/daisy/oxeye/2.jpg     train and test parts; fine labels to score with
"""

from __future__ import annotations

from pathlib import Path

from maskcon._utils.paths import has_folder, resolved
from maskcon.data.dataset import Dataset
from maskcon.data.folder_layout import Layout, read_layout, show
from maskcon.data.manifest import is_manifest, manifest_photos
from maskcon.data.packing import PicturePlan, Progress, pack
from maskcon.data.photos import Origin, plan_photos
from maskcon.data.splits import HELD_OUT_FRACTION


def folder_photos(path: Path) -> tuple[Origin, Layout]:
    """The images below a folder, and how to speak of them."""
    where = show(str(path))
    origin = Origin(
        name=show(resolved(path).name) or "folder",
        where=where,
        kind="folder",
        inside=f"the sub-folders of {where}",
        expected=f"{where}/CLASS/image.jpg, with one sub-folder per class",
        test_part="test folder",
        root=path,
    )
    return origin, read_layout(path)


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

    image_size: side of the canvas; larger images are shrunk to fit. None: the largest side, at most 256.
    strict: an image that cannot be read is an error; otherwise it is left out, with a line in `notes`.
    held_out: share kept for testing where there is no part for it, chosen by a hash of each path.
    progress: called as progress(files done, files in all), while looking at them if they are many, then while decoding.
    cache: where decoded images are kept; by default the user's cache.
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
) -> PicturePlan:
    """Find the images and read how large they are; see `load_photos`."""
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
