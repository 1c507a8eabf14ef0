"""A MoCo-style step of MaskCon in plain PyTorch, as one would write it down from the paper: the baseline of a row.

NCHW, eager, `torch.optim.SGD` as it comes, a loop over parameters for the key net, every [B, 1+K] matrix written out.
The net has the shape and the parameter names of ours, but is written here with torch's own
layers, so that nothing that speeds up ours reaches it. Its views are made by the package's batched tensor code, which
favours it: one would take PIL, an image at a time.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from maskcon import transforms
from maskcon.bench.subjects import LEARNING_RATE, Subject
from maskcon.models import resnet


class PlainBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut."""

    def __init__(self, in_channels: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.downsample: nn.Sequential | None = None
        if stride != 1 or in_channels != channels:
            self.downsample = nn.Sequential(
                nn.Conv2d(in_channels, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, maps: Tensor) -> Tensor:
        shortcut = maps if self.downsample is None else self.downsample(maps)
        inner = functional.relu(self.bn1(self.conv1(maps)))
        return functional.relu(self.bn2(self.conv2(inner)) + shortcut)


class PlainResNet(nn.Module):
    """A ResNet of basic blocks with a 3x3 first layer: images [B, C, H, W] -> features [B, F]."""

    def __init__(self, blocks: Sequence[int], in_channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.stages = [f"layer{number + 1}" for number in range(len(blocks))]
        channels = width
        for number, (stage, count) in enumerate(zip(self.stages, blocks, strict=True)):
            layers = []
            for position in range(count):
                layers.append(PlainBlock(channels, width * 2**number, 2 if number and not position else 1))
                channels = width * 2**number
            self.add_module(stage, nn.Sequential(*layers))
        self.features = channels

    def forward(self, images: Tensor) -> Tensor:
        maps = functional.relu(self.bn1(self.conv1(images)))
        for stage in self.stages:
            maps = self.get_submodule(stage)(maps)
        return maps.mean(dim=(2, 3))


class PlainProjector(nn.Module):
    """Two linear layers, then unit length."""

    def __init__(self, features: int, hidden: int, out: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, out))

    def forward(self, features: Tensor) -> Tensor:
        return functional.normalize(self.layers(features), dim=1)


class PlainModel(nn.Module):
    """Images to projections [B, D]."""

    def __init__(self, backbone: PlainResNet, hidden: int, out: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.projector = PlainProjector(backbone.features, hidden, out)

    def forward(self, images: Tensor) -> Tensor:
        projection: Tensor = self.projector(self.backbone(images))
        return projection


def plain_relation(
    keys: Tensor, bank: Tensor, labels: Tensor, bank_labels: Tensor, other: Tensor, *, w: float, tau: float
) -> Tensor:
    """Eq. 11 and 15, matrix by matrix: [B, 1+K]. other [B, K]: entries that are not the sample itself."""
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
    """Eq. 5 with its logits written out."""
    own = (queries * keys).sum(dim=1, keepdim=True)
    logits = torch.cat([own, queries @ bank.T], dim=1) / temperature  # [B, 1+K]
    return -(relation * torch.log_softmax(logits, dim=1)).sum(dim=1).mean()


@dataclass
class PlainStep:
    """The state of a plain run, and its step."""

    query: PlainModel
    key: PlainModel
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
        """With the weights, the bank and the settings of one of ours."""
        config, learner = subject.config, subject.learner
        stride = {"small": 1, "auto": 1, "stride2": 2}[config.stem]
        blocks = resnet.ARCHITECTURES[config.backbone].blocks
        backbone = PlainResNet(blocks, subject.images.shape[1], config.width, stride)
        query = PlainModel(backbone, config.projector_hidden, config.projection_dim)
        query.load_state_dict(learner.model.state_dict())
        query = query.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        key = copy.deepcopy(query)
        assert learner.pair is not None
        assert learner.bank is not None
        key.load_state_dict(learner.pair.key.state_dict())
        optimizer = torch.optim.SGD(
            query.parameters(), lr=LEARNING_RATE, momentum=config.momentum, weight_decay=config.weight_decay
        )
        return cls(
            query=query.train(),
            key=key.train(),
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
        """Learn from one batch of ready views [B, C, S, S]."""
        with torch.no_grad():
            for slow, fast in zip(self.key.parameters(), self.query.parameters(), strict=True):
                slow.mul_(self.key_momentum).add_(fast, alpha=1 - self.key_momentum)
        queries = self.query(query_views)
        with torch.no_grad():
            keys = self.key(key_views)
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
    """Makes both views of one batch, NCHW, by the package's policies on tensors."""

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
    """Hands out the same views for both."""

    views: Tensor

    def __call__(self) -> tuple[Tensor, Tensor]:
        return self.views, self.views


@dataclass(frozen=True)
class PlainTurn:
    """Views and a step: what a plain run does again and again, in a form that can be sent to another process."""

    run: PlainStep
    make_views: Callable[[], tuple[Tensor, Tensor]]
    labels: Tensor
    index: Tensor

    def __call__(self) -> float:
        return self.run.step(*self.make_views(), self.labels, self.index)
