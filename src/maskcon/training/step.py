"""One training step, to be read beside section 3 of the paper.

Letters in shapes: G rows of the global batch, B rows of this process's share of it, K bank, D projection.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from maskcon._utils.errors import TrainingError
from maskcon.config.settings import RunConfig
from maskcon.data.known_names import JUNK
from maskcon.methods.losses import finest_cross_entropy, relation_loss
from maskcon.methods.neighbour_lists import Neighbourhood
from maskcon.methods.registry import RelationInputs
from maskcon.models.hog import HogNeighbours
from maskcon.retrieval.encode import Feed
from maskcon.training.checkpoint import AFTER_NAN
from maskcon.training.distributed import Processes
from maskcon.training.schedule import epoch_batches, generator, uniforms
from maskcon.training.state import Learner
from maskcon.transforms import Policy

# Devices whose results can be read without waiting. On others a NaN is noticed some steps later (`loop.FiniteWatch`),
# but before anything is saved.
READ_AT_ONCE = ("cpu",)

# Runs with thawed stages clip longer gradients: at the learning rates of a head alone they would diverge.
LONGEST_GRADIENT = 5.0
WEAK_QUERY = "weak query"  # purpose of a weak query's random numbers, which must differ from its key's


@dataclass(frozen=True)
class TrainingData:
    """Training images and labels, on the device except for large sets in `feed`."""

    feed: Feed
    labels: Tensor  # [N] coarse labels; the fine ones for a method that sees those
    index: Tensor  # [N] sample numbers
    query_view: Policy
    key_view: Policy
    normalise: Callable[[Tensor], Tensor]
    image_size: int
    hog: HogNeighbours | None = None  # where relations compare HOG features
    names: Tensor | None = None  # [N] known kinds, see `maskcon.data.known_names`
    coarse_of: Tensor | None = None  # [C] classes of the outputs, where names are classified

    def __len__(self) -> int:
        """Return the number of images to train on, without junk."""
        return len(self._rows)

    @cached_property
    def _rows(self) -> Tensor:
        if self.names is None:
            return torch.arange(len(self.labels))
        return (self.names != JUNK).nonzero().squeeze(1).cpu()

    def batches(self, config: RunConfig, epoch: int, processes: int = 1) -> list[Tensor]:
        """Return the row numbers of the global batches of an epoch."""
        places = epoch_batches(
            len(self),
            config.batch_size,
            seed=config.seed,
            epoch=epoch,
            drop_last=config.drop_last,
            processes=processes,
        )
        return [self._rows[batch] for batch in places]

    def names_of(self, rows: Tensor) -> Tensor | None:
        """Return the known kinds of rows ``[B]``; None if there are none."""
        return None if self.names is None else self.names[rows]

    def rows_of(self, index: Tensor) -> Tensor:
        """Return the rows of samples ``[K]`` by their sample numbers."""
        return self._by_number[1][torch.searchsorted(self._by_number[0], index)]

    @cached_property
    def _by_number(self) -> tuple[Tensor, Tensor]:
        numbers, rows = self.index.sort()
        return numbers, rows


class Keys(NamedTuple):
    """Keys of a global batch, and vectors that relations compare instead."""

    projection: Tensor  # [G, D], unit rows
    compared: Tensor | None  # [G, F], unit rows; None: relations compare the keys


@dataclass(frozen=True)
class Place:
    """Where in the run a step is; with the seed it decides every random draw."""

    epoch: int
    step: int  # global, from 0
    w: float
    learning_rate: float


@dataclass(frozen=True)
class StepReport:
    """Numbers of a step, on the device until they are read."""

    loss: Tensor
    contrast: Tensor | None  # mean contrastive loss; about log(1+K) while nothing is learnt
    cross_entropy: Tensor | None
    gradient_norm: Tensor
    finite: Tensor  # whether loss and gradient are finite; if not, the step raises on a CPU


def train_step(
    learner: Learner, data: TrainingData, config: RunConfig, place: Place, rows: Tensor
) -> StepReport:
    """Learn from one global batch, given by its row numbers ``[G]``."""
    method, bank, means = learner.method, learner.bank, learner.means
    share = learner.processes.share(len(rows))
    device = learner.processes.device
    on_device = rows.to(device)  # [G]
    labels = data.labels[on_device]  # [G]
    index = data.index[on_device]  # [G]
    for group in learner.optimizer.param_groups:
        group["lr"] = place.learning_rate * group.get("share", 1.0)

    encodes_keys = learner.encodes_keys(place.epoch)
    if encodes_keys:
        learner.update_keys(config.key_momentum)
    output = learner.query(make_views(data, config, place, rows, "query", share))
    losses = torch.zeros(len(output.features), device=device)  # [B]
    contrast = cross_entropy = None

    if bank is not None:
        # Keys are of G rows, the same on every process.
        if means is None or encodes_keys:
            keys = encode_keys(learner, data, config, place, rows)
            fresh = keys.projection
        else:
            fresh = learner.processes.gather(output.projection.detach(), len(rows))  # [G, D]
            keys = Keys(means.of(on_device, fresh), hog_vectors_of(data, rows))
        own = keys.projection[share]  # [B, D]
        clusters = None
        if learner.clusters is not None:
            table = uniforms(len(rows), 2 * len(bank), config.seed, "clusters", place.epoch, place.step)
            clusters = learner.clusters.draws(on_device[share], bank.keys, table[share])
        inputs = RelationInputs(
            keys=own if keys.compared is None else keys.compared[share],
            coarse=labels[share],
            index=index[share] if config.exclude_own_keys else None,
            bank_keys=bank.compared,
            bank_coarse=bank.coarse,
            bank_index=bank.index if config.exclude_own_keys else None,
            w=place.w,
            tau=config.tau,
            neighbours=neighbours_of(data, on_device[share], bank.index),
            names=data.names_of(on_device[share]),
            # looked up by sample number: names do not change during a run
            bank_names=data.names_of(data.rows_of(bank.index)) if data.names is not None else None,
            clusters=clusters,
        )
        contrast = relation_loss(
            output.projection,
            own,
            bank.keys,
            method.relation_of(inputs),
            config.contrast_temperature,
            method.left_out_of(inputs),
        )
        losses = losses + method.contrast_weight(place.w) * contrast
    if output.logits is not None:
        names = data.names_of(on_device[share])
        if data.coarse_of is None or names is None:
            added_weight = config.coarse_weight
            cross_entropy = torch.nn.functional.cross_entropy(
                output.logits.float(), labels[share], reduction="none"
            )
        else:
            added_weight = config.fine_weight
            cross_entropy = finest_cross_entropy(output.logits, labels[share], names, data.coarse_of)
        losses = losses + (method.cross_entropy_weight(place.w) + added_weight) * cross_entropy

    # Gradients are averaged over processes, whose shares may differ by a row: scaled so, all rows weigh the same.
    scale = learner.processes.count / len(rows)
    loss = losses.sum() * scale
    learner.forget_gradients()
    learner.processes.fabric.backward(loss)
    gradient_norm, finite = _gradient_norm(learner, config, loss)
    if device.type in READ_AT_ONCE and not bool(finite):
        raise not_finite(config, place, loss.item())
    if config.thaw > 0:
        torch.nn.utils.clip_grads_with_norm_(learner.parameters, LONGEST_GRADIENT, gradient_norm)
    learner.optimizer.step()

    if bank is not None:
        entering = keys.projection
        if means is not None:
            means.take_in(on_device, fresh)
            entering = means.of(on_device, fresh)
        bank.enqueue(entering, labels, index, keys.compared)
        if learner.clusters is not None:
            learner.clusters.take_in(on_device, entering)

    def mean(share_of_rows: Tensor | None) -> Tensor | None:
        return None if share_of_rows is None else learner.processes.mean(share_of_rows.detach().sum() * scale)

    return StepReport(
        learner.processes.mean(loss.detach()), mean(contrast), mean(cross_entropy), gradient_norm, finite
    )


def make_views(
    data: TrainingData, config: RunConfig, place: Place, rows: Tensor, side: str, part: slice | Tensor
) -> Tensor:
    """Make normalised views of `rows[part]`, drawn as for the whole global batch.

    side: "query" or "key".
    """
    images, sizes = data.feed.take(rows[part])  # [b, ...], read once, also for queries of both kinds

    def views_by(policy: Policy, purpose: str, subset: Tensor | None = None) -> Tensor:
        """Make views of the part, or of a subset ``[n]`` of it."""
        table = uniforms(len(rows), policy.draws, config.seed, purpose, place.epoch, place.step)[part]
        chosen, chosen_sizes = images, sizes
        if subset is not None:
            table, chosen = table[subset], images[subset.to(images.device)]
            chosen_sizes = None if sizes is None else sizes[subset]
        return data.normalise(policy(chosen, table, size=data.image_size, sizes=chosen_sizes))

    if side == "key":
        views = views_by(data.key_view, side)
    elif not config.uses_hog:
        views = views_by(data.query_view, side)
    else:
        is_weak = torch.arange(len(rows))[part] % 2 == 1  # every second row: as many in every process
        weak, strong = is_weak.nonzero().squeeze(1), (~is_weak).nonzero().squeeze(1)
        both = torch.cat([views_by(data.key_view, WEAK_QUERY, weak), views_by(data.query_view, side, strong)])
        views = both[torch.cat([weak, strong]).argsort().to(both.device)]
    return views.contiguous(memory_format=torch.channels_last)


def key_order(processes: Processes, config: RunConfig, epoch: int, step: int, count: int) -> Tensor:
    """Return the order ``[G]`` in which the rows are divided to be encoded as keys."""
    if processes.count > 1 and config.batchnorm == "local":
        return torch.randperm(count, generator=generator(config.seed, "shuffle", epoch, step))
    return torch.arange(count)


@torch.no_grad()
def encode_keys(learner: Learner, data: TrainingData, config: RunConfig, place: Place, rows: Tensor) -> Keys:
    """Encode the keys of the whole global batch, in its order.

    With several processes and local BatchNorm, a process encodes the keys of a shuffled part, as MoCo does:
    a query and its key must not share batch statistics that give the match away. Since views follow from
    the seed alone, each process makes the views of its part itself and no image travels.
    """
    processes = learner.processes
    order = key_order(processes, config, place.epoch, place.step, len(rows))
    views = make_views(data, config, place, rows, "key", order[processes.share(len(rows))])
    assert learner.pair is not None  # only contrastive methods get here

    def in_order(part: Tensor) -> Tensor:
        gathered = processes.gather(part, len(rows))
        restored = torch.empty_like(gathered)
        restored[order.to(gathered.device)] = gathered
        return restored

    with processes.fabric.autocast():
        if config.relation_space != "features":
            return Keys(in_order(learner.pair.encode_keys(views)), hog_vectors_of(data, rows))
        keys, features = learner.pair.encode_keys_and_features(views)
        return Keys(in_order(keys), in_order(torch.nn.functional.normalize(features.float(), dim=1)))


def hog_vectors_of(data: TrainingData, rows: Tensor) -> Tensor | None:
    """Return the HOG features ``[G, A]`` of images; None if relations do not use any."""
    if data.hog is None:
        return None
    vectors = data.hog.vectors
    return vectors[rows.to(vectors.device)].float()


def neighbours_of(data: TrainingData, rows: Tensor, bank_index: Tensor) -> Neighbourhood | None:
    """Return the HOG neighbours of images ``[B]`` among the bank's samples ``[K]``.

    None if relations do not use HOG features.
    """
    if data.hog is None:
        return None
    return data.hog.neighbours.among(rows, data.rows_of(bank_index))


def _gradient_norm(learner: Learner, config: RunConfig, loss: Tensor) -> tuple[Tensor, Tensor]:
    """Return the norm of the gradient, and whether it is finite.

    The gradients are the same on every process, so all of them stop together. Under float16 the loss scaler
    expects an overflow now and then and skips that update itself; there only the loss is checked.
    """
    learner.processes.fabric.strategy.precision.unscale_gradients(learner.optimizer.optimizer)
    gradients = [p.grad for p in learner.parameters if p.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients, foreach=True)
    watched = learner.processes.mean(loss.detach()) if config.precision == "16-mixed" else norm
    return norm.detach(), torch.isfinite(watched)


def not_finite(config: RunConfig, place: Place, loss: float) -> TrainingError:
    """Return the error of a step whose loss or gradient was NaN or Inf."""
    return TrainingError(
        f"the loss or its gradient became NaN or Inf at step {place.step + 1}, in epoch {place.epoch + 1} "
        f"(loss {loss:.4g}, learning rate {place.learning_rate:.4g}); this step was not saved. {remedy(config)}"
    )


def remedy(config: RunConfig) -> str:
    """Return what to do about NaN or Inf."""
    precision = "" if config.precision == "32-true" else ", or --set precision=32-true"
    return (
        f"Rerun the same command with a lower --set learning_rate (now {config.learning_rate:g}){precision}: "
        f"{AFTER_NAN}"
    )
