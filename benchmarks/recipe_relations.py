"""Parts for `recipe_trials.py` that change what is contrasted with what, or add a term to the loss.

See `recipe_parts.py` for what a part is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize, one_hot

from maskcon.methods import neighbour_lists
from maskcon.methods.losses import relation_loss
from maskcon.methods.neighbour_lists import NeighbourLists
from maskcon.methods.registry import RelationInputs
from maskcon.methods.relations import masked_relation
from maskcon.models import hog
from maskcon.models.hog import Axes, mirrored, oriented_gradients
from maskcon.training import step
from maskcon.training.randomness import generator
from recipe_parts import ASSEMBLY, LOOP, Step, learn


@dataclass(frozen=True)
class Batch:
    """A batch whose queries and keys are there."""

    learner: Any
    data: Any
    config: Any
    place: Any
    rows: Tensor  # [B] in the training set
    output: Any  # of the query net
    keys: step.Keys

    @property
    def labels(self) -> Tensor:
        known: Tensor = self.data.labels[self.rows]
        return known

    @property
    def share(self) -> float:
        """How much of the run is done."""
        return float(self.place.epoch / self.config.epochs)

    def relation(self) -> Tensor:
        """The method's own, ``[B, 1+K]``."""
        bank = self.learner.bank
        inputs = RelationInputs(
            keys=self.keys.projection if self.keys.compared is None else self.keys.compared,
            coarse=self.labels,
            index=self.data.index[self.rows],
            bank_keys=bank.compared,
            bank_coarse=bank.coarse,
            bank_index=bank.index,
            w=self.place.w,
            tau=self.config.tau,
            neighbours=step.neighbours_of(self.data, self.rows, bank.index),
        )
        found: Tensor = self.learner.method.relation_of(inputs)(slice(None))
        return found

    def contrast(self, relation: Tensor) -> Tensor:
        return relation_loss(
            self.output.projection,
            self.keys.projection,
            self.learner.bank.keys,
            relation.__getitem__,
            self.config.contrast_temperature,
        ).mean()


def step_with(loss: Callable[[Batch], Tensor]) -> Step:
    """A step as it is, but for its contrast, which is `loss`; cross-entropy on the coarse labels stays beside it."""

    def train_step(learner: Any, data: Any, config: Any, place: Any, rows: Tensor) -> step.StepReport:
        learner.update_keys(config.key_momentum)
        output = learner.query(step.make_views(data, config, place, rows, "query", slice(None)))
        batch = Batch(
            learner,
            data,
            config,
            place,
            rows,
            output,
            step.encode_keys(learner, data, config, place, rows),
        )
        contrast = loss(batch)
        total = contrast + config.coarse_weight * cross_entropy(output.logits, batch.labels)
        norm, finite = learn(learner, config, place, total)
        learner.bank.enqueue(batch.keys.projection, batch.labels, data.index[rows], batch.keys.compared)
        return step.StepReport(total.detach(), contrast.detach(), None, norm, finite)

    return train_step


def written_out(queries: Tensor, keys: Tensor, entries: Tensor, temperature: float) -> Tensor:
    """Logits ``[B, 1+K]``: of the own key, then of the entries."""
    own = (queries * keys).sum(1, keepdim=True)
    return torch.cat([own, queries @ entries.T], dim=1) / temperature


def own_class(_: str) -> None:
    """Negatives of the own coarse class alone: the cross-entropy keeps the classes apart already."""

    def loss(batch: Batch) -> Tensor:
        bank = batch.learner.bank
        logits = written_out(
            batch.output.projection,
            batch.keys.projection,
            bank.keys.clone(),
            batch.config.contrast_temperature,
        )
        others = batch.labels.unsqueeze(1) != bank.coarse.unsqueeze(0)  # [B, K]
        logits = torch.cat([logits[:, :1], logits[:, 1:].masked_fill(others, -1e4)], dim=1)
        return -(batch.relation() * logits.log_softmax(1)).sum(1).mean()

    LOOP.train_step = step_with(loss)


