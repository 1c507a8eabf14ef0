"""The cost model carried to machines that are not here: GPUs, networks, large indexes. Assumptions are data.

Each function ending in `_table` gives a table of docs/scaling.md (see tests/benchmarks/test_cost_model.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cost_count import FLOAT32, Net, Passes, Rates, bank_bytes, passes, relation_work
from cost_show import duration, figures, share, size, table
from maskcon.data.decoding import canvas_for
from maskcon.methods.losses import BLOCK_ELEMENTS
from maskcon.retrieval.encode import BATCH_IMAGES, BATCH_PIXELS

IMAGENET, VALIDATION = 1_281_167, 50_000  # images of ImageNet-1K

# Published: NVIDIA DeepLearningExamples, ResNet-50 v1.5 for PyTorch, DGX A100 80 GB, mixed precision, images/s.
PUBLISHED_ONE, PUBLISHED_EIGHT = 2470, 16621
SCALING = PUBLISHED_EIGHT / 8 / PUBLISHED_ONE
EFFICIENCY = {1: 1.0, 8: SCALING, 64: SCALING}  # of 64 GPUs: assumed
PEAK_FLOPS = 312e12  # A100, bfloat16, its data sheet
# Relation and loss are float32 by design: 19.5 TFLOP/s and 2.04 TB/s by the data sheet, of which we assume 70 %.
A100_FLOAT32 = Rates(0.7 * 19.5e12, 0.7 * 2.04e12)
NVLINK = 0.7 * 300e9  # bytes/s of a GPU, one way; 70 % is assumed
ETHERNET = 0.8 * 12.5e9  # bytes/s of a machine with 100 Gb/s; 80 % is assumed
GPUS_A_MACHINE = 8
BATCH, DIM = 256, 128  # images a GPU, size of a key
DECODED_A_CORE = 303 / 2  # images/s of 640 x 480 JPEGs: benchmarks/packing.py on two cores, docs/results.md

NETS = {"ResNet-18, 224 px": Net("resnet18", 224), "ResNet-50, 224 px": Net("resnet50", 224)}
SMALL_NETS = {
    "ResNet-10 of width 16, 32 px": Net(
        "resnet10", 32, width=16, stem="stride2", channels=1, hidden=256, projection=64
    ),
    "ResNet-18, 32 px": Net("resnet18", 32),
}


@dataclass(frozen=True)
class Gpu:
    """One A100 at the rate that the published ResNet-50 throughput stands for."""

    name: str
    cost: Passes  # of BATCH images

    @property
    def images_per_second(self) -> float:
        return usable_flops() * BATCH / self.cost.all.flops

    @property
    def step_seconds(self) -> float:
        return BATCH / self.images_per_second


_known: dict[Net, Passes] = {}


def cost_of(net: Net) -> Passes:
    """Passes of a batch; counted once."""
    if net not in _known:
        _known[net] = passes(net, BATCH)
    return _known[net]


def usable_flops() -> float:
    """FLOP/s that an A100 is published to reach when it trains a ResNet-50: forward and back, no key net."""
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
    head = ("net with projector", "parameters", "forward", "back", "key", "all GFLOP", "moved", "kept")
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
                    duration(100 * epoch),
                    duration(200 * epoch),
                    figures(200 * epoch * count / 3600),
                ]
            )
    head = ("net", "global batch", "images/s", "an epoch", "100 epochs", "200 epochs", "GPU hours for 200")
    return table(head, rows)


def memory_table(bank: int = 65536) -> str:
    rows = []
    for gpu in gpus():
        weights = 4 * FLOAT32 * gpu.cost.parameters  # query, key, gradient, velocity
        kept = gpu.cost.kept / 2  # bfloat16
        # similarity, relation, and what is made of each on the way, of as many rows as are worked on at once
        relation = 4 * FLOAT32 * min(BATCH * bank, BLOCK_ELEMENTS)
        views = 2 * 3 * 224**2 * FLOAT32 * BATCH
        parts = (weights, kept, views, bank_bytes(bank, DIM), relation)
        rows.append([gpu.name, *(size(part) for part in parts), size(sum(parts))])
    head = ("net", "weights x 4", "kept for back", "views", f"bank of {bank:,}", "relation, loss", "together")
    return table(head, rows)


def keys_seconds(count: int) -> tuple[float, float]:
    """Time for every process to get the keys of all: over NVLink, and over Ethernet between machines of 8."""
    return _gathered(count * BATCH * DIM * FLOAT32, count, 1)


def gradient_seconds(count: int, parameters: int) -> tuple[float, float]:
    return _gathered(FLOAT32 * parameters, count, 2)  # all-reduce: scattered, then gathered


def _gathered(total: int, count: int, times: int) -> tuple[float, float]:
    machines = max(1, count // GPUS_A_MACHINE)
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
                *(duration(value) if count > GPUS_A_MACHINE else "-" for value in (keys[1], gradient[1])),
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
        "keys of a step",
        "gradient of a step",
    )
    return table(head, rows)


PICTURE_BYTES = 3 * canvas_for(224) ** 2  # in a pack


def input_table() -> str:
    picture = PICTURE_BYTES
    rows = []
    for gpu in gpus():
        for count in EFFICIENCY:
            rate = count * EFFICIENCY[count] * gpu.images_per_second / max(1, count // GPUS_A_MACHINE)
            times = 1 if count == 1 else 2  # the key's share is shuffled: other rows than the query's
            rows.append(
                [
                    f"{gpu.name}, {count} GPU{'s' * (count > 1)}",
                    figures(rate),
                    f"{size(times * rate * picture)}/s",
                    f"{size(times * rate * picture / min(count, GPUS_A_MACHINE))}/s",
                    figures(times * rate / DECODED_A_CORE),
                ]
            )
    head = (
        "net",
        "images/s a machine",
        "read from the pack",
        "by each process",
        "cores if JPEGs were decoded each epoch",
    )
    return table(head, rows)


def relation_share(bank: int, rates: Rates, step_seconds: float, batch: int, dim: int) -> float:
    """Time of relation and loss over that of the step's two nets."""
    return relation_work(batch, bank, dim).seconds(rates) / step_seconds


