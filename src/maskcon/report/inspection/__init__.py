"""Inspect images before training on them: what there is, what is wrong, what training would choose.

every image, read once -> duplicates by checksum and by hash -> findings -> text, page
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from maskcon.config.choices import Choice
from maskcon.config.presets import DEFAULT_PRESET, default_method
from maskcon.config.resolution import Choosing, resolve
from maskcon.config.settings import Machine
from maskcon.data import Dataset, image_plan, load
from maskcon.data.packing import Progress
from maskcon.report.inspection.findings import ClassCount, Inspection, Twins, findings
from maskcon.report.inspection.page import WARNING, lines, page
from maskcon.report.inspection.scan import Read, read_arrays, read_plan

__all__ = [
    "WARNING",
    "ClassCount",
    "Inspection",
    "Read",
    "Twins",
    "inspect_source",
    "lines",
    "page",
]


def inspect_source(
    source: str | Dataset,
    *,
    method: str = default_method(DEFAULT_PRESET),
    machine: Machine | None = None,
    progress: Progress | None = None,
    fetching: Progress | None = None,
    looking: Progress | None = None,
    message: Callable[[str], None] | None = None,
) -> tuple[Inspection, Read]:
    """Read every image of a source once and collect the findings, see `Inspection`.

    Args:
        source: a folder, a manifest, a dataset by name, or a `Dataset` of arrays.
        method: the method that the choices are for.
        progress: called as progress(images read, images in all).
        fetching: called as fetching(bytes, bytes in all) while a dataset is downloaded.
        looking: called as looking(images sampled, images in all) first, if there are many images.
        message: called before pretrained weights are downloaded, if that is allowed.

    >>> found, _ = inspect_source("embedded")  # doctest: +SKIP
    >>> found.train, len(found.coarse), found.modes  # doctest: +SKIP
    (6000, 4, {'L': 8000})
    """
    machine = machine or Machine()
    # first: a wrong name is reported before minutes of reading
    choices = _choices(source, method, machine, looking, message)
    if isinstance(source, Dataset):
        read = read_arrays(source, progress)
        return findings(source.name, read, choices), read
    root = None if machine.data_root is None else Path(machine.data_root)
    plan = image_plan(source, root=root, download=machine.download, progress=fetching)
    if plan is None:
        read = read_arrays(load(source, root=root, download=machine.download, progress=fetching), progress)
    else:
        read = read_plan(plan, progress)
    return findings(source, read, choices), read


def _choices(
    source: str | Dataset,
    method: str,
    machine: Machine,
    looking: Progress | None,
    message: Callable[[str], None] | None,
) -> list[Choice]:
    """Return what training would choose; nothing for a built-in dataset, which has its own settings."""
    from maskcon.methods.registry import method_named
    from maskcon.training.automatic import find_out, is_known  # loads torch
    from maskcon.training.distributed import usable_device

    contrasts = method_named(method).contrasts  # refuses an unknown one
    usable_device(machine.device)
    if is_known(source):
        return []
    choosing = Choosing(lambda: find_out(source, {}, machine, looking, message), contrasts)
    name = source.name if isinstance(source, Dataset) else source
    return list(resolve(name, method=method, preset=DEFAULT_PRESET, overrides={}, choosing=choosing).choices)
