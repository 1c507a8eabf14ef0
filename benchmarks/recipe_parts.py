"""Parts of a recipe that the package lacks, put in from outside for `recipe_trials.py`: views, steps, optimisers.

A part is a function that is given a text and puts something in place of names that the package's own modules look up
when they run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from maskcon.methods.losses import relation_loss
from maskcon.methods.registry import RelationInputs
from maskcon.training import learner as learners
from maskcon.training import loop, setup, step
from maskcon.training.randomness import uniforms

Step = Callable[..., step.StepReport]
# Where parts are put in: names of the package that its own modules look up when they run.
LOOP: Any = loop
STEP: Any = step
LEARNER: Any = learners
ASSEMBLY: Any = setup.Assembly


def learn(learner: Any, config: Any, place: Any, total: Tensor) -> tuple[Tensor, Tensor]:
    """The end of a step: backward, a look for NaN, and the update; the gradient's norm, and that it is finite."""
    for group in learner.optimizer.param_groups:
        group["lr"] = place.learning_rate
    learner.optimizer.zero_grad(set_to_none=True)
    learner.processes.fabric.backward(total)
    norm, finite = step._gradient_norm(learner, config, total)
    if not bool(finite):
        raise step.not_finite(config, place, total.item())
    learner.optimizer.step()
    return norm, finite


def growing(sizes: str) -> None:
    """Views that grow: `16@0.4,24@0.7` are 16 px up to two fifths of the run, 24 up to seven tenths, then whole."""
    stages = [(int(size), float(until)) for size, until in (stage.split("@") for stage in sizes.split(","))]

    def size_at(share: float, whole: int) -> int:
        return next((size for size, until in stages if share < until), whole)

    plain: Step = LOOP.train_step

    def train_step(learner: Any, data: Any, config: Any, place: Any, rows: Tensor) -> step.StepReport:
        share = place.epoch / config.epochs
        sized = replace(data, image_size=min(data.image_size, size_at(share, data.image_size)))
        return plain(learner, sized, config, place, rows)

    LOOP.train_step = train_step


def key_size(size: str) -> None:
    """Cheaper keys: their views have fewer pixels than those of queries."""
    plain = STEP.make_views

    def make_views(data: Any, config: Any, place: Any, rows: Tensor, purpose: str, part: Any) -> Tensor:
        smaller = replace(data, image_size=min(data.image_size, int(size))) if purpose == "key" else data
        made: Tensor = plain(smaller, config, place, rows, purpose, part)
        return made

    STEP.make_views = make_views


def calm_end(begin: str) -> None:
    """The key view for queries too, from this share of the run on."""
    plain: Step = LOOP.train_step

    def train_step(learner: Any, data: Any, config: Any, place: Any, rows: Tensor) -> step.StepReport:
        calm = place.epoch >= float(begin) * config.epochs
        return plain(learner, replace(data, query_view=data.key_view) if calm else data, config, place, rows)

    LOOP.train_step = train_step


def falling_w(begin: str) -> None:
    """The relation's w falls to 0 in a straight line from this share of the run on: instances have the last word."""
    plain: Step = LOOP.train_step

    def train_step(learner: Any, data: Any, config: Any, place: Any, rows: Tensor) -> step.StepReport:
        left = (1 - place.epoch / config.epochs) / (1 - float(begin))
        return plain(learner, data, config, replace(place, w=place.w * min(1.0, left)), rows)

    LOOP.train_step = train_step


def crops(count_and_size: str) -> None:
    """`3x16+1`: three queries of 16 px a key, beside one of the whole size where `+1` stands behind."""
    small, _, whole = count_and_size.partition("+")
    count, size = (int(number) for number in small.split("x"))

    def train_step(learner: Any, data: Any, config: Any, place: Any, rows: Tensor) -> step.StepReport:
        smaller = replace(data, image_size=min(data.image_size, size))
        bank = learner.bank
        labels, index = data.labels[rows], data.index[rows]
        learner.update_keys(config.key_momentum)
        keys = step.encode_keys(learner, data, config, place, rows)

        inputs = RelationInputs(
            keys=keys.projection,
            coarse=labels,
            index=index,
            bank_keys=bank.compared,
            bank_coarse=bank.coarse,
            bank_index=bank.index,
            w=place.w,
            tau=config.tau,
        )
        asked = learner.method.relation_of(inputs)(slice(None))  # one relation for all queries of a key
        total = torch.zeros(())
        groups = [[smaller] * count, [data]] if whole else [[smaller] * count]
        queries = sum(len(group) for group in groups)
        contrasts = []
        for number, group in enumerate(groups):
            views = torch.cat(
                [
                    crop_views(some, config, place, rows, f"crop {number} {nth}")
                    for nth, some in enumerate(group)
                ]
            )
            output = learner.query(views)
            times = len(group)
            contrast = relation_loss(
                output.projection,
                keys.projection.repeat(times, 1),
                bank.keys,
                asked.repeat(times, 1).__getitem__,
                config.contrast_temperature,
            )
            crossed = torch.nn.functional.cross_entropy(output.logits, labels.repeat(times))
            total = total + (contrast.mean() + config.coarse_weight * crossed) * times / queries
            contrasts.append(contrast.detach().mean())
        norm, finite = learn(learner, config, place, total)
        bank.enqueue(keys.projection, labels, index, None)
        return step.StepReport(total.detach(), contrasts[0], None, norm, finite)

    def crop_views(data: Any, config: Any, place: Any, rows: Tensor, purpose: str) -> Tensor:
        table = uniforms(len(rows), data.query_view.draws, config.seed, purpose, place.epoch, place.step)
        images, sizes = data.feed.take(rows)
        made: Tensor = data.query_view(images, table, size=data.image_size, sizes=sizes)
        normal: Tensor = data.normalise(made)
        return normal.clone(memory_format=torch.channels_last)

    LOOP.train_step = train_step