def clusters(counts: str) -> None:
    """`10/20`: from a fifth of the run on, the keys of each class are clustered every epoch into 10 and into 20, and
    queries learn to find the middle of their own cluster among all, beside the contrast."""
    sizes = [int(count) for count in counts.split("/")]
    keys: dict[str, Tensor] = {}
    found: list[tuple[Tensor, Tensor]] = []  # the cluster of each image [N], their middles [k, D]
    of_epoch = -1

    def loss(batch: Batch) -> Tensor:
        nonlocal of_epoch
        total = batch.contrast(batch.relation())
        known = keys.setdefault("all", torch.zeros(len(batch.data), batch.config.projection_dim))
        if batch.place.epoch != of_epoch and batch.share >= 0.2:
            of_epoch = batch.place.epoch
            draws = generator(batch.config.seed, "clusters", of_epoch, 0)
            found[:] = [clustered(known, batch.data.labels, size, draws) for size in sizes]
        for cluster, middles in found:
            logits = batch.output.projection @ middles.T / 0.2
            total = total + cross_entropy(logits, cluster[batch.rows]) / len(found)
        known[batch.rows] = batch.keys.projection
        return total

    LOOP.train_step = step_with(loss)


def clustered(keys: Tensor, labels: Tensor, size: int, draws: torch.Generator) -> tuple[Tensor, Tensor]:
    """Each class's unit keys [N, D] into `size` clusters: the number of each image's, and all middles."""
    numbers = torch.zeros(len(keys), dtype=torch.long)
    middles: list[Tensor] = []
    for label in sorted(set(labels.tolist())):
        members = (labels == label).nonzero().squeeze(1)
        of_class = keys[members]
        centres = of_class[torch.randperm(len(of_class), generator=draws)[:size]]
        for _ in range(10):
            nearest = (of_class @ centres.T).argmax(1)
            sums = torch.zeros_like(centres).index_add_(0, nearest, of_class)
            empty = torch.bincount(nearest, minlength=len(centres)) == 0
            centres = torch.where(empty.unsqueeze(1), centres, normalize(sums, dim=1))
        numbers[members] = (of_class @ centres.T).argmax(1) + sum(map(len, middles))
        middles.append(centres)
    return numbers, torch.cat(middles)


def guided(first_last: str) -> None:
    """`10:0`: a linear layer tells an image's outlines from the features of its query, as a third term of the loss,
    whose weight goes from the first number to the last in the course of the run."""
    first, last = (float(value) for value in first_last.split(":"))
    parts: dict[str, Any] = {}

    def loss(batch: Batch) -> Tensor:
        if not parts:
            parts["outlines"] = both_sides(batch.data)
            torch.manual_seed(batch.config.seed)
            parts["layer"] = torch.nn.Linear(batch.output.features.shape[1], parts["outlines"].shape[1])
            parts["optimizer"] = torch.optim.AdamW(parts["layer"].parameters(), lr=0.0, weight_decay=1e-4)
        parts["optimizer"].zero_grad()
        for group in parts["optimizer"].param_groups:
            group["lr"] = 3e-3 * batch.place.learning_rate / batch.config.learning_rate
        told = normalize(parts["layer"](batch.output.features), dim=1)
        missed = 1 - (told * parts["outlines"][batch.rows]).sum(1).mean()
        weight = first + (last - first) * batch.share
        total: Tensor = batch.contrast(batch.relation()) + weight * missed
        return total

    plain = step_with(loss)

    def train_step(*given: Any) -> step.StepReport:
        report = plain(*given)
        parts["optimizer"].step()
        return report

    LOOP.train_step = train_step


def both_sides(data: Any) -> Tensor:
    """Outlines of every image that are the same in a mirror: unit vectors ``[N, A]``."""
    images, _ = data.feed.take(torch.arange(len(data)))
    histograms = oriented_gradients(images.float() / 255)[:, 0]
    either = (histograms + mirrored(histograms)).flatten(1)
    return Axes.of(either)(either)


def by_fine_labels(weight: str) -> None:
    """What the best relation could bring: entries of the same FINE label share `weight` times the own key's."""
    fine: dict[str, Tensor] = {}
    plain = ASSEMBLY.training_data

    def training_data(self: Any, *given: Any) -> Any:
        data = plain(self, *given)
        numbers, rows = data.index.sort()
        fine["numbers"], fine["sorted"] = numbers, torch.as_tensor(self.data.train.fine)[rows]
        return data

    def labels_of(index: Tensor) -> Tensor:
        return fine["sorted"][torch.searchsorted(fine["numbers"], index)]

    def loss(batch: Batch) -> Tensor:
        bank, index = batch.learner.bank, batch.data.index[batch.rows]
        alike = labels_of(index).unsqueeze(1) == labels_of(bank.index).unsqueeze(0)
        alike &= index.unsqueeze(1) != bank.index.unsqueeze(0)
        weights = float(weight) * alike / alike.sum(1, keepdim=True).clamp_min(1)
        relation = torch.cat([torch.ones(len(index), 1), weights], dim=1)
        return batch.contrast(relation / relation.sum(1, keepdim=True))

    ASSEMBLY.training_data = training_data
    LOOP.train_step = step_with(loss)


