"""A folder of one's own pictures: a sub-folder a coarse class, in it pictures, or sub-folders of fine classes.

flowers/daisy/1.jpg                    coarse labels only; about a fifth of the pictures is held out to score on
flowers/daisy/oxeye/1.jpg              coarse and fine labels
flowers/train/daisy/1.jpg, flowers/test/daisy/oxeye/2.jpg     own parts; fine labels to score with
"""

from __future__ import annotations

from pathlib import Path

from maskcon._utils.paths import resolved
from maskcon.data.folder_layout import Layout, read_layout, show
from maskcon.data.photos import Origin


def folder_photos(path: Path) -> tuple[Origin, Layout]:
    """The pictures below a folder, and how to speak of them."""
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
    return origin, read_layout(path)
