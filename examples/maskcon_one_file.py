"""MaskCon (CVPR 2023) on one page, in plain PyTorch and the paper's symbols; `maskcon` only lends data and views.

Coarse labels y are known, fine ones are wanted. An image is seen twice: h_q is the projection of its query view,
h_k that of its key view, made by a slowly following copy of the encoder. Images of another coarse class are
negatives; those of the same class are positives, the more so the nearer they are to h_k.

    python examples/maskcon_one_file.py --epochs 3

Letters in shapes: B batch, K bank, D projection, F features, N images.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from maskcon import sources, views


class Encoder(nn.Module):
    """Feature encoder f and projector h: images [B, 1, 32, 32] -> unit rows [B, D]."""

    def __init__(self, width: int = 32, dim: int = 64) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        size = 1
        for out, stride in ((width, 2), (2 * width, 1), (2 * width, 2), (4 * width, 1), (4 * width, 2)):
            layers += [nn.Conv2d(size, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU()]
            size = out
        self.f = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())  # [B, F]
        self.h = nn.Sequential(nn.Linear(size, 256), nn.ReLU(), nn.Linear(256, dim))  # [B, D]

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


def train(
    data: sources.Dataset, epochs: int, *, w: float = 1.0, tau: float = 0.05, tau_0: float = 0.1,
    m: float = 0.99, bank_size: int = 2048, batch: int = 128, rate: float = 0.06, width: int = 32, dim: int = 64,
) -> Iterator[tuple[float, float]]:  # fmt: skip
    """Yields the mean loss of each epoch and recall@1 on the test images after it."""
    images, y, i = (torch.from_numpy(a) for a in (data.train.images, data.train.coarse, data.train.index))
    weak, strong = views.pair("embedded")
    query = Encoder(width, dim)
    key = copy.deepcopy(query).requires_grad_(False)
    bank = Bank(bank_size, dim)
    optimizer = torch.optim.SGD(query.parameters(), rate, momentum=0.9, weight_decay=5e-4)

    def view(policy: views.Policy, rows: Tensor) -> Tensor:
        return policy(images[rows], torch.rand(len(rows), policy.draws), size=32) - 0.5  # [B, 1, 32, 32]

    # The first step needs a bank to look at.
    for rows in torch.split(torch.randperm(len(images))[:bank_size], batch):
        bank.enqueue(key(view(weak, rows)), y[rows], i[rows])
    steps = epochs * (len(images) // batch)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for epoch in range(epochs):
        losses: list[float] = []
        for rows in torch.split(torch.randperm(len(images)), batch)[: len(images) // batch]:
            momentum_update(query, key, m)
            h_q, h_k = query(view(strong, rows)), key(view(weak, rows))  # [B, D] each
            now = w * min(1.0, (epoch * (steps // epochs) + len(losses)) / (0.2 * steps))  # w grows from 0
            z = now * masked_relation(h_k, y[rows], i[rows], bank, tau)  # [B, 1+K]
            z[:, 0] += 1 - now  # w L_maskcon + (1-w) L_selfcon, eq. 15: the loss is linear in z
            loss = contrastive_loss(h_q, h_k, bank, z, tau_0).mean()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
            bank.enqueue(h_k, y[rows], i[rows])
            losses.append(loss.item())
        query.eval()
        with torch.no_grad():  # features before the projector
            seen = query.f(views.test_view(torch.from_numpy(data.test.images), size=32) - 0.5)  # [N, F]
        query.train()
        yield sum(losses) / len(losses), recall_at_1(seen, torch.from_numpy(data.test.finest))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="MaskCon on the embedded pictures")
    parser.add_argument("--epochs", type=int, default=3)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    for number, (loss, recall) in enumerate(train(sources.load("embedded"), arguments.epochs), start=1):
        print(f"epoch {number}: loss {loss:.3f}, recall@1 {100 * recall:.2f} %")
