"""A run from data to result: `fit` trains, `Run` is what it leaves behind (see `maskcon.run_folder`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maskcon.config import Machine, RunConfig
from maskcon.encoder import Backbone
from maskcon.engine.distributed import usable_device
from maskcon.engine.feed import Feed
from maskcon.errors import UsageError
from maskcon.evaluate import embed, raw_pixels, recall_at_k
from maskcon.model_file import EncoderFacts, read_encoder
from maskcon.observer import FLOOR_SIZE, KS, Announcer, by_name
from maskcon.presets import resolve
from maskcon.run_folder import CONFIG, ENCODER, default_folder, read_result
from maskcon.sources import Dataset, ImageSet
from maskcon.training import load_dataset, settle, train


@dataclass(frozen=True)
class Run:
    """A finished run in its folder."""

    folder: Path
    config: RunConfig
    result: Mapping[str, Any]

    @classmethod
    def open(cls, folder: str | Path) -> Self:
        """Read a finished run back."""
        path = Path(folder)
        result = read_result(path)
        return cls(path, RunConfig.from_yaml(path / CONFIG), result)

    @property
    def recall(self) -> dict[int, float]:
        """Recall@K on the test images, shares in 0..1: ``{1: .., 2: .., 5: .., 10: ..}``."""
        return {int(k): float(share) for k, share in self.result["recall"].items()}

    def encode(self, images: NDArray[np.uint8] | Tensor | Sequence[Any], *, device: str = "cpu") -> Tensor:
        """Embeddings of images, float32 ``[N, F]``, not normalised; compare them by cosine.

        Args:
            images: uint8 ``[N, C, H, W]``, or a sequence of paths or PIL images of any size and mode.
            device: where to compute: cpu, cuda, cuda:1, mps, or auto for the best there is.
        """
        backbone, facts = read_encoder(self.folder / ENCODER)
        array, sizes = _as_arrays(images, facts)
        return _features(backbone, facts, array, sizes, device)

    def encode_set(self, part: ImageSet, *, device: str = "cpu") -> Tensor:
        """Embeddings of a source's train or test part, float32 ``[N, F]``."""
        backbone, facts = read_encoder(self.folder / ENCODER)
        return _features(backbone, facts, part.images, part.sizes, device)


def fit(
    source: str | Path | Dataset,
    *,
    method: str = "maskcon",
    preset: str = "cpu",
    w: float | None = None,
    tau: float | None = None,
    epochs: int | None = None,
    seed: int | None = None,
    out: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    machine: Machine | None = None,
    announce: Announcer | None = None,
) -> Run:
    """Train one method on one source, or go on where an earlier call with the same settings stopped.

    Args:
        source: a data set by name (``"embedded"``), a folder of images, or a `Dataset` of arrays.
        method: see `maskcon.methods`.
        preset: ``"paper"``, ``"reference"`` or ``"cpu"``.
        w, tau, epochs, seed: the settings most often changed; None keeps the preset's.
        out: run folder; by default ``runs/<source>-<method>-seed<seed>``.
        settings: any other setting of `RunConfig` by name.
        machine: device, processes, checkpoint interval and the like; see `Machine`.
        announce: told about progress; silent by default.

    Example:
        >>> run = fit("embedded", epochs=1, settings={"train_limit": 300})  # doctest: +SKIP
        >>> run.recall[1], run.encode(images)  # doctest: +SKIP
    """
    overrides = dict(settings or {})
    given = {"w": w, "tau": tau, "epochs": epochs, "seed": seed}
    overrides.update({key: value for key, value in given.items() if value is not None})
    machine = machine or Machine()
    announce = announce or Announcer()
    name = source.name if isinstance(source, Dataset) else str(source)
    resolved = resolve(name, method=method.lower(), preset=preset, overrides=overrides)
    data = load_dataset(source, resolved.config, machine, announce)
    config = settle(resolved.config, data)
    folder = Path(out) if out is not None else default_folder(config)
    train(config, data, folder, machine, announce)
    return Run.open(folder)


def _features(
    backbone: Backbone,
    facts: EncoderFacts,
    array: NDArray[np.uint8],
    sizes: NDArray[np.int32] | None,
    device: str,
) -> Tensor:
    place = torch.device(usable_device(device))
    feed = Feed(array, sizes, place)
    features = embed(
        backbone.to(place),
        feed,
        torch.arange(len(array)),
        size=facts.image_size,
        resize=facts.test_resize,
        normalise=facts.normalise,
    )
    feed.close()
    assert features is not None  # nobody asked it to stop
    return features.cpu()


def data_of(run: Run, machine: Machine, given: Dataset | None = None) -> Dataset:
    """The very data a run was trained and scored on; other data under the same name are refused."""
    data = load_dataset(given or run.config.source, run.config, machine, Announcer())
    if data.fingerprint() != run.result["data"]:
        raise UsageError(
            f"{run.config.source!r} is not the data that the run in {run.folder} was trained on; "
            "restore them, or from Python pass the Dataset it was fitted on"
        )
    return data


def score(
    run: Run, machine: Machine | None = None, *, data: Dataset | None = None, device: str = "cpu"
) -> dict[str, Any]:
    """Recall@K of a saved encoder on the test images of its own run, and the raw-pixel floor."""
    data = data_of(run, machine or Machine(), data)
    labels = torch.from_numpy(data.test.finest)
    features = run.encode_set(data.test, device=device)
    feed = Feed(data.test.images, data.test.sizes, torch.device("cpu"))
    floor = raw_pixels(
        feed,
        torch.arange(len(labels)),
        size=min(FLOOR_SIZE, int(run.config.image_size or FLOOR_SIZE)),
        resize=run.config.test_resize,
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
        from maskcon.sources import read_images

        return read_images(images, channels=facts.in_channels, canvas=facts.canvas)
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[1] != facts.in_channels:
        raise UsageError(
            f"images must be uint8 [N, {facts.in_channels}, H, W] as in training, "
            f"got {images.dtype} {list(images.shape)}; or pass paths or PIL images"
        )
    return images, None
