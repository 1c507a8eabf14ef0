"""Diagnose a run: embed some of its test images and augmented views of them, also with other seeds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from maskcon._utils.errors import MaskconError
from maskcon.api.kinds import FOLDER
from maskcon.api.run import Run, data_of
from maskcon.config.settings import Machine
from maskcon.data import Dataset, ImageSet
from maskcon.discovery.diagnosis import Diagnosis, diagnose, measure
from maskcon.discovery.kinds_folder import read_folder
from maskcon.transforms.policies import policy

MOST_IMAGES = 1000
MOST_SEEDS = 2  # other runs
BATCH = 250

Progress = Callable[[int, int], None]


def diagnose_run(
    run: Run,
    *,
    machine: Machine | None = None,
    data: Dataset | None = None,
    progress: Progress = lambda done, total: None,  # noqa: ARG005
) -> Diagnosis:
    """Say whether an embedding is fit to find kinds in, and what to change; see `maskcon.discovery.diagnosis`.

    Args:
        data: the data of a run that was fitted on a `Dataset`.
        progress: called as progress(embeddings done, embeddings in all).
    """
    machine = machine or Machine()
    data = data_of(run, machine, data)
    limited = data.limited(None, min(MOST_IMAGES, len(data.test)))
    part = limited.test
    others = _other_seeds(run)
    total = len(part) * (2 + len(others))

    def encode(which: Run, images: ImageSet | NDArray[np.uint8], number: int) -> NDArray[np.floating]:
        before = number * len(part)
        if isinstance(images, ImageSet):
            return which.encode_set(
                images, device=machine.device, progress=lambda done, _: progress(before + done, total)
            ).numpy()
        vectors = which.encode(images, device=machine.device).numpy()
        progress(before + len(part), total)
        return vectors

    folder = read_folder(run.folder / FOLDER)
    kinds = folder[0] if folder is not None and folder[1].encoder == run.encoder_digest() else None
    kind_of = None
    if kinds is not None:
        known = kinds.known()
        kind_of = [known[path].kind if path in known else "" for path in limited.image_names[1]]
    measures = measure(
        encode(run, part, 0),
        part.coarse,
        views=encode(run, _views(run, part), 1),
        others=[encode(other, part, number) for number, other in enumerate(others, start=2)],
        kinds=kinds,
        fine=part.fine,
        fine_names=data.fine_names or (),
        kind_of=kind_of,
    )
    return diagnose(measures, run.config.model_dump(), str(run.folder))


def _views(run: Run, part: ImageSet) -> NDArray[np.uint8]:
    """Draw the same weak view of each image every time: uint8 [N, C, S, S]."""
    name = (run.config.query_view or "identity").replace("-strong", "-weak")
    view = policy("photos-weak" if name == "identity" else name)
    size = run.config.image_size or max(part.images.shape[2:])
    table = torch.rand(len(part), view.draws, generator=torch.Generator().manual_seed(0))
    views = []
    for start in range(0, len(part), BATCH):
        rows = slice(start, start + BATCH)
        images = torch.from_numpy(np.ascontiguousarray(part.images[rows]))
        sizes = None if part.sizes is None else torch.from_numpy(np.ascontiguousarray(part.sizes[rows]))
        views.append((255 * view(images, table[rows], size=size, sizes=sizes)).round().byte().numpy())
    return np.concatenate(views)


def _other_seeds(run: Run) -> list[Run]:
    """Find finished runs beside this one that differ only in their seed."""
    own = run.config.changed(seed=0)
    found: list[Run] = []
    for folder in sorted(run.folder.resolve().parent.iterdir()):
        if len(found) == MOST_SEEDS:
            break
        try:
            other = Run.open(folder)
        except (MaskconError, OSError):
            continue
        same = other.config.changed(seed=0) == own and other.result.get("data") == run.result.get("data")
        if same and other.config.seed != run.config.seed:
            found.append(other)
    return found
