"""A device that is not here: CPU tensors that PyTorch takes for tensors of another device, with their values.

Under `Elsewhere`, tensors made on or moved to `DEVICE` are wrapped. An operation on a wrapped and a plain tensor
raises, as it does with a GPU (single numbers, copies and row numbers may cross); what makes a program wait for a GPU
(`item`, `bool`, `cpu`, `nonzero`, indexing by a mask) is listed in `waits`. Results are the CPU's, bit for bit.
"""

from __future__ import annotations

import traceback
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from maskcon.training.distributed import Processes

DEVICE = torch.device("meta")  # the one name that a build without GPUs lets tensors have
WAITING = (
    "aten::_local_scalar_dense",
    "aten::nonzero",
    "aten::masked_select",
    "aten::equal",
    "aten::_unique2",
)


class Away(Tensor):
    """A tensor of the device; `inner` holds its values."""

    @staticmethod
    def __new__(cls, inner: Tensor) -> Away:
        return Tensor._make_wrapper_subclass(
            cls, inner.shape, inner.stride(), inner.storage_offset(), dtype=inner.dtype, device=DEVICE
        )

    def __init__(self, inner: Tensor) -> None:
        self.inner = inner

    def __repr__(self) -> str:
        return f"Away({self.inner})"

    def __getitem__(self, index: Any) -> Tensor:
        """Take a list of rows as a tensor of the CPU: PyTorch would make one on the device, unseen."""
        parts = index if isinstance(index, tuple) else (index,)
        seen = tuple(torch.tensor(part) if isinstance(part, list) else part for part in parts)
        return super().__getitem__(seen)

    def tolist(self) -> Any:
        return self.cpu().tolist()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(func, args, kwargs or {}, None)


class Elsewhere(TorchDispatchMode):
    """See the module; `waits` holds the operation and the line of ours that it comes from."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[str] = []
        self.before = torch.tensor, torch.as_tensor, Tensor.new_tensor

    def __enter__(self) -> Elsewhere:
        """Make tensors from numbers on the CPU and move them: those of this device would be made unseen."""
        tensor = self.before[0]

        def made(values: Any, *, device: Any = None, **more: Any) -> Tensor:
            if isinstance(values, Tensor):
                return values.to(device or values.device, **more)
            return tensor(values, **more).to(device or "cpu")

        torch.tensor = torch.as_tensor = made
        Tensor.new_tensor = lambda this, values, **more: made(
            values, device=this.device, dtype=this.dtype, **more
        )
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        torch.tensor, torch.as_tensor, Tensor.new_tensor = self.before
        super().__exit__(*error)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(func, args, kwargs or {}, self)


def run(func: Any, args: Any, kwargs: dict[str, Any], watch: Elsewhere | None) -> Any:
    """Run an operation on the values inside, and wrap what belongs to the device."""
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    away = [tensor for tensor in tensors if isinstance(tensor, Away)]
    name = func._schema.name
    if any(tensor.device == DEVICE and not isinstance(tensor, Away) for tensor in tensors):
        raise RuntimeError(f"{name}: a tensor was made on the device unseen, so it has no values")
    to = kwargs.get("device")
    crosses = name in ("aten::copy_", "aten::_to_copy")
    may_stay = tree_leaves(args[1]) if name == "aten::index" else []  # rows to take may be named on the CPU
    strangers = [
        tensor
        for tensor in tensors
        if not isinstance(tensor, Away) and tensor.ndim > 0 and all(tensor is not other for other in may_stay)
    ]
    if away and strangers and not crosses:
        shapes = [list(tensor.shape) for tensor in strangers]
        raise RuntimeError(f"{name}: tensors on two devices, those of shapes {shapes} are on the CPU")
    leaves = bool(away) and (
        (to is not None and torch.device(to) != DEVICE)
        or (name == "aten::copy_" and not isinstance(args[0], Away))
        or name in WAITING
        or (name == "aten::index" and any(tensor.dtype == torch.bool for tensor in away[1:]))
    )
    if leaves and watch is not None:
        own = [line for line in traceback.extract_stack() if "/maskcon/" in line.filename]
        place = f"{own[-1].filename.rpartition('/maskcon/')[2]}:{own[-1].lineno}" if own else "?"
        watch.waits.append(f"{name} at {place}")
    stays = bool(away) if to is None else torch.device(to) == DEVICE
    if to is not None:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    inside = tree_map(lambda leaf: leaf.inner if isinstance(leaf, Away) else leaf, (args, kwargs))
    found = func(*inside[0], **inside[1])
    same = {id(tensor.inner): tensor for tensor in away}  # written in place: the tensor itself comes back

    def outside(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        if id(value) in same:
            return same[id(value)]
        return Away(value) if stays else value

    return tree_map(outside, found)


def processes(precision: str = "32-true", device: torch.device = DEVICE) -> Processes:
    """One process on the device, as Fabric gives it; in 16 bits without a scaler of the loss."""
    kind = {"32-true": None, "bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}[precision]

    def autocast() -> Any:
        return nullcontext() if kind is None else torch.autocast("cpu", kind)

    def setup(model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[Any, torch.optim.Optimizer]:
        """Move a model; the optimizer is given its new parameters."""
        before = list(model.parameters())
        model.to(device)
        now = dict(zip(map(id, before), model.parameters(), strict=True))
        for group in optimizer.param_groups:
            group["params"] = [now[id(parameter)] for parameter in group["params"]]
        optimizer.optimizer = optimizer  # type: ignore[attr-defined]

        def query(views: Tensor) -> Any:
            with autocast():
                found = model(views)
            return tree_map(lambda value: value.float() if isinstance(value, Tensor) else value, found)

        return query, optimizer

    precise = SimpleNamespace(unscale_gradients=lambda optimizer: None, state_dict=dict)
    fabric = SimpleNamespace(
        device=device,
        world_size=1,
        global_rank=0,
        setup=setup,
        backward=lambda loss: loss.backward(),
        autocast=autocast,
        strategy=SimpleNamespace(precision=precise),
    )
    return Processes(fabric)
