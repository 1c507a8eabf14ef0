"""The interactive map of a page: where points stand, what they are called, their thumbnails, who is near whom."""

from __future__ import annotations

import html
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.errors import UsageError
from maskcon.report.gallery import Images, fitted_size, sprite_sheet
from maskcon.report.neighbourhood import Neighbourhood
from maskcon.report.page_parts import json_script, package_text, picture_uri
from maskcon.report.palette import class_look

SMALL_TILE, MIDDLE_TILE, LARGE_TILE = 32, 64, 96  # multiples of 16, see picture_uri
IMAGES_FOR_LARGE_TILES = 2000
IMAGES_A_SHEET = 1024  # a browser decodes a sheet when one of its images is first looked at
EXACT_PIXELS = 1 << 20  # small sheets are kept without loss
THUMBNAIL_CHARACTERS = 10_000_000  # all sheets together; beyond, their quality falls
QUALITIES = (82, 65, 45, 25)


@dataclass(frozen=True)
class PageMap:
    """Layouts by name, each [N, 2], of the same N images; labels by name with their class names.

    The first labelling colours the map at first: `{"Fine label": (fine, fine_names), "Coarse label": ...}`.
    `near` tells for a layout who is nearest to each image; a chosen point then shows them.
    """

    layouts: Mapping[str, NDArray[Any]]
    images: Images
    labels: Mapping[str, tuple[Sequence[int] | NDArray[Any], Sequence[str]]]
    ids: Sequence[Any] = field(default=())  # what an image is called; its row if not given
    near: Mapping[str, Neighbourhood] = field(default_factory=dict)

    @property
    def has_points(self) -> bool:
        return bool(self.layouts) and bool(self.labels) and len(self.images) > 0


def map_html(map_data: PageMap) -> str:
    """The section's body, still without points: the script puts them in."""
    layouts = "".join(f"<option>{html.escape(name)}</option>" for name in map_data.layouts)
    colourings = "".join(f"<option>{html.escape(name)}</option>" for name in map_data.labels)
    return string.Template(package_text("map.html")).substitute(
        layouts=layouts,
        colourings=colourings,
        count=f"{len(map_data.images):,}",
        # a choice of one is none
        several=" hidden" if len(map_data.layouts) == 1 else "",
    )


def map_json(map_data: PageMap) -> str:
    """All that the script needs, as one element."""
    count = len(map_data.images)
    ids = [str(name) for name in map_data.ids] or [f"image {row}" for row in range(count)]
    if len(ids) != count:
        raise UsageError(f"{len(ids)} ids for {count} images of the map")
    tile = tile_for(map_data.images)
    content = {
        "layouts": [_layout(name, points, map_data) for name, points in map_data.layouts.items()],
        "colourings": [_colouring(title, *given, count) for title, given in map_data.labels.items()],
        "ids": ids,
        "sheets": thumbnail_sheets(map_data.images, tile),
        "perSheet": IMAGES_A_SHEET,
        "shapes": _shapes(map_data.images, tile),
        "tile": tile,
    }
    return json_script("map-data", content)


def tile_for(images: Images) -> int:
    """Side of a thumbnail: small images as they are, photographs as large as their number allows."""
    largest = max((max(image.shape[1:]) for image in images), default=1)
    if largest <= SMALL_TILE:
        return SMALL_TILE
    if largest <= MIDDLE_TILE or len(images) > IMAGES_FOR_LARGE_TILES:
        return MIDDLE_TILE
    return LARGE_TILE


def thumbnail_sheets(images: Images, tile: int) -> list[dict[str, Any]]:
    """Addresses that hold the thumbnails, `IMAGES_A_SHEET` each, with the number of their columns."""
    parts = [images[start : start + IMAGES_A_SHEET] for start in range(0, len(images), IMAGES_A_SHEET)]
    drawn = [sprite_sheet(part, tile) for part in parts]
    exact = len(images) * tile * tile <= EXACT_PIXELS and tile == SMALL_TILE
    sheets: list[dict[str, Any]] = []
    for quality in QUALITIES:
        sheets = [
            {"uri": picture_uri(sheet, exact=exact, quality=quality), "columns": columns}
            for sheet, columns in drawn
        ]
        if exact or sum(len(sheet["uri"]) for sheet in sheets) <= THUMBNAIL_CHARACTERS:
            break
    return sheets


def _shapes(images: Images, tile: int) -> list[tuple[int, int]] | None:
    """Width and height of each picture inside its tile; None where all fill it."""
    shapes = [fitted_size(image.shape[2], image.shape[1], tile) for image in images]
    return None if all(shape == (tile, tile) for shape in shapes) else shapes


def _layout(name: str, points: NDArray[Any], map_data: PageMap) -> dict[str, Any]:
    count = len(map_data.images)
    array = np.asarray(points, dtype=np.float64)
    if array.shape != (count, 2) or not np.isfinite(array).all():
        raise UsageError(
            f"map {name!r} has shape {list(array.shape)} or gaps; {count} images need [{count}, 2]"
        )
    layout: dict[str, Any] = {"name": name, "points": np.round(_unit_square(array), 4).tolist()}
    near = map_data.near.get(name)
    if near is not None and near.positions.size:
        layout["near"] = near.positions.tolist()
        layout["cosines"] = np.round(1000 * near.cosines).astype(int).tolist()  # in thousandths
    return layout


def _colouring(
    title: str, given: Sequence[int] | NDArray[Any], names: Sequence[str], count: int
) -> dict[str, Any]:
    labels = [int(label) for label in given]
    if len(labels) != count or (labels and not 0 <= min(labels) <= max(labels) < len(names)):
        raise UsageError(f"{title!r}: {len(labels)} labels, {len(names)} class names for {count} images")
    looks = [class_look(position) for position in range(len(names))]
    return {"title": title, "labels": labels, "names": [str(name) for name in names], "looks": looks}


def _unit_square(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scaled to fit [0, 1], the same on both axes: few digits then suffice for any map."""
    low = points.min(axis=0)
    span = float((points.max(axis=0) - low).max())
    scaled: NDArray[np.float64] = (points - low) / (span if span > 0 else 1.0)
    return scaled