def stored(kept: str) -> None:
    """No key net after the first epoch: an image's key is the running mean of its own earlier queries, of which it
    keeps this share; as many others as the bank is large are drawn for every step."""
    means: dict[str, Tensor] = {}

    def first_epoch(batch: Batch) -> Tensor:
        known = means.setdefault("all", torch.zeros(len(batch.data), batch.config.projection_dim))
        known[batch.rows] = batch.keys.projection
        return batch.contrast(batch.relation())

    with_keys = step_with(first_epoch)

    def train_step(learner: Any, data: Any, config: Any, place: Any, rows: Tensor) -> step.StepReport:
        if place.epoch == 0:
            return with_keys(learner, data, config, place, rows)
        output = learner.query(step.make_views(data, config, place, rows, "query", slice(None)))
        draws = generator(config.seed, "stored", place.epoch, place.step)
        drawn = torch.randperm(len(data), generator=draws)[: config.bank_size]
        keys, entries = means["all"][rows], means["all"][drawn]
        labels, index = data.labels[rows], data.index[rows]
        relation = masked_relation(
            keys,
            entries,
            labels,
            data.labels[drawn],
            config.tau,
            index=index,
            bank_index=data.index[drawn],
        )
        relation = place.w * relation
        relation[:, 0] += 1 - place.w
        logits = written_out(output.projection, keys, entries, config.contrast_temperature)
        own = index.unsqueeze(1) == data.index[drawn].unsqueeze(0)
        logits = torch.cat([logits[:, :1], logits[:, 1:].masked_fill(own, -1e4)], dim=1)
        contrast = -(relation * logits.log_softmax(1)).sum(1).mean()
        total = contrast + config.coarse_weight * cross_entropy(output.logits, labels)
        norm, finite = learn(learner, config, place, total)
        newer = float(kept) * keys + (1 - float(kept)) * output.projection.detach()
        means["all"][rows] = normalize(newer, dim=1)
        return step.StepReport(total.detach(), contrast.detach(), None, norm, finite)

    LOOP.train_step = train_step


OUTLINES: Any = hog


def still(_: str) -> None:
    """Outlines of images in their place, in a mirror and turned, but not moved."""
    OUTLINES.SHIFTS = OUTLINES.SHIFTS[:1]


def upright(_: str) -> None:
    """Outlines of images that are not turned, whatever views do."""
    plain = ASSEMBLY._looks
    ASSEMBLY._looks = lambda self: replace(plain(self), turn=0.0)


def coarser(_: str) -> None:
    """Histograms of cells of 4 px, in 8 directions."""
    OUTLINES.CELL, OUTLINES.BINS = 4, 8


def one_sided(_: str) -> None:
    """Another image is as similar as the own image, the way that suits best, is to it: not the mean of both."""

    def nearest_in(looks: Tensor, listed: int, progress: Callable[[float], None]) -> tuple[Tensor, Tensor]:
        each = looks.float()
        similarity, places = neighbour_lists._seems(each, each).topk(min(listed, len(each)), dim=1)
        progress(1.0)
        return places, similarity

    OUTLINES.nearest_in = nearest_in


def fine_neighbours(_: str) -> None:
    """What the best neighbours could bring where outlines find them: all of the same FINE label, and no other."""
    plain = ASSEMBLY.training_data

    def training_data(self: Any, *given: Any) -> Any:
        fine = torch.as_tensor(self.data.train.fine).long()
        lists = NeighbourLists.empty(len(fine), int(fine.bincount().max()))
        for label in torch.unique(fine):
            members = (fine == label).nonzero().squeeze(1)
            alike = torch.arange(len(members)).expand(len(members), -1)
            lists.put(members, alike, torch.ones(alike.shape))
        vectors = one_hot(fine, hog.AXES).half()
        return replace(plain(self, *given), outlines=hog.Outlines(vectors, lists))

    ASSEMBLY.training_data = training_data


PARTS: Mapping[str, Callable[[str], None]] = {
    "still": still,
    "upright": upright,
    "coarser": coarser,
    "one_sided": one_sided,
    "fine_neighbours": fine_neighbours,
    "own_class": own_class,
    "clusters": clusters,
    "guided": guided,
    "by_fine_labels": by_fine_labels,
    "stored": stored,
}
