from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import maskcon
from maskcon._utils.errors import TrainingError
from maskcon.config.settings import Machine
from maskcon.retrieval.encode import Feed, embed, raw_pixels
from maskcon.training import loop
from tests.miniature import TINY, miniature


class Watched(nn.Module):
    """Sums over each image's channels; notes the batches it gets and whether it was training."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.5)
        self.batches: list[int] = []

    def forward(self, images: Tensor) -> Tensor:
        self.batches.append(len(images))
        return self.dropout(images.mean(dim=(2, 3)))


def feed(count: int, side: int) -> Feed:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (count, 3, side, side), generator=generator, dtype=torch.uint8)
    return Feed(images.numpy(), None, torch.device("cpu"))


def features_of(backbone: nn.Module, images: Feed, rows: Tensor, size: int, **options) -> Tensor | None:
    return embed(
        backbone, images, rows, size=size, resize="shorter", normalise=lambda view: 2 * view - 1, **options
    )


@pytest.mark.parametrize("training", [True, False])
def test_features_are_of_evaluation_mode_in_the_asked_order_and_the_mode_comes_back(training):
    backbone, images, rows = Watched().train(training), feed(7, 8), torch.tensor([5, 0, 6])
    found = features_of(backbone, images, rows, 8)
    assert backbone.training is training
    assert backbone.dropout.training is training
    expected = 2 * images.take(rows)[0].float().mean(dim=(2, 3)) / 255 - 1
    torch.testing.assert_close(found, expected)


def test_batches_of_large_images_are_smaller():
    small, large = Watched(), Watched()
    features_of(small, feed(1200, 4), torch.arange(1200), 32)
    features_of(large, feed(100, 4), torch.arange(100), 224)
    assert small.batches == [500, 500, 200]
    assert max(large.batches) * 224**2 <= 500 * 72**2
    assert sum(large.batches) == 100


def test_a_stop_half_way_gives_none_and_the_mode_comes_back():
    backbone = Watched().train()
    answers = iter([False, True])
    assert (
        features_of(backbone, feed(1200, 4), torch.arange(1200), 4, should_stop=lambda: next(answers)) is None
    )
    assert backbone.batches == [500]
    assert backbone.training


def test_progress_is_reported_after_each_batch():
    told = []
    features_of(
        Watched(),
        feed(1200, 4),
        torch.arange(1200),
        4,
        progress=lambda done, total: told.append((done, total)),
    )
    assert told == [(500, 1200), (1000, 1200), (1200, 1200)]


def test_no_rows_give_no_features():
    assert features_of(Watched(), feed(3, 4), torch.arange(0), 4).shape == (0, 3)


def test_raw_pixels_are_the_levels_of_the_images():
    images, rows = feed(6, 8), torch.tensor([4, 1])
    expected = images.take(rows)[0].flatten(1) / 255
    torch.testing.assert_close(raw_pixels(images, rows, size=8, resize="both"), expected)


def test_an_encoder_that_the_last_update_broke_is_a_clear_error(tmp_path, monkeypatch):
    """One step, finite gradient, a learning rate that no weight survives: only the evaluation can notice."""
    monkeypatch.setattr(loop, "learning_rate", lambda *_, **__: 1e38)
    settings = {**TINY, "epochs": 1, "batch_size": 72, "bank_size": 72, "warmup_epochs": 0}
    with pytest.raises(TrainingError, match=r"features became NaN or Inf\. .* lower --set learning_rate"):
        maskcon.fit(miniature(), settings=settings, out=tmp_path / "run", machine=Machine(device="cpu"))
