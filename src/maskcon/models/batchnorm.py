"""BatchNorm with frozen statistics, or with statistics shared by all processes."""

from __future__ import annotations

from typing import Self

import torch
from torch import nn

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


def synchronize_batchnorm(module: nn.Module) -> nn.Module:
    """Return `module` with BatchNorm statistics over all processes (CUDA only).

    Layers are replaced in place where `module` contains them; use the returned module.
    """
    if not torch.cuda.is_available():
        raise UsageError(
            "batchnorm=sync needs CUDA, and none is available; "
            "use batchnorm=local (statistics of each process) or batchnorm=frozen"
        )
    converted: nn.Module = nn.SyncBatchNorm.convert_sync_batchnorm(module)  # type: ignore[no-untyped-call]
    return converted
