"""`--compile`: torch.compile for the query and key backbones.

Compiling takes up to minutes at every start of a run and pays off only over many steps (docs/performance.md), so it is
off by default. Batches of another shape or mode (the last batch of an epoch, evaluation) run eagerly instead of
being compiled again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn

from maskcon._utils.errors import UsageError
from maskcon.config.settings import RunConfig
from maskcon.training.state import Learner
from maskcon.training.step import Place, TrainingData, make_views

# Seeds the views used for compiling; no training epoch has this number.
NOWHERE = Place(epoch=-2, step=0, w=0.0, learning_rate=0.0)


@contextmanager
def compiled_passes(
    learner: Learner,
    data: TrainingData,
    config: RunConfig,
    tell: Callable[[str], None],
    *,
    backend: str | Callable[..., object] = "inductor",
) -> Iterator[float]:
    """Compile the backbones for the block; yields the seconds that it took.

    They are compiled in place: parameters keep their names, so checkpoints load with and without --compile.
    """
    tell("compiling the nets (--compile): up to minutes, and again at every start of this run")
    begun = time.perf_counter()
    backbones = [learner.model.backbone]
    if learner.pair is not None:
        backbones.append(learner.pair.key.backbone)
    try:
        for backbone in backbones:
            backbone.compile(dynamic=False, backend=backend)
        try:
            _pass_once(learner, data, config)
        except Exception as error:  # a missing C++ compiler, and whatever else a backend runs into
            said = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
            reason = " ".join(
                said[:2] if said[0].endswith(":") else said[:1]
            )  # "backend=... raised:", then what
            raise UsageError(f"torch.compile failed here: {reason}. Train without --compile") from error
        seconds = time.perf_counter() - begun
        tell(f"compiled in {seconds:.0f} s")
        with torch.compiler.set_stance("eager_on_recompile"):
            yield seconds
    finally:
        for backbone in backbones:
            backbone._compiled_call_impl = None  # as it was before `compile`


def _pass_once(learner: Learner, data: TrainingData, config: RunConfig) -> None:
    """Run each pass once on a full batch; BatchNorm statistics and gradients stay unchanged."""
    processes = learner.processes
    rows = torch.arange(min(config.batch_size, len(data)))
    share = processes.share(len(rows))
    with processes.fabric.autocast():
        with _statistics_kept(learner.model.backbone):
            query = learner.model.backbone(make_views(data, config, NOWHERE, rows, "query", share))
            learns = [p for p in learner.model.backbone.parameters() if p.requires_grad]
            # not `backward`: with several processes that would start to exchange gradients
            torch.autograd.grad(query.float().sum(), learns)
        if learner.pair is not None:
            key = learner.pair.key.backbone
            with _statistics_kept(key), torch.no_grad():
                key(make_views(data, config, NOWHERE, rows, "key", share))


@contextmanager
def _statistics_kept(module: nn.Module) -> Iterator[None]:
    """Restore the buffers afterwards: a pass in training mode moves BatchNorm statistics."""
    kept = [buffer.clone() for buffer in module.buffers()]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, before in zip(module.buffers(), kept, strict=True):
                buffer.copy_(before)
