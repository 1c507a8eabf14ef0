"""`--compile`: the nets' passes by torch.compile, where somebody asks for it.

Compiling takes up to minutes, at every start of a run, and pays where many steps follow that gain by
it; docs/performance.md tells what was measured. So it is never done unasked, and what it took is told.

Compiled are the passes over whole batches: forward and backward of the query's backbone, forward of the key's. What has
another shape or mode (the last, shorter batch of an epoch, evaluation) stays as it is instead of being compiled again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn

from maskcon._utils.errors import UsageError
from maskcon.config.settings import RunConfig
from maskcon.training.learner import Learner
from maskcon.training.step import Place, TrainingData, make_views

# Draws of the views that it is compiled with: no epoch of training has this number, nor has priming.
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
    """Compile, then train inside; gives the seconds that compiling took. Nothing is learnt by it.

    The nets are compiled in place, so that their parameters keep their names and checkpoints fit either way.
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
    """Each pass of a step once, on a whole batch as steps have it; statistics are put back, no gradient is left."""
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
    """Put the buffers back as they were: a pass in training mode moves BatchNorm's statistics."""
    kept = [buffer.clone() for buffer in module.buffers()]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, before in zip(module.buffers(), kept, strict=True):
                buffer.copy_(before)
