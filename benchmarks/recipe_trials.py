"""How `fast` was found: changes of a first recipe, some of them parts that the package lacks, put in from outside.

    python benchmarks/recipe_trials.py embedded                     # every trial of TRIALS, one seed
    python benchmarks/recipe_trials.py cifartoy-good --images PATH  # PATH/{train,test}/<class>/*.jpg: CIFAR-10
    python benchmarks/recipe_trials.py embedded --trials "as it is;rate 0.2" --seeds 3

The first recipe (`FIRST`) is MaskCon with cross-entropy, Muon and a rate that falls from the second epoch on. Each
trial is that with a change of settings or with a part of `PARTS`, scored by recall@1 on validation images (a fifth of
the training ones). All have the same CPU time as far as whole epochs allow: what makes an epoch cheaper or
dearer by a factor (`cost`, as measured) gets as many more or fewer of them. Goes on where it was stopped; a folder a
run and `trials.json` under --out.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from maskcon import assembly
from maskcon.comparison import Job, run_jobs
from maskcon.engine import learner as learners
from maskcon.engine import loop, step
from maskcon.engine.randomness import uniforms
from maskcon.errors import UsageError, unknown
from maskcon.losses import relation_loss_by_rows
from maskcon.methods import RelationInputs
from maskcon.run_folder import make_writable
from method_table import answer, lay_out, show, write_json
from time_to_recall import FAST_EPOCHS, STUDIES, spread, summary

Step = Callable[..., step.StepReport]
# Where parts are put in: names of the package that its own modules look up when they run.
LOOP: Any = loop
STEP: Any = step
LEARNER: Any = learners
ASSEMBLY: Any = assembly.Assembly


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
            contrast = relation_loss_by_rows(
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
        contrast = relation_loss_by_rows(
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
    "crops": crops,
    "twins": twins,
    "averaged": averaged,
    "floor": floor,
    "whitened": whitened,
    "adamw": adamw,
    "early_labels": early_labels,
}


# The preset `fast`, as it is now, but for these.
FIRST = {
    "learning_rate": 0.1,
    "warmup_epochs": 1.0,
    "relation_space": "projection",
    "tau": 0.05,
    "relation_warmup_epochs": 4.0,
}


@dataclass(frozen=True)
class Trial:
    """A change of the first recipe; cost: CPU seconds of an epoch over those of the recipe."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    parts: Mapping[str, str] = field(default_factory=dict)
    cost: float = 1.0
    method: str = "maskcon"
    warmup_share: float | None = None
    relation_share: float | None = None  # in which w rises

    def job(self, label: str, folder: Path, source: str, seed: int, epochs: int) -> Job:
        count = max(1, round(epochs / self.cost))
        values = {
            "epochs": count,
            "eval_every_epochs": 0,
            "evaluate_on": "validation",
            **FIRST,
            **self.settings,
        }
        if self.warmup_share is not None:
            values["warmup_share"] = self.warmup_share
        if self.relation_share is not None:
            values["relation_warmup_share"] = self.relation_share
        pairs = [argument for key, value in values.items() for argument in ("--set", f"{key}={value}")]
        given = [f"{name}={value}" for name, value in self.parts.items()]
        fixed = ["--method", self.method, "--preset", "fast", "--seed", str(seed)]
        return Job(label, folder, [source, *fixed, *pairs], program=(__file__, "run", *given, "--"))


