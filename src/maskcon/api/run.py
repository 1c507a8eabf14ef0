"""Train a run with `fit`; open it with `Run` (its folder: `maskcon.training.run_folder`)."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maskcon._utils.errors import MaskconError, UsageError
from maskcon.config.backbones import view_size
from maskcon.config.choices import Facts
from maskcon.config.presets import DEFAULT_PRESET, default_method
from maskcon.config.settings import Machine, RunConfig
from maskcon.data import Dataset, ImageSet
from maskcon.data.photos import usual_side
from maskcon.models import Backbone, for_inference
from maskcon.models.encoder_file import EncoderFacts, read_encoder
from maskcon.retrieval.encode import Feed, embed, raw_pixels
from maskcon.retrieval.recall import recall_at_k
from maskcon.training.automatic import complete_settings
from maskcon.training.budget import Budget
from maskcon.training.callbacks import Callback
from maskcon.training.distributed import threads_of_torch, usable_device, with_threads
from maskcon.training.evaluation import FLOOR_SIZE, KS, by_name
from maskcon.training.frozen.features import require_weights
from maskcon.training.run_folder import (
    CHECKPOINTS,
    CONFIG,
    ENCODER,
    RESULT,
    check_place,
    default_folder,
    is_new,
    read_result,
    source_of,
)
from maskcon.training.runner import train
from maskcon.training.setup import check_names, load_dataset, plan_images, settle


@dataclass(frozen=True)
class Run:
    """A finished run in its folder."""

    folder: Path
    config: RunConfig
    result: Mapping[str, Any]

    @classmethod
    def open(cls, folder: str | Path) -> Self:
        """Open the folder of a finished run."""
        path = Path(folder)
        result = read_result(path)
        return cls(path, RunConfig.from_yaml(path / CONFIG), result)

    @property
    def recall(self) -> dict[int, float]:
        """Recall@K on the test images, shares in 0..1: ``{1: .., 2: .., 5: .., 10: ..}``."""
        return {int(k): float(share) for k, share in self.result["recall"].items()}

    @property
    def source(self) -> str:
        """Return the source of its data, valid in any working directory."""
        return source_of(self.folder, self.config.source, self.result)

    def encoder_digest(self) -> str:
        """Return the sha256 (hex) of the encoder's file, which holds weights and preprocessing."""
        with (self.folder / ENCODER).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def encoder(self, device: str = "cpu") -> tuple[Backbone, EncoderFacts]:
        """Read the encoder for embedding on a device, and its facts.

        A frozen backbone is optimised for speed, as in training; another encoder gives the same bits as in training.
        """
        backbone, facts = read_encoder(self.folder / ENCODER)
        place = usable_device(device)
        return (for_inference(backbone, place) if facts.head_features else backbone), facts

    def encode(self, images: NDArray[np.uint8] | Tensor | Sequence[Any], *, device: str = "cpu") -> Tensor:
        """Embed images: float32 ``[N, F]``, not normalised; compare them by cosine.

        Args:
            images: uint8 ``[N, C, H, W]``, or a sequence of paths or PIL images of any size and mode.
            device: where to compute: cpu, cuda, cuda:1, mps, or auto for the best one available.
        """
        backbone, facts = self.encoder(device)
        array, sizes = _as_arrays(images, facts)
        return features_of(backbone, facts, array, sizes, device)

    def encode_set(
        self,
        part: ImageSet,
        *,
        device: str = "cpu",
        progress: Callable[[int, int], None] = lambda done, total: None,  # noqa: ARG005
    ) -> Tensor:
        """Embed the train or test part of a dataset: float32 ``[N, F]``.

        Args:
            device: see `encode`.
            progress: called as progress(done, in all).
        """
        backbone, facts = self.encoder(device)
        return features_of(backbone, facts, part.images, part.sizes, device, progress)


