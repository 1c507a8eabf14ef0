"""Count the cost of training from the real modules: FLOPs, bytes moved, bytes kept for the backward pass.

Nets run on torch's fake tensors, which have shapes but no data, so counting a ResNet-50 at 224 px costs nothing.
Letters in shapes: B batch, K bank, D projection.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from maskcon.methods.losses import relation_loss
from maskcon.methods.registry import RelationInputs, method_named
from maskcon.models import Backbone, Model, build_backbone, build_model

FLOAT32 = 4  # bytes

Given = ParamSpec("Given")
Result = TypeVar("Result")


def _shapes_only(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Run a function with fake tensors."""

    @wraps(function)
    def run(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        with FakeTensorMode():
            return function(*args, **kwargs)

    return run


@dataclass(frozen=True)
class Work:
    """flops: of matrix products and convolutions, 2 per multiply-add; moved: bytes that all other operations touch."""

    flops: float = 0.0
    moved: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(self.flops + other.flops, self.moved + other.moved)

    def seconds(self, rates: Rates) -> float:
        """FLOPs at the rate of matrix products plus bytes at the rate of copying."""
        return self.flops / rates.flops_per_second + self.moved / rates.bytes_per_second


@dataclass(frozen=True)
class Rates:
    """Rates of a machine; bytes count both reads and writes."""

    flops_per_second: float
    bytes_per_second: float


class _Moved(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sums input and output bytes of every operation that is neither a matrix product nor a view."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        moves = func.namespace == "aten" and not func.is_view and not func.name().startswith("aten::empty")
        if moves and func.overloadpacket not in flop_registry:
            written = args[0] if out is None else out  # in-place `foreach` returns None
            self.total += sum(
                leaf.numel() * leaf.element_size()
                for leaf in tree_leaves((args, kwargs, written))
                if isinstance(leaf, Tensor)
            )
        return out


def _convolution_backward_flops(
    grad: torch.Size, _images: torch.Size, weight: torch.Size, *rest: Any, **_: Any
) -> int:
    """As many as forward per gradient. Torch's own count treats a grouped convolution as a full one."""
    transposed, wanted = rest[4], rest[7]
    places = math.prod(_images[2:]) if transposed else math.prod(grad[2:])
    return 2 * grad[0] * places * math.prod(weight) * sum(map(bool, wanted[:2]))


def count(work: Callable[[], object]) -> Work:
    """Run the work and count its FLOPs and bytes."""
    moved = _Moved()
    flops = FlopCounterMode(
        display=False, custom_mapping={torch.ops.aten.convolution_backward: _convolution_backward_flops}
    )
    with flops, moved:
        work()
    return Work(flops.get_total_flops(), moved.total)


@dataclass(frozen=True)
class Net:
    """An encoder with its projector, built as in a run."""

    name: str
    image_size: int
    width: int = 64
    stem: Any = "auto"
    channels: int = 3
    hidden: int = 512
    projection: int = 128

    def build(self) -> Model:
        return build_model(self._backbone(), projection=self.projection, hidden=self.hidden)

    def _backbone(self) -> Backbone:
        shape: dict[str, Any] = {"width": self.width, "stem": self.stem}
        return build_backbone(
            self.name,
            image_size=self.image_size,
            in_channels=self.channels,
            **({} if self.name == "mobilenet_v2" else shape),
        )

    def images(self, batch: int) -> Tensor:
        return torch.empty(batch, self.channels, self.image_size, self.image_size)


@dataclass(frozen=True)
class Passes:
    """Cost of one batch: query encoder forward and backward, key encoder forward; `kept`: bytes held for backward."""

    forward: Work
    backward: Work
    key: Work
    kept: int
    parameters: int
    features: int

    @property
    def all(self) -> Work:
        return self.forward + self.backward + self.key


@_shapes_only
def passes(net: Net, batch: int) -> Passes:
    model, images = net.build(), net.images(batch)
    stores: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        if not isinstance(tensor, nn.Parameter):  # held in any case
            store = tensor.untyped_storage()
            stores[store._cdata] = store.nbytes()
        return tensor

    outputs: list[Tensor] = []

    def forward() -> None:
        outputs.append(model(images).projection)

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        forward_work = count(forward)
    backward_work = count(lambda: torch.autograd.backward(outputs[0], torch.empty_like(outputs[0])))
    with torch.no_grad():
        key = count(lambda: model(images))
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return Passes(forward_work, backward_work, key, sum(stores.values()), parameters, model.features)


@_shapes_only
def layer_flops(net: Net, batch: int) -> tuple[int, int]:
    """Return forward and backward FLOPs by the textbook, from the shapes of convolutions and linear layers.

    Backward needs one product for the weight gradient and one for the input gradient, except in the first layer.
    """
    model, layers = net.build(), list[int]()

    def add(layer: nn.Module, _: Any, out: Tensor) -> None:
        weight = layer.weight
        assert isinstance(weight, Tensor)
        outputs = out.numel() // weight.shape[0]  # rows, or places of all images
        layers.append(2 * outputs * weight.numel())

    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            module.register_forward_hook(add)
    model(net.images(batch))
    return sum(layers), 2 * sum(layers) - layers[0]


def relation_flops(batch: int, bank: int, dim: int) -> int:
    """FLOPs of MaskCon's relation and loss: keys x bank, queries x bank, and the gradient x bank."""
    return 3 * 2 * batch * bank * dim


@_shapes_only
def relation_work(batch: int, bank: int, dim: int) -> Work:
    """Count relation and loss of one batch, forward and backward, as the package computes them."""

    def work() -> None:
        rows = torch.empty(batch, dim, requires_grad=True)
        keys, bank_keys = torch.empty(batch, dim), torch.empty(bank, dim)
        labels, bank_labels = (torch.empty(n, dtype=torch.long) for n in (batch, bank))
        inputs = RelationInputs(keys, labels, labels, bank_keys, bank_labels, bank_labels, w=1.0, tau=0.05)
        relation_of = method_named("maskcon").relation_of(inputs)
        torch.autograd.backward(relation_loss(rows, keys, bank_keys, relation_of, 0.1).mean())

    return count(work)


def bank_bytes(bank: int, dim: int, compared: int = 0) -> int:
    """Bytes of the bank: float32 keys, int64 labels and indices; `compared`: features stored per key."""
    return bank * ((dim + compared) * FLOAT32 + 2 * 8)


def momentum_bytes(parameters: int) -> int:
    """Bytes of key <- key + (1 - m) (query - key): two arrays read, one written."""
    return 3 * FLOAT32 * parameters


def optimiser_bytes(parameters: int) -> int:
    """Bytes of SGD with momentum and weight decay, one `foreach` operation at a time.

    gradient + decay * weight (2 read, 1 written), velocity * momentum (1, 1), + gradient (2, 1), weight - rate *
    velocity (2, 1); and the gradient's norm reads it once.
    """
    return (3 + 2 + 3 + 3 + 1) * FLOAT32 * parameters
