"""Muon: momentum SGD that makes the updates of weight matrices orthogonal.

The momentum of a layer is mostly a few strong directions. Made orthogonal, all its singular values become about 1, and
the weak directions learn as fast as the strong ones. A convolution's filters count as a matrix [out, in * kernel].
Parameters without such a matrix (scales, shifts, biases) and output layers get plain Nesterov momentum.

    M = momentum * M + gradient;   U = gradient + momentum * M                        (Nesterov)
    W = (1 - rate * weight_decay) * W - rate * sqrt(max(1, out / in)) * orthogonal(U)

Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

# A step of the iteration maps a singular value s to A s + B s^3 + C s^5; five steps bring all but tiny values between
# about 0.7 and 1.2. Published with the method.
A, B, C = 3.4445, -4.7750, 2.0315
ITERATIONS = 5
SMALLEST_NORM = 1e-20  # a matrix of a smaller norm counts as zero and stays so


class Muon(Optimizer):
    """See the module; `matrices` are made orthogonal, `others` get Nesterov momentum.

    Args:
        matrices: parameters of two or more axes; all axes but the first are taken as one.
        others: every other parameter.
        lr: rate of both.
        momentum: of both, 0..1.
        weight_decay: of the matrices, decoupled from the gradient; of the others, added to it as SGD does.

    >>> weight = torch.nn.Parameter(torch.zeros(2, 2))
    >>> weight.grad = torch.tensor([[3.0, 0.0], [0.0, 0.1]])  # the second direction is weak ...
    >>> Muon([weight], [], lr=1.0, momentum=0.0).step()
    >>> bool(weight[1, 1] < -0.5)  # ... and moves as the first
    True
    """

    def __init__(
        self,
        matrices: Iterable[Tensor],
        others: Iterable[Tensor],
        *,
        lr: float,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
    ) -> None:
        matrices, others = list(matrices), list(others)
        flat = [tuple(parameter.shape) for parameter in matrices if parameter.ndim < 2]
        if flat:
            raise ValueError(f"matrices need two or more axes, got {flat[0]}; give such parameters as others")
        groups = [{"params": matrices, "orthogonal": True}, {"params": others, "orthogonal": False}]
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}
        super().__init__([group for group in groups if group["params"]], defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the parameters that have gradients."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if parameters:
                gradients = [parameter.grad for parameter in parameters]
                step = self._step_orthogonal if group["orthogonal"] else self._step_plain
                step(parameters, gradients, group)
        return loss

    def _step_orthogonal(
        self, parameters: list[Tensor], gradients: list[Tensor], group: dict[str, Any]
    ) -> None:
        updates = self._nesterov(gradients, parameters, group)
        torch._foreach_mul_(parameters, 1.0 - group["lr"] * group["weight_decay"])
        by_shape: dict[tuple[int, ...], list[int]] = defaultdict(list)  # one product for layers of one shape
        for number, parameter in enumerate(parameters):
            by_shape[tuple(parameter.shape)].append(number)
        for shape, numbers in by_shape.items():
            stacked = torch.stack([updates[number].flatten(1) for number in numbers])  # [n, out, in]
            rows, columns = stacked.shape[1:]
            scale = group["lr"] * max(1.0, rows / columns) ** 0.5
            for number, update in zip(numbers, orthogonal(stacked), strict=True):
                parameters[number].sub_(update.view(shape), alpha=scale)

    def _step_plain(self, parameters: list[Tensor], gradients: list[Tensor], group: dict[str, Any]) -> None:
        if group["weight_decay"]:
            gradients = list(torch._foreach_add(gradients, parameters, alpha=group["weight_decay"]))
        updates = self._nesterov(gradients, parameters, group)
        torch._foreach_add_(parameters, updates, alpha=-group["lr"])

    def _nesterov(
        self, gradients: list[Tensor], parameters: list[Tensor], group: dict[str, Any]
    ) -> list[Tensor]:
        for parameter in parameters:
            if "momentum_buffer" not in self.state[parameter]:
                self.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        buffers = [self.state[parameter]["momentum_buffer"] for parameter in parameters]
        torch._foreach_mul_(buffers, group["momentum"])
        torch._foreach_add_(buffers, gradients)
        return list(torch._foreach_add(gradients, buffers, alpha=group["momentum"]))


def orthogonal(matrices: Tensor) -> Tensor:
    """Bring the singular values of matrices ``[n, rows, columns]`` near 1.

    Singular directions stay.

    The iteration X <- (A + B X X' + C (X X')^2) X is a polynomial of the gram matrix X X' times X, so it runs on the
    small square gram alone, and the long matrix is multiplied once. In float32 also under autocast: the gram squares
    what is small.

    >>> torch.linalg.svdvals(orthogonal(torch.diag(torch.tensor([5.0, 0.5, 0.05])).unsqueeze(0))).round(decimals=1)
    tensor([[0.7000, 0.7000, 0.7000]])
    """
    tall = matrices.shape[1] > matrices.shape[2]
    with torch.autocast(matrices.device.type, enabled=False):
        wide = (matrices.mT if tall else matrices).float()  # [n, m, k], m <= k
        norms = torch.linalg.vector_norm(wide, dim=(1, 2), keepdim=True)
        wide = wide / norms.clamp_min(SMALLEST_NORM)  # all singular values at most 1
        gram = wide @ wide.mT  # [n, m, m]
        total: Tensor | None = None  # product of the steps' polynomials
        for iteration in range(ITERATIONS):
            # A + B G + C G^2; all of these are polynomials of one gram, so they commute
            polynomial = torch.baddbmm(gram, gram, gram, beta=B, alpha=C)
            polynomial.diagonal(dim1=1, dim2=2).add_(A)
            total = polynomial if total is None else total @ polynomial
            if iteration + 1 < ITERATIONS:
                gram = polynomial @ (polynomial @ gram)
        assert total is not None
        result = (total @ wide).to(matrices.dtype)
    transposed: Tensor = result.mT
    return transposed if tall else result
