"""BatchNorm with frozen statistics, with statistics shared by all processes, or measured at the end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

import torch
from torch import Tensor, nn

from maskcon._utils.errors import UsageError


class FrozenBatchNorm1d(nn.BatchNorm1d):
    """BatchNorm that always uses its running statistics and never updates them."""

    def train(self, mode: bool = True) -> Self:  # noqa: ARG002 - the signature is nn.Module's
        return super().train(False)


class FrozenBatchNorm2d(nn.BatchNorm2d):
    """BatchNorm that always uses its running statistics and never updates them."""

    def train(self, mode: bool = True) -> Self:  # noqa: ARG002 - the signature is nn.Module's
        return super().train(False)


def freeze_batchnorm(module: nn.Module) -> int:
    """Freeze the statistics of every BatchNorm in `module`, in place; return their number.

    The layers stay fixed through later calls of `module.train()`. Scale and shift remain trainable, and the
    names in `state_dict()` do not change. For published weights and small batches; a net with random weights would
    have no normalisation.

    >>> freeze_batchnorm(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
    1
    """
    count = 0
    for layer in module.modules():
        # Changing the class keeps every reference to the layer and to its parameters (optimisers,
        # wrappers of distributed training) valid, which replacing the layer would not.
        if type(layer) is nn.BatchNorm1d:
            layer.__class__ = FrozenBatchNorm1d
        elif type(layer) is nn.BatchNorm2d:
            layer.__class__ = FrozenBatchNorm2d
        if isinstance(layer, FrozenBatchNorm1d | FrozenBatchNorm2d):
            layer.eval()
            count += 1
    return count


@torch.no_grad()
def measure_statistics(module: nn.Module, batches: Iterable[Tensor]) -> int:
    """Measure the running statistics of every BatchNorm in `module` on these batches; return their number.

    Running statistics of training belong to augmented views and older weights. Every batch has the same weight. Frozen
    layers and the mode of `module` do not change.

    >>> layer = nn.BatchNorm1d(1)
    >>> measure_statistics(layer, [torch.tensor([[1.0], [3.0]]), torch.tensor([[5.0], [7.0]])])
    1
    >>> layer.running_mean, layer.running_var
    (tensor([4.]), tensor([2.]))
    """
    layers = [
        layer
        for layer in module.modules()
        if isinstance(layer, nn.modules.batchnorm._BatchNorm)
        and layer.track_running_stats
        and not isinstance(layer, FrozenBatchNorm1d | FrozenBatchNorm2d)
    ]
    if not layers:
        return 0
    momenta, training = [layer.momentum for layer in layers], module.training
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None  # a plain mean over batches
    module.train()
    try:
        for batch in batches:
            module(batch)
    finally:
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum
        module.train(training)
    return len(layers)


def synchronize_batchnorm(module: nn.Module) -> nn.Module:
    """Return `module` with BatchNorm statistics over all processes (CUDA only).

    Layers are replaced in place where `module` contains them; use the returned module.
    """
    if not torch.cuda.is_available():
        raise UsageError(
            "batchnorm=sync needs CUDA, and none is available; "
            "use batchnorm=local (statistics of each process) or batchnorm=frozen, or norm=group"
        )
    converted: nn.Module = nn.SyncBatchNorm.convert_sync_batchnorm(module)  # type: ignore[no-untyped-call]
    return converted
