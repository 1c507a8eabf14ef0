"""The learner, all that changes during training: encoders, bank, optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from maskcon._utils.errors import CorruptFileError, UsageError
from maskcon.config.settings import RunConfig
from maskcon.methods.bucsfr import Clusters
from maskcon.methods.memory_bank import MemoryBank
from maskcon.methods.registry import Method
from maskcon.models import (
    Backbone,
    FrozenEncoder,
    Model,
    MomentumPair,
    build_backbone,
    build_model,
    freeze_batchnorm,
)
from maskcon.models.hog import AXES
from maskcon.models.momentum import KeyMeans
from maskcon.models.weights import load_weights
from maskcon.training.checkpoint import Checkpoint
from maskcon.training.distributed import Processes
from maskcon.training.muon import Muon
from maskcon.training.schedule import generator

MEANS_KEPT = 0.5  # share of a running mean that stays when a new query comes in
MOMENTUM = 0.9  # of the optimiser
TAIL_RATES = {"sgd": 0.1, "muon": 0.1}  # of thawed stages, as a share of the head's


@dataclass
class Learner:
    """What a step reads and writes.

    Attributes:
        model: the query model.
        query: the same, wrapped for several processes; the step calls this one.
        pair, bank: None for a method without contrast.
        means: running means of queries that serve as keys; None where keys are encoded.
        clusters: of keys, for a method that uses them.
    """

    method: Method
    model: Model
    query: nn.Module
    pair: MomentumPair | None
    bank: MemoryBank | None
    means: KeyMeans | None
    clusters: Clusters | None
    optimizer: Any  # torch.optim.Optimizer as Fabric wraps it
    processes: Processes
    notes: list[str]

    @cached_property
    def parameters(self) -> list[nn.Parameter]:
        """Parameters of the query model, listed once."""
        return list(self.model.parameters())

    def forget_gradients(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    def encodes_keys(self, epoch: int) -> bool:
        """Return whether the key encoder makes the keys of this epoch.

        In the first epoch it does even if running means replace it later: there are none yet.
        """
        return self.pair is not None and (self.means is None or epoch < 1)

    def update_keys(self, momentum: float) -> None:
        """Move the key encoder towards the query encoder, alike in every process."""
        if self.pair is not None:
            self.pair.update(momentum)

    def begin_epoch(self, config: RunConfig, epoch: int) -> None:
        """Cluster the keys before an epoch, once the warm-up is over, for BuCSFR."""
        if self.clusters is not None and epoch >= max(1, config.relation_warmup_epochs):
            self.clusters.update(generator(config.seed, "clusters", epoch))
            for buffer in self.clusters.buffers():
                self.processes.copy_first(buffer)
            self.clusters.recount()

    def share_statistics(self) -> None:
        """Copy the BatchNorm statistics of the first process to all others.

        Until then each has the statistics of its own rows.
        """
        for buffer in self.model.buffers():
            self.processes.copy_first(buffer)

    @property
    def _parts(self) -> dict[str, nn.Module]:
        key = None if self.pair is None else self.pair.key
        parts = {
            "query": self.model,
            "key": key,
            "bank": self.bank,
            "means": self.means,
            "clusters": self.clusters,
        }
        return {name: part for name, part in parts.items() if part is not None}

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return tensors and plain values that turn a fresh learner into this one."""
        tensors = {
            f"{part}.{name}": value
            for part, module in self._parts.items()
            for name, value in module.state_dict().items()
        }
        for number, entry in self.optimizer.state_dict()["state"].items():
            for name, value in entry.items():
                tensors[f"optimizer.{number}.{name}"] = torch.as_tensor(value)
        scaler = self.processes.fabric.strategy.precision.state_dict()
        return tensors, {"precision": scaler}

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Restore the current state at the end of the block."""
        tensors, plain = self.state()
        before = {name: value.clone() for name, value in tensors.items()}
        try:
            yield
        finally:
            self.load(Checkpoint(before, {"learner": plain}, Path()))

    def load(self, checkpoint: Checkpoint) -> None:
        """Load a saved state, in place.

        Raises:
            CorruptFileError: the state does not fit this learner.
        """
        try:
            self._load(checkpoint)
        except (KeyError, ValueError, RuntimeError, TypeError) as error:
            raise CorruptFileError(
                f"checkpoint {checkpoint.folder} does not fit this run ({str(error).splitlines()[-1].strip()}); "
                "delete it and rerun the same command"
            ) from error

    def _load(self, checkpoint: Checkpoint) -> None:
        tensors = checkpoint.tensors
        for part, module in self._parts.items():
            module.load_state_dict(_with_prefix(tensors, f"{part}."))
        entries: dict[int, dict[str, Tensor]] = {}
        for name, value in _with_prefix(tensors, "optimizer.").items():
            number, _, field = name.partition(".")
            entries.setdefault(int(number), {})[field] = value
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": entries, "param_groups": groups})
        precision = checkpoint.values["learner"]["precision"]
        if precision:
            self.processes.fabric.strategy.precision.load_state_dict(precision)


def build_encoder(config: RunConfig, *, in_channels: int, download: bool = False) -> Backbone:
    """Build the backbone of a config, with fresh weights."""
    if config.image_size is None or config.stem == "fast":
        raise UsageError("image_size and stem are open; the dataset settles them before an encoder is built")
    return build_backbone(
        config.backbone,
        image_size=config.image_size,
        in_channels=in_channels,
        download=download,
        width=config.width,
        stem=config.stem,
    )


def build_learner(
    config: RunConfig,
    method: Method,
    processes: Processes,
    *,
    labels: Tensor,
    in_channels: int,
    classes: int,
    download: bool = False,
    backbone_of: Callable[[], Backbone] | None = None,
) -> Learner:
    """Build the learner of step 0, the same for the same config, in every process.

    Args:
        labels: those of the training images that the method sees, ``[N]``.
        backbone_of: builds what learns in a frozen run, in place of the config's backbone; no weights are loaded.
    """
    notes: list[str] = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(generator(config.seed, "initial weights").initial_seed())
        if backbone_of is None:
            backbone = build_encoder(config, in_channels=in_channels, download=download)
        else:
            backbone = backbone_of()
        model = build_model(
            backbone,
            projection=config.projection_dim if method.contrasts else None,
            hidden=config.projector_hidden,
            coarse_classes=classes
            if method.classifies(config.w) or config.coarse_weight > 0 or config.learns_names
            else None,
        )
    if config.weights is not None and backbone_of is None:
        notes += load_weights(backbone, config.weights, download=download)
    if config.batchnorm == "frozen" or config.thaw > 0:  # pretrained statistics, as the cached maps have them
        freeze_batchnorm(model)
    elif config.batchnorm == "sync":
        if not torch.cuda.is_available():
            raise UsageError(
                "batchnorm=sync needs CUDA, and none is available; use batchnorm=local or frozen"
            )
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]
    model.train()
    model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    pair = bank = means = clusters = None
    if method.contrasts:
        pair = MomentumPair(model)
        pair.key.to(processes.device)
        bank = MemoryBank(
            config.bank_size,
            config.projection_dim,
            compared_dim={"projection": None, "features": model.features, "hog": AXES}[config.relation_space],
            device=processes.device,
        )
        if config.uses_hog:
            means = KeyMeans(len(labels), config.projection_dim, kept=MEANS_KEPT, device=processes.device)
        if method.uses_clusters:
            clusters = Clusters(labels.to(processes.device), config.projection_dim)
    query, optimizer = processes.fabric.setup(model, build_optimizer(model, config))
    return Learner(method, model, query, pair, bank, means, clusters, optimizer, processes, notes)


def build_optimizer(model: Model, config: RunConfig) -> torch.optim.Optimizer:
    """Build SGD, or Muon for all weight matrices but the classifier's.

    The rows of the classifier are classes, not hidden directions. Thawed stages are groups of their own, with a share
    of the rate.
    """
    thawed = list(model.backbone.backbone.parameters()) if isinstance(model.backbone, FrozenEncoder) else []
    share = {"share": TAIL_RATES[config.optimizer]}
    pretrained = set(thawed)
    fresh = [parameter for parameter in model.parameters() if parameter not in pretrained]
    if config.optimizer == "sgd":
        groups: list[dict[str, Any]] = [{"params": fresh}, {"params": thawed, **share}]
        return torch.optim.SGD(
            [group for group in groups if group["params"]],
            lr=config.learning_rate,
            momentum=MOMENTUM,
            weight_decay=config.weight_decay,
            foreach=True,
        )
    classifier = set() if model.classifier is None else set(model.classifier.parameters())
    optimizer = Muon(
        *_matrices_and_others(fresh, classifier),
        lr=config.learning_rate,
        momentum=MOMENTUM,
        weight_decay=config.weight_decay,
    )
    if thawed:
        for part, orthogonal in zip(_matrices_and_others(thawed, classifier), (True, False), strict=True):
            optimizer.add_param_group({"params": part, "orthogonal": orthogonal, **share})
    return optimizer


def _matrices_and_others(
    parameters: Iterable[nn.Parameter], classifier: set[nn.Parameter]
) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    matrices: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for parameter in parameters:
        if parameter.requires_grad:
            (matrices if parameter.ndim >= 2 and parameter not in classifier else others).append(parameter)
    return matrices, others


def _with_prefix(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
