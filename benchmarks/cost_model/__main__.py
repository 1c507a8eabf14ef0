"""Predicted and measured cost of a training step, and the prediction for GPUs and large indexes.

python -m benchmarks.cost_model [--repeats 3] [--computed-only]

Prints every table of docs/scaling.md. The measured ones come first: the rates of this machine (matrix product, copy),
then the parts of a step with what these rates predict for their counted work. Measurements are CPU seconds on one
thread, the fastest of several calls.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from maskcon import transforms
from maskcon.config.resolution import resolve
from maskcon.methods.losses import relation_loss
from maskcon.methods.registry import method_named
from maskcon.methods.relations import masked_relation
from maskcon.retrieval.encode import Feed
from maskcon.training.distributed import start
from maskcon.training.state import Learner, build_learner
from maskcon.training.step import Place, TrainingData, make_views, train_step

from .count import Net, Rates, Work, count, momentum_bytes, optimiser_bytes, passes, relation_work
from .tables import SMALL_NETS, TABLES, duration, figures, size, table

PRESETS = dict(zip(SMALL_NETS, ("cpu", "paper"), strict=True))
CLASSES = 4


def fastest(work: Callable[[], object], repeats: int) -> float:
    """Return the CPU seconds of the fastest call, after one to warm up."""
    times = []
    for _ in range(repeats + 1):
        begin = time.process_time()
        work()
        times.append(time.process_time() - begin)
    return min(times[1:])


def machine_rates(repeats: int) -> Rates:
    """Measure float32 on one thread: a product of 1024 x 1024 matrices, a copy of 256 MB."""
    side, left = 1024, torch.randn(1024, 1024)
    source, target = torch.zeros(1 << 26), torch.zeros(1 << 26)
    product = fastest(lambda: torch.mm(left, left), 4 * repeats)
    copy = fastest(lambda: target.copy_(source), 2 * repeats)
    return Rates(2 * side**3 / product, 2 * source.nbytes / copy)


@dataclass(frozen=True)
class Part:
    name: str
    work: Work
    seconds: float


def step_parts(name: str, net: Net, repeats: int) -> tuple[list[Part], Part]:
    """Count and measure the parts of a MaskCon step with a full bank, and the whole step."""
    resolved = resolve("embedded", method="maskcon", preset=PRESETS[name], overrides={"seed": 0}).config
    config = resolved.changed(
        image_size=net.image_size,
        stem="stride2" if resolved.stem == "fast" else "small",
        query_view="cifar-strong",
        key_view="cifar-weak",
    )
    processes = start(device="cpu", devices=1, precision="32-true", threads=torch.get_num_threads())
    learner = build_learner(
        config,
        method_named("maskcon"),
        processes,
        labels=torch.zeros(config.batch_size, dtype=torch.long),
        in_channels=net.channels,
        classes=CLASSES,
    )
    pair, bank = learner.pair, learner.bank
    assert pair is not None
    assert bank is not None
    data = _random_data(net, learner)
    batch, rows = config.batch_size, torch.arange(config.batch_size)
    place = Place(epoch=0, step=0, w=1.0, learning_rate=1e-4)
    unit = torch.nn.functional.normalize
    keys = unit(torch.randn(config.bank_size, net.projection), dim=1)
    labels, numbers = torch.randint(CLASSES, (config.bank_size,)), torch.arange(config.bank_size)
    bank.enqueue(keys, labels, numbers)
    images = net_images(net, batch)

    def both_views() -> None:
        for purpose in ("query", "key"):
            make_views(data, config, place, rows, purpose, slice(None))

    def query() -> None:
        learner.optimizer.zero_grad(set_to_none=True)
        learner.query(images).projection.sum().backward()

    def relation() -> None:
        asked = keys[:batch].clone().requires_grad_()
        wanted = masked_relation(
            keys[:batch],
            bank.keys,
            labels[:batch],
            bank.coarse,
            0.1,
            index=numbers[:batch],
            bank_index=bank.index,
        )
        torch.autograd.backward(relation_loss(asked, keys[:batch], bank.keys, wanted, 0.1).mean())

    def update() -> None:
        learner.update_keys(config.key_momentum)
        torch.nn.utils.get_total_norm([p.grad for p in learner.model.parameters() if p.grad is not None])
        learner.optimizer.step()

    cost = passes(net, batch)
    updating = Work(0, momentum_bytes(cost.parameters) + optimiser_bytes(cost.parameters))
    parts = [
        Part("two views", count(both_views), fastest(both_views, repeats)),
        Part("query encoder, forward and backward", cost.forward + cost.backward, fastest(query, repeats)),
        Part("key encoder, forward", cost.key, fastest(lambda: pair.encode_keys(images), repeats)),
        Part(
            f"relation and loss, K = {config.bank_size:,}",
            relation_work(batch, config.bank_size, net.projection),
            fastest(relation, repeats),
        ),
        Part("key update, optimiser, gradient norm", updating, fastest(update, repeats)),
    ]
    whole = fastest(lambda: train_step(learner, data, config, place, rows), repeats)
    return parts, Part("whole step", sum((part.work for part in parts), Work()), whole)


def net_images(net: Net, batch: int) -> torch.Tensor:
    return torch.randn(batch, net.channels, net.image_size, net.image_size).contiguous(
        memory_format=torch.channels_last
    )


def _random_data(net: Net, learner: Learner) -> TrainingData:
    chance, count_of_images = np.random.default_rng(0), 1024
    images = chance.integers(
        0, 256, (count_of_images, net.channels, net.image_size, net.image_size), np.uint8
    )
    return TrainingData(
        feed=Feed(images, None, learner.processes.device),
        labels=torch.randint(CLASSES, (count_of_images,)),
        index=torch.arange(count_of_images),
        query_view=transforms.policy("cifar-strong"),
        key_view=transforms.policy("cifar-weak"),
        normalise=lambda batch: batch - 0.5,
        image_size=net.image_size,
    )


def step_table(parts: list[Part], whole: Part, rates: Rates) -> str:
    rows = [
        [
            part.name,
            figures(part.work.flops / 1e9),
            size(part.work.moved),
            duration(part.work.seconds(rates)),
            duration(part.seconds),
            f"{part.work.seconds(rates) / part.seconds:.2f}",
        ]
        for part in (*parts, whole)
    ]
    return table(("part", "GFLOP", "moved", "predicted", "measured", "predicted / measured"), rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=3, help="calls of which the fastest counts")
    parser.add_argument("--computed-only", action="store_true", help="measure nothing")
    chosen = parser.parse_args()
    if not chosen.computed_only:
        torch.set_num_threads(1)
        for name, net in SMALL_NETS.items():
            before = machine_rates(chosen.repeats)
            parts, whole = step_parts(name, net, chosen.repeats)
            after = machine_rates(chosen.repeats)
            rates = Rates(
                max(before.flops_per_second, after.flops_per_second),
                max(before.bytes_per_second, after.bytes_per_second),
            )
            print(f"\n### A step of {name}, batch 128, measured\n")
            print(f"{figures(rates.flops_per_second / 1e9)} GFLOP/s of matrix products, ", end="")
            print(f"{size(rates.bytes_per_second)}/s of copying\n")
            print(step_table(parts, whole, rates), flush=True)
    for name, made in TABLES.items():
        print(f"\n### {name}, computed\n\n{made()}")


if __name__ == "__main__":
    main()
