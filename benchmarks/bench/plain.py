"""A MoCo-style MaskCon step in plain PyTorch, written from the paper: the baseline of `step_vs_plain`.

The same net in NCHW, eager, `torch.optim.SGD` with its defaults, a loop over parameters for the momentum encoder, every
[B, 1+K] matrix in full. Views come from the package's batched tensor code, which favours this baseline.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from maskcon import transforms
from maskcon.models import Model
from maskcon.training.state import MOMENTUM

from .subjects import LEARNING_RATE, Subject


def plain_relation(
    keys: Tensor, bank: Tensor, labels: Tensor, bank_labels: Tensor, other: Tensor, *, w: float, tau: float
) -> Tensor:
    """Eq. 11 and 15 as full matrices: [B, 1+K]. other [B, K]: entries that are not the sample itself."""
    mask = (labels[:, None] == bank_labels[None, :]).float() * other.float()
    similarity = keys @ bank.T
    nearest = (similarity - 1e4 * (1 - mask)).max(dim=1, keepdim=True).values
    soft = torch.exp((similarity - nearest).clamp(max=0) / tau) * mask
    soft = torch.cat([torch.ones(len(keys), 1), soft], dim=1)
    soft = soft / soft.sum(dim=1, keepdim=True)
    alone = torch.zeros_like(soft)
    alone[:, 0] = 1
    return w * soft + (1 - w) * alone


def plain_loss(queries: Tensor, keys: Tensor, bank: Tensor, relation: Tensor, temperature: float) -> Tensor:
    """Eq. 5 with all logits in memory."""
    own = (queries * keys).sum(dim=1, keepdim=True)
    logits = torch.cat([own, queries @ bank.T], dim=1) / temperature  # [B, 1+K]
    return -(relation * torch.log_softmax(logits, dim=1)).sum(dim=1).mean()


def _nchw(model: Model) -> Model:
    """Copy a model into the default memory format, in training mode."""
    return copy.deepcopy(model).to(memory_format=torch.contiguous_format).train()  # type: ignore[call-overload, no-any-return]


@dataclass
class PlainStep:
    """The state of a plain run, and its step."""

    query: Model
    key: Model
    optimizer: torch.optim.Optimizer
    bank: Tensor  # [K, D]
    bank_labels: Tensor
    bank_index: Tensor
    w: float
    tau: float
    temperature: float
    key_momentum: float
    pointer: int = 0

    @classmethod
    def like(cls, subject: Subject) -> PlainStep:
        """Copy the weights, the bank and the settings of a subject."""
        config, learner = subject.config, subject.learner
        assert learner.pair is not None
        assert learner.bank is not None
        query, key = _nchw(learner.model), _nchw(learner.pair.key)
        optimizer = torch.optim.SGD(
            query.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM, weight_decay=config.weight_decay
        )
        return cls(
            query=query,
            key=key,
            optimizer=optimizer,
            bank=learner.bank.keys.clone(),
            bank_labels=learner.bank.coarse.clone(),
            bank_index=learner.bank.index.clone(),
            w=config.w,
            tau=config.tau,
            temperature=config.contrast_temperature,
            key_momentum=config.key_momentum,
        )

    def step(self, query_views: Tensor, key_views: Tensor, labels: Tensor, index: Tensor) -> float:
        """Train on one batch of ready views [B, C, S, S]; return the loss."""
        with torch.no_grad():
            for slow, fast in zip(self.key.parameters(), self.query.parameters(), strict=True):
                slow.mul_(self.key_momentum).add_(fast, alpha=1 - self.key_momentum)
        queries = self.query(query_views).projection
        with torch.no_grad():
            keys = self.key(key_views).projection
            other = index[:, None] != self.bank_index[None, :]
            relation = plain_relation(
                keys, self.bank, labels, self.bank_labels, other, w=self.w, tau=self.tau
            )
        loss = plain_loss(queries, keys, self.bank, relation, self.temperature)
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self._enqueue(keys, labels, index)
        return loss.item()

    def _enqueue(self, keys: Tensor, labels: Tensor, index: Tensor) -> None:
        places = (torch.arange(len(keys)) + self.pointer) % len(self.bank)
        self.bank[places] = keys
        self.bank_labels[places] = labels
        self.bank_index[places] = index
        self.pointer = (self.pointer + len(keys)) % len(self.bank)


@dataclass(frozen=True)
class PlainViews:
    """Makes both views of one batch, NCHW, with the package's policies."""

    query: str  # names of policies
    key: str
    images: Tensor  # uint8 [B, C, H, W]
    size: int
    normalise: Callable[[Tensor], Tensor]

    @classmethod
    def like(cls, subject: Subject) -> PlainViews:
        config, data = subject.config, subject.data
        return cls(
            str(config.query_view), str(config.key_view), subject.images, data.image_size, data.normalise
        )

    def __call__(self) -> tuple[Tensor, Tensor]:
        return self._view(self.query), self._view(self.key)

    def _view(self, name: str) -> Tensor:
        policy = transforms.policy(name)
        uniforms = torch.rand(len(self.images), policy.draws)
        return self.normalise(policy(self.images, uniforms, size=self.size))


@dataclass(frozen=True)
class ReadyPair:
    """Returns the same views for both."""

    views: Tensor

    def __call__(self) -> tuple[Tensor, Tensor]:
        return self.views, self.views


@dataclass(frozen=True)
class PlainTurn:
    """Views and a step, in a form that can be pickled."""

    run: PlainStep
    make_views: Callable[[], tuple[Tensor, Tensor]]
    labels: Tensor
    index: Tensor

    def __call__(self) -> float:
        return self.run.step(*self.make_views(), self.labels, self.index)
