"""Embeddings laid out on a plane, and the interactive map of the page."""

from __future__ import annotations

import html
import importlib.resources
import json
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.errors import UsageError, unknown
from maskcon.report.gallery import Images, fitted_size, image_uri, sprite_sheet
from maskcon.report.neighbourhood import Neighbourhood
from maskcon.report.style import class_look

FloatArray = NDArray[np.float32]

LARGEST_PERPLEXITY = 30.0
DIMENSIONS_FOR_TSNE = 50  # more only slows the neighbour search down
POINTS_FOR_THREADS = 1500
POINTS_FOR_FAST_TSNE = 500
FAST_ANGLE, FAST_ITERATIONS = 0.8, 750
FEWEST_FOR_TSNE = 4  # below, any layout is as good as the principal axes


def map_2d(embeddings: NDArray[Any], seed: int = 0, method: str = "tsne") -> FloatArray:
    """Place N embeddings [N, D] on the plane: [N, 2] float32, centred, the same for the same seed.

    Rows are l2-normalised first, since retrieval compares by cosine. `tsne` keeps neighbours together, and
    distances between far groups mean little; `pca` is linear, fast and exact. Works for any N, also 0 and 1.

        points = map_2d(embeddings, seed=0)
    """
    if method not in ("tsne", "pca"):
        raise unknown("map", method, ("tsne", "pca"))
    array = np.asarray(embeddings, dtype=np.float64)
    if array.ndim != 2:
        raise UsageError(f"a map needs embeddings of shape [N, D], not {list(array.shape)}")
    if not np.isfinite(array).all():
        bad = int((~np.isfinite(array).all(axis=1)).sum())
        raise UsageError(f"{bad} of {len(array)} embeddings hold NaN or infinity; leave them out of the map")
    lengths = np.linalg.norm(array, axis=1, keepdims=True)
    array = array / np.where(lengths > 0, lengths, 1.0)
    if method == "pca" or len(array) < FEWEST_FOR_TSNE:
        return _principal_axes(array, 2).astype(np.float32)
    return _tsne(array, seed)


def _tsne(array: NDArray[np.float64], seed: int) -> FloatArray:
    from sklearn.manifold import TSNE  # lazy: half a second
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    reduced = _principal_axes(array, min(DIMENSIONS_FOR_TSNE, max(2, array.shape[1])))
    start = reduced[:, :2]
    width = float(start[:, 0].std())
    # The customary scale of a start from principal axes; equal embeddings have no width to divide by.
    start = (
        start / width * 1e-4 if width > 1e-12 else np.random.default_rng(seed).normal(0, 1e-4, start.shape)
    )
    # A coarser approximation and fewer iterations: a third of the time for an equally good map (docs/reproducing.md).
    fast = len(array) >= POINTS_FOR_FAST_TSNE
    layout = TSNE(
        n_components=2,
        angle=FAST_ANGLE if fast else 0.5,
        max_iter=FAST_ITERATIONS if fast else 1000,
        perplexity=min(LARGEST_PERPLEXITY, (len(array) - 1) / 3),
        init=start.astype(np.float32),
        learning_rate="auto",
        random_state=seed,
        n_jobs=1,
    )
    # Few points make threads wait for each other, above all on a busy machine.
    with threadpool_limits(1 if len(array) < POINTS_FOR_THREADS else None):
        points = np.asarray(layout.fit_transform(reduced.astype(np.float32)), dtype=np.float32)
    centred: FloatArray = points - points.mean(axis=0, keepdims=True)
    return centred


