"""Half of the queries are seen in the key's view where HOG features find the neighbours."""

from __future__ import annotations

import pytest
import torch

from maskcon.config.resolution import resolve
from maskcon.retrieval.encode import Feed
from maskcon.training import step
from maskcon.training.schedule import uniforms


class Marked:
    """A view that leaves its mark, and the first number it draws for each image."""

    draws = 2

    def __init__(self, mark: float) -> None:
        self.mark = mark

    def __call__(self, images, uniforms, *, size, sizes=None):
        assert sizes is None or len(sizes) == len(images)
        marks = torch.full_like(uniforms[:, :1], self.mark)
        plain = images.float().flatten(1)[:, :1]
        return torch.cat([plain, marks, uniforms[:, :1]], dim=1)[:, :, None, None].expand(-1, -1, 4, 4)


def data_of(count: int, sizes: bool = False) -> step.TrainingData:
    images = torch.arange(count, dtype=torch.uint8).view(count, 1, 1, 1).expand(count, 1, 4, 4).numpy()
    valid = torch.full((count, 2), 4, dtype=torch.int32).numpy() if sizes else None
    numbers = torch.arange(count)
    return step.TrainingData(
        feed=Feed(images, valid, torch.device("cpu")),
        labels=numbers % 2,
        index=numbers,
        query_view=Marked(1.0),
        key_view=Marked(0.0),
        normalise=lambda views: views,
        image_size=4,
    )


def config_of(**settings):
    return resolve("embedded", method="maskcon", preset="cpu", overrides=settings).config


PLACE = step.Place(epoch=3, step=7, w=1.0, learning_rate=0.1)


@pytest.mark.parametrize("sizes", [False, True])
@pytest.mark.parametrize("space", ["projection", "hog"])
@pytest.mark.parametrize("part", [slice(None), slice(3, 11), torch.tensor([5, 0, 9, 9])])
def test_views_equal_those_made_one_by_one(space, part, sizes):
    """Whatever part of the batch a process makes: an image, its view and its draws go by its place in the whole."""
    data, config = data_of(40, sizes), config_of(relation_space=space, seed=5)
    rows = torch.randperm(40, generator=torch.Generator().manual_seed(0))[:21]
    made = step.make_views(data, config, PLACE, rows, "query", part)[:, :, 0, 0]
    tables = {
        1.0: uniforms(21, 2, 5, "query", 3, 7),
        0.0: uniforms(21, 2, 5, step.WEAK_QUERY, 3, 7),
    }
    places = list(range(21))[part] if isinstance(part, slice) else part.tolist()
    for (image, mark, draw), place in zip(made.tolist(), places, strict=True):
        weak = space == "hog" and place % 2 == 1
        assert image == rows[place]
        assert mark == (0.0 if weak else 1.0)
        assert draw == tables[mark][place, 0]


def test_keys_and_their_draws_are_what_they_were():
    data, rows = data_of(40), torch.arange(40)
    plain, mixed = (
        step.make_views(data, config_of(relation_space=space), PLACE, rows, "key", slice(None))
        for space in ("projection", "hog")
    )
    assert torch.equal(plain, mixed)
    queries = step.make_views(data, config_of(relation_space="hog"), PLACE, rows, "query", slice(None))
    weak = queries[:, 1, 0, 0] == 0
    assert weak.sum() == 20
    assert (queries[weak, 2] != plain[weak, 2]).all()  # a query is not its key's twin


def test_a_batch_is_read_once_for_views_of_both_kinds(monkeypatch):
    data, rows = data_of(40), torch.arange(40)
    asked: list[list[int]] = []
    plain = Feed.take

    def take(self, of):
        asked.append(of.tolist())
        return plain(self, of)

    monkeypatch.setattr(Feed, "take", take)
    step.make_views(data, config_of(relation_space="hog"), PLACE, rows, "query", slice(8, 16))
    assert asked == [list(range(8, 16))]  # the very batch that `loop` had read ahead
