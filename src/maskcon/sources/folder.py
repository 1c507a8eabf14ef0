"""A folder of one's own pictures: a sub-folder a coarse class, in it pictures, or sub-folders of fine classes.

flowers/daisy/1.jpg                    coarse labels only; about a fifth of the pictures is held out to score on
flowers/daisy/oxeye/1.jpg              coarse and fine labels
flowers/train/daisy/1.jpg, flowers/test/daisy/oxeye/2.jpg     own parts; fine labels to score with
"""

from __future__ import annotations

from pathlib import Path

from maskcon.locations import resolved
from maskcon.sources.contract import Dataset
from maskcon.sources.layout import read_layout, show
from maskcon.sources.pack import Progress, pack
from maskcon.sources.photos import Origin, PhotoPlan, plan_photos
from maskcon.sources.split import HELD_OUT_FRACTION


def load_folder(
    path: Path,
    *,
    image_size: int | None = None,
    strict: bool = False,
    held_out: float = HELD_OUT_FRACTION,
    progress: Progress | None = None,
    cache: Path | None = None,
) -> Dataset:
    """Read a folder of pictures; ids are hashes of the relative paths, so adding files changes no other id.

    image_size: side of the canvas; larger pictures are shrunk to fit. None: the largest side, at most 256.
    strict: a picture that cannot be read is an error; otherwise it is left out, with a line in `notes`.
    held_out: share kept for testing where there is no test folder, chosen by a hash of each path.
    progress: called as progress(files done, files in all), while looking at them if they are many, then while decoding.
    """
    plan = plan_folder(
        path, image_size=image_size, strict=strict, held_out=held_out, cache=cache, looking=progress
    )
    return plan.dataset(pack(plan.job, progress))


def plan_folder(
    path: Path,
    *,
    image_size: int | None = None,
    strict: bool = False,
    held_out: float = HELD_OUT_FRACTION,
    cache: Path | None = None,
    looking: Progress | None = None,
) -> PhotoPlan:
    """Find the pictures and read how large they are; see `load_folder`."""
    where = show(str(path))
    origin = Origin(
        name=show(resolved(path).name) or "folder",
        where=str(path),
        kind="folder",
        inside=f"the sub-folders of {where}",
        expected=f"{where}/CLASS/picture.jpg, with a sub-folder a class",
        test_part="test folder",
        root=path,
    )
    return plan_photos(
        origin,
        read_layout(path),
        image_size=image_size,
        strict=strict,
        fraction=held_out,
        cache=cache,
        looking=looking,
    )