def _principal_axes(array: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Project on the first `count` principal components: [N, count]; missing ones are zero."""
    found = np.zeros((len(array), count))
    if array.size == 0:
        return found
    centred = array - array.mean(axis=0, keepdims=True)
    if len(array) < POINTS_FOR_THREADS:
        _, _, axes = np.linalg.svd(centred, full_matrices=False)
    else:  # the same axes from the small [D, D] matrix: for 8,000 x 512 in a hundredth of the time
        _, columns = np.linalg.eigh(centred.T @ centred)
        axes = columns.T[::-1]
    axes = axes[:count]
    # An axis is defined up to its sign: fix it, so that the map does not flip between machines.
    largest = np.abs(axes).argmax(axis=1)
    signs = np.sign(axes[np.arange(len(axes)), largest])
    found[:, : len(axes)] = centred @ (axes * np.where(signs == 0, 1.0, signs)[:, None]).T
    return found


SMALL_TILE, MIDDLE_TILE, LARGE_TILE = 32, 64, 96  # multiples of 16, see image_uri
IMAGES_FOR_LARGE_TILES = 2000
IMAGES_PER_SHEET = 1024  # a browser decodes a sheet when one of its images is first looked at
EXACT_PIXELS = 1 << 20  # small sheets are kept without loss
THUMBNAIL_CHARACTERS = 10_000_000  # all sheets together; beyond, their quality falls
QUALITIES = (82, 65, 45, 25)


@dataclass(frozen=True)
class PageMap:
    """Layouts by name, each [N, 2], of the same N images; labels by name with their class names.

    The first labelling colours the map at first: `{"Fine label": (fine, fine_names), "Coarse label": ...}`.
    `near` holds the neighbours by layout, shown for a selected point.
    """

    layouts: Mapping[str, NDArray[Any]]
    images: Images
    labels: Mapping[str, tuple[Sequence[int] | NDArray[Any], Sequence[str]]]
    ids: Sequence[Any] = field(default=())  # names of the images; their rows if not given
    near: Mapping[str, Neighbourhood] = field(default_factory=dict)

    @property
    def has_points(self) -> bool:
        return bool(self.layouts) and bool(self.labels) and len(self.images) > 0


def package_text(name: str) -> str:
    """Read a file of this package, such as `page.css`."""
    return importlib.resources.files("maskcon.report").joinpath(name).read_text(encoding="utf-8")


def map_html(map_data: PageMap) -> str:
    """Render the section without points: the script draws them."""
    layouts = "".join(f"<option>{html.escape(name)}</option>" for name in map_data.layouts)
    colourings = "".join(f"<option>{html.escape(name)}</option>" for name in map_data.labels)
    return string.Template(package_text("map.html")).substitute(
        layouts=layouts,
        colourings=colourings,
        count=f"{len(map_data.images):,}",
        # no choice where there is one layout
        several=" hidden" if len(map_data.layouts) == 1 else "",
    )


def map_json(map_data: PageMap) -> str:
    """Render the data of the map as an element that a browser does not run."""
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
        "perSheet": IMAGES_PER_SHEET,
        "shapes": _shapes(map_data.images, tile),
        "tile": tile,
    }
    # Inside a script element, only `<` could end it or open a comment.
    text = json.dumps(content, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json" id="map-data">{text}</script>'


def tile_for(images: Images) -> int:
    """Return the side of a thumbnail: small images unscaled, photographs as large as their number allows."""
    largest = max((max(image.shape[1:]) for image in images), default=1)
    if largest <= SMALL_TILE:
        return SMALL_TILE
    if largest <= MIDDLE_TILE or len(images) > IMAGES_FOR_LARGE_TILES:
        return MIDDLE_TILE
    return LARGE_TILE


def thumbnail_sheets(images: Images, tile: int) -> list[dict[str, Any]]:
    """Draw the thumbnails as data URIs, `IMAGES_PER_SHEET` each, with the number of their columns."""
    parts = [images[start : start + IMAGES_PER_SHEET] for start in range(0, len(images), IMAGES_PER_SHEET)]
    drawn = [sprite_sheet(part, tile) for part in parts]
    exact = len(images) * tile * tile <= EXACT_PIXELS and tile == SMALL_TILE
    sheets: list[dict[str, Any]] = []
    for quality in QUALITIES:
        sheets = [
            {"uri": image_uri(sheet, exact=exact, quality=quality), "columns": columns}
            for sheet, columns in drawn
        ]
        if exact or sum(len(sheet["uri"]) for sheet in sheets) <= THUMBNAIL_CHARACTERS:
            break
    return sheets


def _shapes(images: Images, tile: int) -> list[tuple[int, int]] | None:
    """Return width and height of each image inside its tile; None where all fill it."""
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
    """Scale to [0, 1], equally on both axes, so that few digits suffice."""
    low = points.min(axis=0)
    span = float((points.max(axis=0) - low).max())
    scaled: NDArray[np.float64] = (points - low) / (span if span > 0 else 1.0)
    return scaled
