"""MaskCon (CVPR 2023) on one page, in plain PyTorch and the paper's symbols; `maskcon` only lends data and views.

Coarse labels y are known, fine ones are wanted. An image is seen twice: h_q is the projection of its query view,
h_k that of its key view, made by a slowly following copy of the encoder. Images of another coarse class are
negatives; those of the same class are positives, the more so the nearer they are to h_k.

    python examples/maskcon_one_file.py      # 30 epochs; --epochs 3 for a first look

The net and every setting are those of the package's preset `cpu`, and a test keeps them so: nothing here was chosen
by the recall it prints, which is of the test images.
Letters in shapes: B batch, K bank, D projection, F features, N images.
"""

from __future__ import annotations

import argparse
import copy
import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from maskcon import data, transforms


def conv(size: int, out: int, kernel: int, stride: int) -> list[nn.Module]:
    return [nn.Conv2d(size, out, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(out)]


class Block(nn.Module):
    def __init__(self, size: int, out: int, stride: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(*conv(size, out, 3, stride), nn.ReLU(), *conv(out, out, 3, 1))
        self.shortcut = nn.Sequential(*([] if size == out else conv(size, out, 1, stride)))

    def forward(self, maps: Tensor) -> Tensor:
        return F.relu(self.inner(maps) + self.shortcut(maps))


class Encoder(nn.Module):
    """Feature encoder f, a narrow ResNet-10, and projector h: images [B, 1, 32, 32] -> unit rows [B, D]."""

    def __init__(self, width: int, hidden: int, dim: int) -> None:
        super().__init__()
        blocks = [Block(width, width, 1), *(Block(width << i, width << i + 1, 2) for i in range(3))]
        layers = (*conv(1, width, 3, 2), nn.ReLU(), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.f = nn.Sequential(*layers)  # [B, F]
        self.h = nn.Sequential(nn.Linear(8 * width, hidden), nn.ReLU(), nn.Linear(hidden, dim))  # [B, D]

    def forward(self, images: Tensor) -> Tensor:
        return F.normalize(self.h(self.f(images)), dim=1)


class Bank:
    """The last `size` keys, first in, first out, each with its coarse label and the number of its image."""

    def __init__(self, size: int, dim: int) -> None:
        self.size = size
        self.h, self.y, self.i = torch.empty(0, dim), torch.empty(0).long(), torch.empty(0).long()

    def enqueue(self, h_k: Tensor, y: Tensor, i: Tensor) -> None:
        self.h = torch.cat([self.h, h_k])[-self.size :]  # [K, D]
        self.y = torch.cat([self.y, y])[-self.size :]  # [K]
        self.i = torch.cat([self.i, i])[-self.size :]  # [K]


@torch.no_grad()
def momentum_update(query: nn.Module, key: nn.Module, m: float) -> None:
    """key = m * key + (1 - m) * query, over the parameters; BatchNorm statistics stay the key's own."""
    for follower, leader in zip(key.parameters(), query.parameters(), strict=True):
        follower.lerp_(leader, 1 - m)


@torch.no_grad()
def masked_relation(h_k: Tensor, y: Tensor, i: Tensor, bank: Bank, tau: float) -> Tensor:
    """z^mask of eq. 11-14, each row divided by its sum: [B, 1+K], the own key in column 0. tau > 0, or inf."""
    mask = (y[:, None] == bank.y) & (i[:, None] != bank.i)  # [B, K]: same coarse class, another image
    d = (h_k @ bank.h.T).masked_fill(~mask, -torch.inf)  # [B, K] cosines; the key view asks
    z = ((d - d.amax(dim=1, keepdim=True)) / tau).exp()  # eq. 11 over its maximum, eq. 13: the nearest gets 1
    z = torch.where(mask, z, 0)  # also where a class is absent from the bank, and -inf - -inf was NaN
    z = torch.cat([torch.ones_like(z[:, :1]), z], dim=1)  # eq. 14: the own key gets 1
    return z / z.sum(dim=1, keepdim=True)


def contrastive_loss(h_q: Tensor, h_k: Tensor, bank: Bank, z: Tensor, tau_0: float) -> Tensor:
    """L_con of eq. 5 and 8, a number for each row: [B]."""
    d = torch.cat([(h_q * h_k).sum(dim=1, keepdim=True), h_q @ bank.h.T], dim=1)  # [B, 1+K]
    return -(z * F.log_softmax(d / tau_0, dim=1)).sum(dim=1)


@torch.no_grad()
def recall_at_1(features: Tensor, fine: Tensor) -> float:
    """Share of images [N, F] whose nearest other image has the same fine label [N]."""
    f = F.normalize(features, dim=1)
    similarity = (f @ f.T).fill_diagonal_(-torch.inf)  # [N, N]
    return float((fine[similarity.argmax(dim=1)] == fine).double().mean())


def ramp(step: int, steps: int) -> float:
    """0 before step 0, then a straight line up to 1, where it stays."""
    return min(1.0, max(0.0, step / steps)) if steps > 0 else float(step >= 0)


def rate_share(step: int, warmup: int, total: int) -> float:
    """Share of the learning rate: up from 0, then half a cosine down to 0 at the end."""
    return ramp(step, warmup) * (1 + math.cos(math.pi * ramp(step - warmup, total - warmup))) / 2


def train(
    data: data.Dataset, epochs: int = 30, *, w: float = 1.0, tau: float = 0.05, tau_0: float = 0.1,
    m: float = 0.99, bank_size: int = 2048, batch: int = 128, rate: float = 0.2, rate_warmup: int = 1,
    w_warmup: int = 4, decay: float = 5e-4, width: int = 16, hidden: int = 256, dim: int = 64,
) -> Iterator[tuple[float, float]]:  # fmt: skip
    """Yields the mean loss of each epoch and recall@1 on the test images after it. Warm-ups are in epochs."""
    images, y, i = (torch.from_numpy(a) for a in (data.train.images, data.train.coarse, data.train.index))
    mean, std = (images / 255).mean(), (images / 255).std()
    weak, strong = transforms.pair("embedded")
    query, bank = Encoder(width, hidden, dim), Bank(bank_size, dim)
    key = copy.deepcopy(query).requires_grad_(False)
    optimizer = torch.optim.SGD(query.parameters(), rate, momentum=0.9, weight_decay=decay)

    def view(policy: transforms.Policy, rows: Tensor) -> Tensor:
        return (policy(images[rows], torch.rand(len(rows), policy.draws), size=32) - mean) / std

    for rows in torch.split(torch.randperm(len(images))[:bank_size], batch):  # step 1 needs keys to look at
        bank.enqueue(key(view(weak, rows)), y[rows], i[rows])
    each = math.ceil(len(images) / batch)  # steps per epoch
    for epoch in range(epochs):
        losses: list[float] = []
        for step, rows in enumerate(torch.split(torch.randperm(len(images)), batch), start=epoch * each):
            optimizer.param_groups[0]["lr"] = rate * rate_share(step, rate_warmup * each, epochs * each)
            momentum_update(query, key, m)
            h_q, h_k = query(view(strong, rows)), key(view(weak, rows))  # [B, D] each
            now = w * ramp(step, w_warmup * each)  # w grows from 0: from random weights, w = 1 can collapse
            z = now * masked_relation(h_k, y[rows], i[rows], bank, tau)  # [B, 1+K]
            z[:, 0] += 1 - now  # w L_maskcon + (1-w) L_selfcon, eq. 15: the loss is linear in z
            loss = contrastive_loss(h_q, h_k, bank, z, tau_0).mean()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            bank.enqueue(h_k, y[rows], i[rows])
            losses.append(loss.item())
        test = transforms.test_view(torch.from_numpy(data.test.images), size=32)  # [N, 1, 32, 32]
        with torch.no_grad():
            features = query.eval().f((test - mean) / std)  # [N, F], before the projector
        query.train()
        yield sum(losses) / len(losses), recall_at_1(features, torch.from_numpy(data.test.finest))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="MaskCon on the embedded images")
    parser.add_argument("--epochs", type=int, default=30)
    torch.manual_seed(0)
    history = train(data.load("embedded"), parser.parse_args().epochs)
    for number, (loss, recall) in enumerate(history, start=1):
        print(f"epoch {number}: loss {loss:.3f}, recall@1 {100 * recall:.2f} %")