def fit(
    source: str | Path | Dataset,
    *,
    method: str | None = None,
    preset: str = DEFAULT_PRESET,
    choose: bool | Facts = False,
    budget: float | None = None,
    begun: float | None = None,
    w: float | None = None,
    tau: float | None = None,
    epochs: int | None = None,
    seed: int | None = None,
    fine: str | Path | None = None,
    out: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    machine: Machine | None = None,
    callback: Callback | None = None,
) -> Run:
    """Train one method on one source, or resume an earlier call with the same settings.

    Args:
        source: a dataset by name (``"embedded"``), a folder of images, a manifest (``"photos.csv"``), ``"hf:NAME"``,
            or a `Dataset`, such as `maskcon.data.from_arrays` makes from images in memory.
        method: ``"maskcon"`` is the paper's, ``"teachcon"`` ours and the default with the preset fast; `maskcon
            methods` lists all.
        preset: ``"paper"``, ``"reference"``, ``"cpu"`` or ``"fast"``: optimiser, schedule and sizes.
        choose: fit image size, encoder, batch, bank and epochs to these images and this machine, as
            ``maskcon train FOLDER`` does; settings given by name are kept. Built-in datasets keep their own settings.
            With `Facts` instead of True, choose by these, so that several runs make the same choices.
        budget: seconds, loading included; trains as many epochs as fit, by the pace measured on this machine.
        begun: ``time.monotonic()`` at the start of the budget; by default now.
        w, tau, epochs, seed: the settings most often changed; None keeps the preset's.
        fine: a kinds.csv, whose names of finer kinds refine the relation of maskcon, teachcon, supcon and grafit.
            Images are matched by path; any number of them may have names.
        out: run folder; by default ``runs/<source>-<method>-seed<seed>``.
        settings: any other setting of `RunConfig` by name.
        machine: device, processes, checkpoint interval and more; see `Machine`.
        callback: receives progress; silent by default.

    Example:
        >>> run = fit("embedded", epochs=1, settings={"train_limit": 300})  # doctest: +SKIP
        >>> run.recall[1], run.encode(images)  # doctest: +SKIP
    """
    overrides = dict(settings or {})
    given = {"w": w, "tau": tau, "epochs": epochs, "seed": seed, "fine": None if fine is None else str(fine)}
    overrides.update({key: value for key, value in given.items() if value is not None})
    machine = machine or Machine()
    callback = callback or Callback()
    name = source.name if isinstance(source, Dataset) else str(source)
    method = (method or default_method(preset)).lower()
    begun = time.monotonic() if begun is None else begun
    folder = Path(out) if out is not None else default_folder(name, method, overrides)
    if is_new(folder):
        check_place(folder, None if isinstance(source, Dataset) else name)
    elif not (folder / RESULT).is_file():
        check_place(folder / CHECKPOINTS, None)
    machine = with_threads(machine, folder, callback.on_message)
    completed = complete_settings(
        source,
        method=method,
        preset=preset,
        overrides=overrides,
        folder=folder,
        machine=machine,
        choose=choose,
        budget=budget,
        callback=callback,
    )
    completed.announce(callback)
    config, plan = completed.resolved.config, completed.plan
    with threads_of_torch(machine.threads):
        try:
            check_names(config)
            if config.freeze and not (folder / RESULT).is_file():  # a finished run needs no weights
                require_weights(config, download=machine.download)
            plan = plan or plan_images(source, machine, callback.on_load, config.protocol)
            if config.freeze and config.image_size is None and plan is not None:
                config = config.changed(image_size=view_size(config.backbone, usual_side(plan) or 0.0))
            data = load_dataset(source, config, machine, callback, plan)
            config = settle(config, data)
            train(
                config,
                data,
                folder,
                machine,
                callback,
                choices=() if completed.is_recalled else completed.resolved.choices,
                budget=None if completed.budget is None else Budget(completed.budget, begun, overrides),
            )
        finally:
            callback.on_end()  # also if reading or embedding was interrupted
    return Run.open(folder)


def features_of(
    backbone: Backbone,
    facts: EncoderFacts,
    array: NDArray[np.uint8],
    sizes: NDArray[np.int32] | None,
    device: str,
    progress: Callable[[int, int], None] = lambda done, total: None,  # noqa: ARG005
) -> Tensor:
    """Embed images with an encoder, which stays on the device: float32 ``[N, F]`` on the CPU.

    Args:
        array: uint8 ``[N, C, H, W]``.
        sizes: int32 ``[N, 2]``, the valid (height, width) of each, from its top-left corner; None: all of it.
        device: see `Run.encode`.
    """
    place = torch.device(usable_device(device))
    feed = Feed(array, sizes, place)
    features = embed(
        backbone.to(place),
        feed,
        torch.arange(len(array)),
        size=facts.image_size,
        resize=facts.test_resize,
        normalise=facts.normalise,
        progress=progress,
    )
    feed.close()
    assert features is not None  # only a stop request gives None
    if not bool(features.isfinite().all()):
        raise MaskconError("the encoder gives NaN or Inf; train it again with a lower learning_rate")
    return features.cpu()


def data_of(run: Run, machine: Machine, given: Dataset | None = None) -> Dataset:
    """Load the data a run was trained and scored on; refuse other data under the same name."""
    data = load_dataset(given or run.source, run.config, machine, Callback())
    if data.fingerprint() != run.result["data"]:
        raise UsageError(
            f"{run.config.source!r} is not the data that the run in {run.folder} was trained on; "
            "restore them, or from Python pass the Dataset it was fitted on"
        )
    return data


def score(
    run: Run, machine: Machine | None = None, *, data: Dataset | None = None, device: str = "cpu"
) -> dict[str, Any]:
    """Compute recall@K of a saved encoder on the test images of its run, and of raw pixels."""
    data = data_of(run, machine or Machine(), data)
    _, facts = read_encoder(run.folder / ENCODER)
    labels = torch.from_numpy(data.test.finest)
    features = run.encode_set(data.test, device=device)
    feed = Feed(data.test.images, data.test.sizes, torch.device("cpu"))
    floor = raw_pixels(
        feed,
        torch.arange(len(labels)),
        size=min(FLOOR_SIZE, facts.image_size),
        resize=facts.test_resize,
    )
    feed.close()
    return {
        "recall": by_name(recall_at_k(features, labels, KS)),
        "raw_pixels": by_name(recall_at_k(floor, labels, KS)),
    }


def _as_arrays(
    images: NDArray[np.uint8] | Tensor | Sequence[Any], facts: EncoderFacts
) -> tuple[NDArray[np.uint8], NDArray[np.int32] | None]:
    if isinstance(images, Tensor):
        images = images.cpu().numpy()
    if not isinstance(images, np.ndarray):
        from maskcon.data import read_images

        return read_images(images, channels=facts.in_channels, canvas=facts.canvas)
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[1] != facts.in_channels:
        raise UsageError(
            f"images must be uint8 [N, {facts.in_channels}, H, W] as in training, "
            f"got {images.dtype} {list(images.shape)}; or pass paths or PIL images"
        )
    return images, None
