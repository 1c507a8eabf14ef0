"""The cost model applied to GPUs, networks and large indexes, with all assumptions as constants.

Each function ending in `_table` returns a table of docs/scaling.md (see tests/benchmarks/test_cost_model.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from maskcon.methods.losses import BLOCK_ELEMENTS

from .count import FLOAT32, Net, Passes, Rates, bank_bytes, passes, relation_work

IMAGENET = 1_281_167  # training images of ImageNet-1K

# Published: NVIDIA DeepLearningExamples, ResNet-50 v1.5 for PyTorch, DGX A100 80 GB, mixed precision, images/s.
PUBLISHED_ONE, PUBLISHED_EIGHT = 2470, 16621
SCALING = PUBLISHED_EIGHT / 8 / PUBLISHED_ONE
EFFICIENCY = {1: 1.0, 8: SCALING, 64: SCALING}  # of 64 GPUs: assumed
PEAK_FLOPS = 312e12  # A100, bfloat16, its data sheet
# Relation and loss are float32 by design: 19.5 TFLOP/s and 2.04 TB/s by the data sheet, of which we assume 70 %.
A100_FLOAT32 = Rates(0.7 * 19.5e12, 0.7 * 2.04e12)
NVLINK = 0.7 * 300e9  # bytes/s per GPU, one way; 70 % is assumed
ETHERNET = 0.8 * 12.5e9  # bytes/s per machine with 100 Gb/s; 80 % is assumed
GPUS_PER_MACHINE = 8
BATCH, DIM = 256, 128  # images per GPU, size of a key

NETS = {"ResNet-18, 224 px": Net("resnet18", 224), "ResNet-50, 224 px": Net("resnet50", 224)}
SMALL_NETS = {
    "ResNet-10 of width 16, 32 px": Net(
        "resnet10", 32, width=16, stem="stride2", channels=1, hidden=256, projection=64
    ),
    "ResNet-18, 32 px": Net("resnet18", 32),
}


@dataclass(frozen=True)
class Gpu:
    """One A100 at the FLOP rate of the published ResNet-50 throughput."""

    name: str
    cost: Passes  # of BATCH images

    @property
    def images_per_second(self) -> float:
        return usable_flops() * BATCH / self.cost.all.flops

    @property
    def step_seconds(self) -> float:
        return BATCH / self.images_per_second


@cache
def cost_of(net: Net) -> Passes:
    """Count the passes of a batch once per net."""
    return passes(net, BATCH)


def usable_flops() -> float:
    """FLOP/s of an A100 in the published ResNet-50 training: forward and backward, no key encoder."""
    cost = cost_of(NETS["ResNet-50, 224 px"])
    return PUBLISHED_ONE * (cost.forward + cost.backward).flops / BATCH


def gpus() -> list[Gpu]:
    return [Gpu(name, cost_of(net)) for name, net in NETS.items()]


def nets_table() -> str:
    rows = []
    for name, net in (SMALL_NETS | NETS).items():
        cost = cost_of(net)
        gigaflops = [part.flops / BATCH / 1e9 for part in (cost.forward, cost.backward, cost.key, cost.all)]
        rows.append(
            [
                name,
                f"{cost.parameters / 1e6:.2f} M",
                *(figures(value) for value in gigaflops),
                size(cost.all.moved / BATCH),
                size(cost.kept / BATCH),
            ]
        )
    head = ("net with projector", "parameters", "forward", "backward", "key", "all GFLOP", "moved", "kept")
    return table(head, rows)


def epochs_table() -> str:
    rows = []
    for gpu in gpus():
        for count, efficiency in EFFICIENCY.items():
            rate = count * efficiency * gpu.images_per_second
            epoch = IMAGENET / rate
            rows.append(
                [
                    f"{gpu.name}, {count} GPU{'s' * (count > 1)}",
                    f"{count * BATCH:,}",
                    figures(rate),
                    duration(epoch),
                    duration(200 * epoch),
                    figures(200 * epoch * count / 3600),
                ]
            )
    head = ("net", "global batch", "images/s", "epoch", "200 epochs", "GPU hours for 200")
    return table(head, rows)


def memory_table(bank: int = 65536) -> str:
    rows = []
    for gpu in gpus():
        weights = 4 * FLOAT32 * gpu.cost.parameters  # query, key, gradient, velocity
        kept = gpu.cost.kept / 2  # bfloat16
        # similarity, relation and one temporary of each, for one block of rows
        relation = 4 * FLOAT32 * min(BATCH * bank, BLOCK_ELEMENTS)
        views = 2 * 3 * 224**2 * FLOAT32 * BATCH
        parts = (weights, kept, views, bank_bytes(bank, DIM), relation)
        rows.append([gpu.name, *(size(part) for part in parts), size(sum(parts))])
    head = ("net", "weights x 4", "activations", "views", f"bank of {bank:,}", "relation, loss", "sum")
    return table(head, rows)


def keys_seconds(count: int) -> tuple[float, float]:
    """Seconds to gather all keys over NVLink, and over Ethernet between machines of 8 GPUs."""
    return _gathered(count * BATCH * DIM * FLOAT32, count, 1)


def gradient_seconds(count: int, parameters: int) -> tuple[float, float]:
    return _gathered(FLOAT32 * parameters, count, 2)  # all-reduce: scattered, then gathered


def _gathered(total: int, count: int, times: int) -> tuple[float, float]:
    machines = max(1, count // GPUS_PER_MACHINE)
    local = times * total * (count - 1) / count / NVLINK
    return local, times * total * (machines - 1) / machines / ETHERNET


def communication_table() -> str:
    rows = []
    gpu = gpus()[-1]
    for count in (8, 64, 512):
        keys, gradient = keys_seconds(count), gradient_seconds(count, gpu.cost.parameters)
        slowest = [max(times) for times in (keys, gradient)]
        rows.append(
            [
                f"{count}",
                size(count * BATCH * DIM * FLOAT32),
                size(FLOAT32 * gpu.cost.parameters),
                *(duration(value) for value in (keys[0], gradient[0])),
                *(duration(value) if count > GPUS_PER_MACHINE else "-" for value in (keys[1], gradient[1])),
                *(share(value / gpu.step_seconds) for value in slowest),
            ]
        )
    head = (
        "GPUs",
        "keys",
        "gradient",
        "keys, NVLink",
        "gradient, NVLink",
        "keys, 100 Gb/s",
        "gradient, 100 Gb/s",
        "keys, share of step",
        "gradient, share of step",
    )
    return table(head, rows)


def relation_share(bank: int, rates: Rates, step_seconds: float) -> float:
    """Time of relation and loss over that of both encoders."""
    return relation_work(BATCH, bank, DIM).seconds(rates) / step_seconds


def bank_table() -> str:
    rows = []
    for bank in (8192, 65536, 2**19):
        work = relation_work(BATCH, bank, DIM)
        shares = [relation_share(bank, A100_FLOAT32, gpu.step_seconds) for gpu in gpus()]
        rows.append(
            [
                f"{bank:,}",
                size(bank_bytes(bank, DIM)),
                size(bank_bytes(bank, DIM, compared=2048)),
                figures(work.flops / 1e9),
                size(work.moved),
                duration(work.seconds(A100_FLOAT32)),
                *(share(part) for part in shares),
            ]
        )
    head = (
        "K",
        "bank",
        "with features (2048)",
        "GFLOP",
        "moved",
        "time",
        *(f"of {gpu.name}" for gpu in gpus()),
    )
    return table(head, rows)


TABLES: dict[str, Callable[[], str]] = {
    "One image": nets_table,
    "ImageNet-1K, 224 px, A100": epochs_table,
    "Memory per GPU, 256 images": memory_table,
    "Communication per step, ResNet-50": communication_table,
    "Relation and loss, 256 images": bank_table,
}


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def size(count: float) -> str:
    """Format bytes in powers of 1000.

    >>> size(4325376), size(252e9)
    ('4.33 MB', '252 GB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{figures(count)} {unit}"
        count /= 1000
    return f"{figures(count)} TB"


def figures(value: float) -> str:
    """Format with at most three significant figures.

    >>> figures(1234567), figures(0.01234), figures(5.0)
    ('1,230,000', '0.0123', '5')
    """
    if value == 0:
        return "0"
    digits = 2 - math.floor(math.log10(abs(value)))
    rounded = round(value, digits)
    return f"{rounded:,.{max(0, digits)}f}".rstrip("0").rstrip(".") if digits > 0 else f"{rounded:,.0f}"


def duration(seconds: float) -> str:
    """Format seconds with a fitting unit.

    >>> duration(0.0042), duration(90), duration(7200), duration(400000)
    ('4.2 ms', '90 s', '2 h', '4.63 days')
    """
    for limit, unit, length in (
        (1e-3, "us", 1e-6),
        (1, "ms", 1e-3),
        (600, "s", 1),
        (7200, "min", 60),
        (172800, "h", 3600),
    ):
        if seconds < limit:
            return f"{figures(seconds / length)} {unit}"
    return f"{figures(seconds / 86400)} days" if seconds >= 172800 else f"{figures(seconds / 3600)} h"


def share(part: float) -> str:
    return f"{figures(100 * part)} %"
