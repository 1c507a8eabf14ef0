"""Lay embeddings out on a plane; build the interactive map of the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.text import printable
from maskcon.report.figures import MOST_CLASSES_IN_COLOUR, PageFigure, embedding_map
from maskcon.report.gallery import Images, fitted_size, image_uri, sprite_sheet
from maskcon.report.page import part
from maskcon.report.sample import Neighbourhood, Sample, file_part
from maskcon.report.style import class_look
from maskcon.retrieval.nearest import unit_rows

FloatArray = NDArray[np.float32]

LARGEST_PERPLEXITY = 30.0
DIMENSIONS_FOR_TSNE = 50  # more only slow down the neighbour search
POINTS_FOR_THREADS = 1500
POINTS_FOR_FAST_TSNE = 500
FAST_ANGLE, FAST_ITERATIONS = 0.8, 750
FEWEST_FOR_TSNE = 4  # with fewer images t-SNE has nothing to arrange


def map_2d(embeddings: NDArray[Any], seed: int = 0) -> FloatArray:
    """Place N embeddings [N, D] on the plane by t-SNE: [N, 2] float32, centred, the same for the same seed.

    Rows are l2-normalised first, since retrieval compares by cosine. Neighbours stay together; distances between far
    groups mean little. N may be 0 or 1.

        points = map_2d(embeddings, seed=0)
    """
    unit = unit_rows(embeddings)
    if unit.shape[1] < 2:
        unit = np.pad(unit, ((0, 0), (0, 2 - unit.shape[1])))
    if len(unit) < FEWEST_FOR_TSNE or float(np.ptp(unit, axis=0).max()) < 1e-6:  # all equal
        return unit[:, :2] - unit[:, :2].mean(axis=0, keepdims=True) if len(unit) else unit[:, :2]
    from sklearn.decomposition import PCA  # lazy: half a second
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    if unit.shape[1] > DIMENSIONS_FOR_TSNE:
        reduction = PCA(min(DIMENSIONS_FOR_TSNE, len(unit)), svd_solver="covariance_eigh")
        unit = reduction.fit_transform(unit)
    # Coarser, with fewer iterations: a third of the time; for 8,000 points a divergence of 2.78 instead of 2.74.
    fast = len(unit) >= POINTS_FOR_FAST_TSNE
    layout = TSNE(
        n_components=2,
        angle=FAST_ANGLE if fast else 0.5,
        max_iter=FAST_ITERATIONS if fast else 1000,
        perplexity=min(LARGEST_PERPLEXITY, (len(unit) - 1) / 3),
        init="pca",
        learning_rate="auto",
        random_state=seed,
        n_jobs=1,
    )
    # Few points make threads wait for each other, above all on a busy machine.
    with threadpool_limits(1 if len(unit) < POINTS_FOR_THREADS else None):
        points = np.asarray(layout.fit_transform(unit), dtype=np.float32)
    centred: FloatArray = points - points.mean(axis=0, keepdims=True)
    return centred


SMALL_TILE, MIDDLE_TILE, LARGE_TILE = 32, 64, 96  # multiples of 16, see image_uri
IMAGES_FOR_LARGE_TILES = 2000
IMAGES_PER_SHEET = 1024  # a browser decodes a sheet when one of its images is first shown
EXACT_PIXELS = 1 << 20  # up to this size, sheets are lossless
THUMBNAIL_CHARACTERS = 10_000_000  # all sheets together; quality is lowered to stay below
QUALITIES = (82, 65, 45, 25)


def map_of(
    sample: Sample, near: Mapping[str, Neighbourhood], seed: int
) -> tuple[str, dict[str, Any], dict[str, PageFigure]]:
    """Lay out the map of the page: its HTML, the data for its script, and the same as figures by file name."""
    layouts = {label: map_2d(embeddings, seed) for label, embeddings in sample.embeddings.items()}
    labels = {"Coarse label": (sample.coarse, sample.coarse_names)}
    if sample.fine is not None and sample.fine_names is not None:
        # the first entry colours the map when the page opens
        labels = {"Fine label": (sample.fine, sample.fine_names), **labels}
    shown = next(
        (given for given in labels.values() if len(given[1]) <= MOST_CLASSES_IN_COLOUR),
        labels["Coarse label"],
    )
    figures = {}
    for number, (label, points) in enumerate(layouts.items()):
        figure = embedding_map(points, *shown, title=label)
        figures[f"map_{file_part(label, number)}"] = PageFigure(figure, f"Map of the embeddings of {label}.")
    tile = tile_for(sample.images)
    content = {
        "layouts": [_layout(name, points, near.get(name)) for name, points in layouts.items()],
        "colourings": [_colouring(title, *given) for title, given in labels.items()],
        "ids": [printable(name) for name in sample.shown_ids],
        "sheets": thumbnail_sheets(sample.images, tile),
        "perSheet": IMAGES_PER_SHEET,
        "shapes": _shapes(sample.images, tile),
        "tile": tile,
    }
    return part("map", list(layouts), list(labels), f"{len(sample.images):,}"), content, figures


def tile_for(images: Images) -> int:
    """Return the side of a thumbnail: small images are not scaled, photographs as large as their number allows."""
    largest = max((max(image.shape[1:]) for image in images), default=1)
    if largest <= SMALL_TILE:
        return SMALL_TILE
    if largest <= MIDDLE_TILE or len(images) > IMAGES_FOR_LARGE_TILES:
        return MIDDLE_TILE
    return LARGE_TILE


def thumbnail_sheets(images: Images, tile: int) -> list[dict[str, Any]]:
    """Draw sheets of `IMAGES_PER_SHEET` thumbnails as data URIs, with their number of columns."""
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
    """Return width and height of each image inside its tile; None if all fill it."""
    shapes = [fitted_size(image.shape[2], image.shape[1], tile) for image in images]
    return None if all(shape == (tile, tile) for shape in shapes) else shapes


def _layout(name: str, points: NDArray[Any], near: Neighbourhood | None) -> dict[str, Any]:
    layout: dict[str, Any] = {"name": printable(name), "points": np.round(_unit_square(points), 4).tolist()}
    if near is not None and near.positions.size:
        layout["near"] = near.positions.tolist()
        layout["cosines"] = np.round(1000 * near.cosines).astype(int).tolist()  # in thousandths
    return layout


def _colouring(title: str, labels: Sequence[int] | NDArray[Any], names: Sequence[str]) -> dict[str, Any]:
    looks = [class_look(position) for position in range(len(names))]
    values = [int(label) for label in labels]
    return {
        "title": title,
        "labels": values,
        "names": [printable(str(name)) for name in names],
        "looks": looks,
    }


def _unit_square(points: NDArray[Any]) -> NDArray[np.float64]:
    """Scale to [0, 1], equally on both axes, so that few digits suffice."""
    points = np.asarray(points, dtype=np.float64)
    low = points.min(axis=0)
    span = float((points.max(axis=0) - low).max())
    scaled: NDArray[np.float64] = (points - low) / (span if span > 0 else 1.0)
    return scaled