TRIALS: Mapping[str, Trial] = {
    "as it is": Trial(),
    "rate 0.2": Trial({"learning_rate": 0.2}),
    "weight decay 0.05": Trial({"weight_decay": 0.05}),
    "batches of 64, rate 0.07": Trial({"batch_size": 64, "learning_rate": 0.07}),
    "BatchNorm in the projector": Trial({"projector_norm": "batch"}),
    "contrast temperature 0.07": Trial({"contrast_temperature": 0.07}),
    "cross-entropy twice as much": Trial({"coarse_weight": 2.0}),
    "no relation (w 0): instances and cross-entropy": Trial({"w": 0.0}),
    "tau 0.02, w rising to the end": Trial({"tau": 0.02}, relation_share=1.0),
    "views grow, 16 px up to 0.4, 24 up to 0.7": Trial(parts={"growing": "16@0.4,24@0.7"}, cost=0.6),
    "views grow, 24 px up to 0.6": Trial(parts={"growing": "24@0.6"}, cost=0.85),
    "keys of 24 px": Trial(parts={"key_size": "24"}, cost=0.92),
    "two queries of 24 px a key": Trial(parts={"crops": "2x24"}, cost=1.2),
    "four queries of 16 px a key": Trial(parts={"crops": "4x16"}, cost=1.2),
    "one whole query and two of 16 px a key": Trial(parts={"crops": "2x16+1"}, cost=1.5),
    "weights averaged over the last third": Trial(parts={"averaged": "0.67"}),
    "averaged over the last half, rate to a fifth": Trial(parts={"averaged": "0.5", "floor": "0.2"}),
    "whitened first layer": Trial(parts={"whitened": "all"}),
    "AdamW, rate 0.003": Trial({"learning_rate": 0.003}, {"adamw": "0.05"}),
    "AdamW, rate 0.01": Trial({"learning_rate": 0.01}, {"adamw": "0.05"}),
    "SGD with Nesterov, rate 0.2": Trial({"optimizer": "sgd", "learning_rate": 0.2, "nesterov": True}),
    "one cycle, rate 0.2": Trial({"learning_rate": 0.2}, warmup_share=0.3),
    "batches of 256, rate 0.14": Trial({"batch_size": 256, "learning_rate": 0.14}),
    "cross-entropy from 2 down to 0": Trial(parts={"early_labels": "2:0"}),
    "cross-entropy from 0 up to 2": Trial(parts={"early_labels": "0:2"}),
    "key momentum 0.95": Trial({"key_momentum": 0.95}),
    "neighbours by features": Trial({"relation_space": "features"}),
    "w 0.5": Trial({"w": 0.5}),
    "contrast temperature 0.2": Trial({"contrast_temperature": 0.2}),
    "bank of 512": Trial({"bank_size": 512}),
    "bank of 4096": Trial({"bank_size": 4096}),
    "bank of 4096, tau 0.02": Trial({"bank_size": 4096, "tau": 0.02}),
    "no key net: each view is the other's key": Trial(parts={"twins": "weak"}, cost=1.5),
    "no key net, batches of 64": Trial({"batch_size": 64}, {"twins": "weak"}, cost=1.5),
    "w rising up to half": Trial(relation_share=0.5),
    "one cycle, rate 0.15": Trial({"learning_rate": 0.15}, warmup_share=0.3),
    "one cycle, rate 0.3": Trial({"learning_rate": 0.3}, warmup_share=0.3),
    "one cycle, rate 0.1": Trial(warmup_share=0.3),
    "one cycle, rate 0.2, whitened": Trial({"learning_rate": 0.2}, {"whitened": "all"}, warmup_share=0.3),
    "one cycle, rate 0.2, BatchNorm in the projector": Trial(
        {"learning_rate": 0.2, "projector_norm": "batch"}, warmup_share=0.3
    ),
    "one cycle, rate 0.15, w rising up to half": Trial(
        {"learning_rate": 0.15}, warmup_share=0.3, relation_share=0.5
    ),
    "one cycle, rate 0.2, w rising up to half": Trial(
        {"learning_rate": 0.2}, warmup_share=0.3, relation_share=0.5
    ),
}


def main() -> None:
    if sys.argv[1:2] == ["run"]:
        run_one(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--images", type=Path, help="CIFAR-10 as a folder a class, for CIFARtoy")
    parser.add_argument("--out", type=Path, help="by default runs/recipe-trials-STUDY")
    parser.add_argument("--trials", default="all", help="names of TRIALS, separated by semicolons")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    answer(parser, carry_out)


def run_one(arguments: Sequence[str]) -> None:
    """`run PART=VALUE ... -- train ...`: the command line of the package with these parts in it."""
    from maskcon.cli import main as command_line

    end = arguments.index("--")
    for given in arguments[:end]:
        name, _, value = given.partition("=")
        PARTS[name](value)
    sys.argv = ["maskcon", *arguments[end + 1 :]]
    command_line()


def carry_out(options: argparse.Namespace) -> None:
    """Run the trials asked for, and tell what they reach."""
    out: Path = options.out or Path("runs") / f"recipe-trials-{options.study}"
    make_writable(out)
    source = STUDIES[options.study].source
    if source == "good":
        if options.images is None:
            raise UsageError("CIFARtoy needs --images: CIFAR-10 as train/ and test/, a folder a class")
        source = str(lay_out(options.images, source, out / "pictures"))
    names = list(TRIALS) if options.trials == "all" else options.trials.split(";")
    for name in names:
        if name not in TRIALS:
            raise unknown("trial", name, TRIALS)
    jobs = {
        name: [
            TRIALS[name].job(
                f"{name} {seed}", out / f"{name}-seed{seed}", source, seed, FAST_EPOCHS[options.study]
            )
            for seed in range(options.seeds)
        ]
        for name in names
    }
    run_jobs(
        [of_name[seed] for seed in range(options.seeds) for of_name in jobs.values()],
        at_once=options.jobs,
        threads=1,
        watch=show,
    )
    found = {name: summary([job.folder for job in of_name]) for name, of_name in jobs.items()}
    print("| the first recipe, but | epochs | validation R@1 | CPU s |\n|---|---:|---:|---:|")
    for name, row in found.items():
        cost = f"{fmean(row['cpu_seconds']):.0f}"
        print(f"| {name} | {row['epochs']} | {spread(row['recall@1'])} | {cost} |")
    write_json(out / "trials.json", found)


if __name__ == "__main__":
    main()
