"""Speed of the parts, mostly as ratios within one run: how things stand to each other on the machine at hand.

python benchmarks/speed.py [--json FILE]

step_overhead     a whole training step over the bare passes of its two encoders (1.0: nothing else costs time)
views             images a second that get both their weak and their strong view, on one thread
loss              relation and loss, over the same with every [B, 1+K] matrix written out
recall            recall@K in blocks and with ties put in order, over topk of a full similarity matrix
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from maskcon import views
from maskcon.config import RunConfig
from maskcon.engine.distributed import start
from maskcon.engine.feed import Feed
from maskcon.engine.learner import build_learner
from maskcon.engine.step import Place, TrainingData, train_step
from maskcon.evaluate import recall_at_k
from maskcon.losses import relation_loss
from maskcon.methods import method_named
from maskcon.presets import resolve
from maskcon.relations import masked_relation
from maskcon.settling import encoder_facts, settle
from maskcon.sources import load


def median_seconds(work: Callable[[], object], repeats: int = 15) -> float:
    """Median time of a call, after two calls to warm up."""
    times = []
    for number in range(repeats + 2):
        begin = time.perf_counter()
        work()
        if number >= 2:
            times.append(time.perf_counter() - begin)
    return statistics.median(times)


def step_overhead() -> dict[str, float]:
    """MaskCon on the embedded set with the preset `cpu`."""
    data = load("embedded")
    resolved = resolve("embedded", method="maskcon", preset="cpu", overrides={"seed": 0})
    config: RunConfig = settle(resolved.config, data)
    processes = start(device="cpu", devices=1, precision="32-true", threads=1)
    learner = build_learner(config, method_named("maskcon"), processes, in_channels=1, classes=4)
    facts = encoder_facts(config, data.train)
    training_data = TrainingData(
        feed=Feed(data.train.images, data.train.sizes, processes.device),
        labels=torch.from_numpy(data.train.coarse),
        index=torch.from_numpy(data.train.index),
        query_view=views.policy(str(config.query_view)),
        key_view=views.policy(str(config.key_view)),
        normalise=facts.normalise,
        image_size=facts.image_size,
    )
    rows = torch.arange(config.batch_size)
    place = Place(epoch=0, step=0, w=1.0, learning_rate=1e-4)
    while learner.bank is not None and len(learner.bank) < config.bank_size:
        train_step(learner, training_data, config, place, rows)
    images = torch.randn(config.batch_size, 1, 32, 32).contiguous(memory_format=torch.channels_last)

    def bare() -> None:
        output = learner.query(images)
        output.projection.sum().backward()
        assert learner.pair is not None
        learner.pair.encode_keys(images)

    whole = median_seconds(lambda: train_step(learner, training_data, config, place, rows))
    passes = median_seconds(bare)
    return {"ratio": whole / passes, "images_per_second": config.batch_size / whole}


def view_speed(family: str, channels: int) -> dict[str, float]:
    images = torch.randint(0, 256, (512, channels, 32, 32), dtype=torch.uint8)
    pair = views.pair(family)
    tables = [torch.rand(len(images), policy.draws) for policy in pair]
    spent = median_seconds(
        lambda: [policy(images, table, size=32) for policy, table in zip(pair, tables, strict=True)]
    )
    return {"images_per_second": len(images) / spent}


def loss_cost(batch: int = 128, bank: int = 8192) -> dict[str, float]:
    unit = torch.nn.functional.normalize
    queries, keys, bank_keys = (unit(torch.randn(n, 128), dim=1) for n in (batch, batch, bank))
    labels, bank_labels = torch.randint(20, (batch,)), torch.randint(20, (bank,))

    def ours() -> None:
        free = queries.clone().requires_grad_()
        relation = masked_relation(keys, bank_keys, labels, bank_labels, 0.05)
        torch.autograd.backward(relation_loss(free, keys, bank_keys, relation, 0.1).mean())

    def written_out() -> None:
        free = queries.clone().requires_grad_()
        mask = (labels[:, None] == bank_labels[None]).float()
        soft = ((keys @ bank_keys.T) / 0.05).exp() * mask
        soft = soft / soft.sum(1, keepdim=True)
        relation = torch.cat([torch.ones(batch, 1), soft / soft.amax(1, keepdim=True)], 1)
        relation = relation / relation.sum(1, keepdim=True)
        logits = torch.cat([(free * keys).sum(1, keepdim=True), free @ bank_keys.T], 1) / 0.1
        torch.autograd.backward((-(relation * logits.log_softmax(1)).sum(1)).mean())

    return {"ratio": median_seconds(ours) / median_seconds(written_out)}


def recall_cost(count: int = 8000) -> dict[str, float]:
    embeddings, labels = torch.randn(count, 128), torch.randint(100, (count,))

    def at_once() -> Tensor:
        unit = torch.nn.functional.normalize(embeddings, dim=1)
        similarity = unit @ unit.T
        similarity.fill_diagonal_(-2)
        return (labels[similarity.topk(10, dim=1).indices] == labels[:, None]).any(1).float().mean()

    ours = median_seconds(lambda: recall_at_k(embeddings, labels), repeats=3)
    return {"ratio": ours / median_seconds(at_once, repeats=3), "seconds": ours}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    figures: dict[str, Mapping[str, object]] = {
        "step_overhead.cpu": step_overhead(),
        "views.embedded": view_speed("embedded", 1),
        "views.cifar": view_speed("cifar", 3),
        "loss.b128_k8192": loss_cost(),
        "recall.n8000": recall_cost(),
        "machine": {"torch": torch.__version__, "platform": platform.platform(), "threads": 1},
    }
    for name, values in figures.items():
        shown = ", ".join(f"{k} {v:,.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in values.items())
        print(f"{name:20s} {shown}")
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