def twins(which: str) -> None:
    """No key net: strong and weak view both learn, and each is the other's key; the bank keeps those of `which`."""

    def train_step(learner: Any, data: Any, config: Any, place: Any, rows: Tensor) -> step.StepReport:
        bank = learner.bank
        labels, index = data.labels[rows], data.index[rows]
        views = [
            step.make_views(data, config, place, rows, purpose, slice(None)).clone(
                memory_format=torch.channels_last
            )
            for purpose in ("query", "key")
        ]
        output = learner.query(torch.cat(views))
        strong, weak = output.projection.detach().chunk(2)
        others = torch.cat([weak, strong])
        asking = torch.cat([weak, weak])  # the weak view asks for neighbours, as in the paper
        inputs = RelationInputs(
            keys=asking,
            coarse=labels.repeat(2),
            index=index.repeat(2),
            bank_keys=bank.compared,
            bank_coarse=bank.coarse,
            bank_index=bank.index,
            w=place.w,
            tau=config.tau,
        )
        contrast = relation_loss(
            output.projection,
            others,
            bank.keys,
            learner.method.relation_of(inputs),
            config.contrast_temperature,
        )
        crossed = torch.nn.functional.cross_entropy(output.logits, labels.repeat(2))
        total = contrast.mean() + config.coarse_weight * crossed
        norm, finite = learn(learner, config, place, total)
        bank.enqueue(weak if which == "weak" else strong, labels, index, None)
        return step.StepReport(total.detach(), contrast.detach().mean(), None, norm, finite)

    LOOP.train_step = train_step


def averaged(start: str) -> None:
    """At the end the weights are the mean of those after each step of the last part of the run, from `start` on."""
    plain: Step = LOOP.train_step
    mean: dict[str, Tensor] = {}
    seen = 0

    def train_step(learner: Any, data: Any, config: Any, place: Any, rows: Tensor) -> step.StepReport:
        nonlocal seen
        report = plain(learner, data, config, place, rows)
        steps = -(-len(data) // config.batch_size) * config.epochs
        if place.step >= float(start) * steps:
            seen += 1
            for name, value in learner.model.state_dict().items():
                if value.is_floating_point():
                    mean.setdefault(name, torch.zeros_like(value)).lerp_(value, 1 / seen)
        if place.step + 1 == steps:
            learner.model.load_state_dict(mean, strict=False)
        return report

    LOOP.train_step = train_step


def floor(share: str) -> None:
    """The rate falls in a straight line to this share of its peak, not to 0."""
    plain = LOOP.learning_rate

    def learning_rate(number: int, **settings: Any) -> float:
        rate, least = plain(number, **settings), float(share) * settings["peak"]
        return float(rate if number < settings["warmup_steps"] else least + (1 - float(share)) * rate)

    LOOP.learning_rate = learning_rate


def whitened(kind: str) -> None:
    """First layer: the patches' own axes, scaled to whiten them, largest first; their negatives if there is room."""
    plain = ASSEMBLY.training_data

    def training_data(self: Any, features: Any, progress: Any) -> Any:
        data = plain(self, features, progress)
        learner, config = self.learner, self.config
        stem = learner.model.backbone.conv1
        rows = torch.randperm(len(data), generator=torch.Generator().manual_seed(0))[:512]
        place = step.Place(epoch=-2, step=0, w=0.0, learning_rate=0.0)
        views = step.make_views(data, config, place, rows, "key", slice(None)).clone()
        patches = torch.nn.functional.unfold(views, stem.kernel_size, padding=stem.padding)
        flat = patches.transpose(1, 2).reshape(-1, patches.shape[1])  # [N, C k k]
        values, axes = torch.linalg.eigh(flat.T @ flat / len(flat))
        values, axes = values.flip(0), axes.flip(1)
        filters = (axes / (values + 1e-2 * values[0]).sqrt()).T  # [C k k, C k k], largest first
        room = len(stem.weight)
        both = torch.cat([filters[: (room + 1) // 2], -filters[: room // 2]])
        chosen = both if kind == "pairs" else torch.cat([filters, -filters])[:room]
        with torch.no_grad():
            for model in (learner.model, learner.pair.key):
                model.backbone.conv1.weight.copy_(chosen.reshape(stem.weight.shape))
        return data

    ASSEMBLY.training_data = training_data


def adamw(decay: str) -> None:
    """AdamW in place of Muon."""

    def build_optimizer(model: Any, config: Any) -> torch.optim.Optimizer:
        return torch.optim.AdamW(
            model.parameters(),
            lr=config.learning_rate,
            betas=(0.9, 0.99),
            weight_decay=float(decay),
            foreach=True,
        )

    LEARNER.build_optimizer = build_optimizer


def early_labels(first_last: str) -> None:
    """Weight of the coarse cross-entropy, in a straight line from the first step to the last: `2:0`."""
    first, last = (float(value) for value in first_last.split(":"))
    plain: Step = LOOP.train_step

    def train_step(learner: Any, data: Any, config: Any, place: Any, rows: Tensor) -> step.StepReport:
        weight = first + (last - first) * place.epoch / max(1, config.epochs - 1)
        return plain(learner, data, config.model_copy(update={"coarse_weight": weight}), place, rows)

    LOOP.train_step = train_step


PARTS: Mapping[str, Callable[[str], None]] = {
    "growing": growing,
    "key_size": key_size,
    "calm_end": calm_end,
    "falling_w": falling_w,
    "crops": crops,
    "twins": twins,
    "averaged": averaged,
    "floor": floor,
    "whitened": whitened,
    "adamw": adamw,
    "early_labels": early_labels,
}