def bank_reaching(part: float, rates: Rates, step_seconds: float, batch: int, dim: int) -> int:
    """The size at which relation and loss take this share: they grow with K, in blocks, by the same amount."""
    large = 1 << 17
    return int(part / relation_share(large, rates, step_seconds, batch, dim) * large)


def bank_table() -> str:
    rows = []
    for bank in (8192, 65536, 2**19):
        work = relation_work(BATCH, bank, DIM)
        shares = [relation_share(bank, A100_FLOAT32, gpu.step_seconds, BATCH, DIM) for gpu in gpus()]
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


def bank_limits_table() -> str:
    rows = [
        [
            gpu.name,
            *(
                figures(bank_reaching(part, A100_FLOAT32, gpu.step_seconds, BATCH, DIM))
                for part in (0.01, 0.1)
            ),
        ]
        for gpu in gpus()
    ]
    return table(("net", "K at 1 % of the step", "K at 10 %"), rows)


def evaluation_table() -> str:
    rows = []
    for name, count, features in (
        ("ImageNet-1K's validation images, ResNet-18", VALIDATION, 512),
        ("the same, ResNet-50", VALIDATION, 2048),
        ("its training images, ResNet-50", IMAGENET, 2048),
    ):
        flops = 2 * count**2 * features
        rows.append(
            [
                name,
                size(2 * FLOAT32 * count * features),  # features and their unit copy
                figures(flops / 1e12),
                duration(flops / A100_FLOAT32.flops_per_second),
                duration(flops / 1e11),
            ]
        )
    head = ("recall@K of", "features, twice", "TFLOP", "on an A100, float32", "at 100 GFLOP/s")
    return table(head, rows)


def evaluation_batch(side: int) -> int:
    """Images that `maskcon.retrieval.encode` takes at once."""
    return max(1, min(BATCH_IMAGES, BATCH_PIXELS // side**2))


TABLES: dict[str, Callable[[], str]] = {
    "An image": nets_table,
    "ImageNet-1K, 224 px, A100": epochs_table,
    "Memory of a GPU, 256 images": memory_table,
    "Communication a step, ResNet-50": communication_table,
    "Input": input_table,
    "Relation and loss, 256 images": bank_table,
    "Where the bank matters": bank_limits_table,
    "Evaluation": evaluation_table,
}
