"""Pretrained backbones compared: frozen recall@1, and images embedded per second.

    python benchmarks/backbones.py --images PATH --photographs FOLDER --data-root FOLDER --download

PATH/{train,test}/<class>/*.jpg is CIFAR-10, for CIFARtoy-good; the photographs are a folder data set with fine labels;
the data root holds CIFAR-100. Sets without an option are left out. A rerun measures only what --out lacks.

Recall@1 is among the test images, each left out for itself. Speed is images per second of CPU time on one thread, in
batches as `maskcon train --freeze` embeds them, the median of 5 in turns: by the package, by its PyTorch engine, and by
onnxruntime on the same net as PyTorch's exporter writes it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping
from functools import cache, partial
from itertools import product
from pathlib import Path
from unittest import mock

import onnxruntime
import torch

from maskcon.api.run import features_of
from maskcon.config.resolution import resolve
from maskcon.config.settings import RunConfig
from maskcon.data import Dataset, load
from maskcon.export.embedder import Embedder, Preprocessing
from maskcon.export.onnx_file import INPUT, NAME, OUTPUT, write_onnx
from maskcon.models import for_inference, inference
from maskcon.retrieval.recall import recall_at_k
from maskcon.training.frozen.extract import batch_views
from maskcon.training.frozen.features import frozen_backbone
from maskcon.training.run_folder import make_writable
from maskcon.training.setup import encoder_facts, settle
from method_table import answer, lay_out, write_json

REPEATS = 5
ENGINES = ("maskcon", "PyTorch", "onnxruntime")
Cells = dict[str, float]


def config_of(backbone: str, size: int) -> RunConfig:
    given = {"freeze": True, "backbone": backbone, "image_size": size}
    return resolve("photos", method="teachcon", preset="fast", overrides=given).config


def alone(config: RunConfig, data: Dataset, download: bool) -> float:
    """Return recall@1 of the backbone's features of the test images."""
    config = settle(config, data)
    backbone, _ = frozen_backbone(config, in_channels=data.train.images.shape[1], download=download)
    facts = encoder_facts(config, data.train)
    features = features_of(for_inference(backbone), facts, data.test.images, data.test.sizes, "cpu")
    return recall_at_k(features, torch.from_numpy(data.test.finest), (1,))[1]


def speeds(config: RunConfig, folder: Path, download: bool) -> dict[str, float]:
    """Return images per second of CPU time by `ENGINES`."""
    size = int(config.image_size or 0)
    backbone, _ = frozen_backbone(config, in_channels=3, download=download)
    preprocessing = Preprocessing(size, size, 3, "shorter", (0.0,) * 3, (1.0,) * 3)
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / NAME).is_file():
        write_onnx(Embedder(backbone, preprocessing), folder, {})
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(folder / NAME), options, providers=["CPUExecutionProvider"])
    views = torch.randn(batch_views(size), 3, size, size)
    plain, lasting = views.numpy(), views.contiguous(memory_format=torch.channels_last)
    net = for_inference(backbone)
    with mock.patch.object(inference, "find_spec", return_value=None):  # as without the extra
        by_torch = for_inference(backbone)
    work: list[Callable[[], object]] = [
        lambda: net(lasting),
        lambda: by_torch(lasting),
        lambda: session.run([OUTPUT], {INPUT: plain}),
    ]
    taken: dict[str, list[float]] = {name: [] for name in ENGINES}
    with torch.inference_mode():
        for _ in range(REPEATS):
            for name, call in zip(ENGINES, work, strict=True):
                call()
                begun = time.process_time()
                call()
                taken[name].append(time.process_time() - begun)
    return {name: len(views) / statistics.median(seconds) for name, seconds in taken.items()}


def table(cells: Mapping[str, float], options: argparse.Namespace, sets: list[str]) -> str:
    columns = ["backbone", "px"]
    columns += sets
    columns += ["images/s", *ENGINES[1:]]
    lines = [f"| {' | '.join(columns)} |", "|---|" + "---:|" * (len(columns) - 1)]

    def shown(key: str, scale: float = 100, digits: int = 1) -> str:
        return f"{scale * cells[key]:,.{digits}f}" if key in cells else "-"

    for backbone in options.backbones:
        for size in options.sizes:
            row = [backbone, str(size)]
            for name in sets:
                row.append(shown(f"{name} {backbone} {size}"))
            row += [shown(f"{engine} {backbone} {size}", 1, 0) for engine in ENGINES]
            lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)


def carry_out(options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    out: Path = options.out
    make_writable(out)

    @cache
    def data(name: str) -> Dataset:
        if name == "CIFAR-100":
            return load("cifar100", root=options.data_root).limited(None, options.test)
        source = options.photographs
        if name == "CIFARtoy-good":
            source = lay_out(options.images, "good", out / "images", {"train": 500, "test": 250})
        return load(str(source)).limited(None, options.test)

    given = {"CIFAR-100": options.data_root, "CIFARtoy-good": options.images}
    given["photographs"] = options.photographs
    sets = [name for name, place in given.items() if place is not None]
    kept = out / "cells.json"
    cells: Cells = json.loads(kept.read_text(encoding="utf-8")) if kept.is_file() else {}

    def measure(key: str, work: Callable[[], float]) -> None:
        if key not in cells:
            cells[key] = work()
            print(f"{key}: {cells[key]:.4f}", flush=True)
            write_json(kept, cells)

    for size, backbone in product(options.sizes, options.backbones):
        config = config_of(backbone, size)
        for name in sets:
            measure(f"{name} {backbone} {size}", partial(alone, config, data(name), options.download))
        if f"maskcon {backbone} {size}" not in cells:
            found = speeds(config, out / f"onnx-{backbone}-{size}", options.download)
            for engine, speed in found.items():
                measure(f"{engine} {backbone} {size}", partial(float, speed))
    print(table(cells, options, sets))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=Path, help="CIFAR-10 with a folder per class")
    parser.add_argument("--photographs", type=Path, help="a folder data set with fine labels")
    parser.add_argument("--data-root", type=Path, help="folder with CIFAR-100")
    parser.add_argument("--out", type=Path, default=Path("runs/backbones"))
    parser.add_argument(
        "--backbones", nargs="+", default=["mobilenet_v2", "efficientnet_lite0", "efficientnet_lite2"]
    )
    parser.add_argument("--sizes", nargs="+", type=int, default=[96, 128, 160, 224])
    parser.add_argument("--test", type=int, default=10_000, help="test images of a set, at most")
    parser.add_argument("--download", action="store_true", help="fetch weights that are not here")
    answer(parser, carry_out)


if __name__ == "__main__":
    main()
