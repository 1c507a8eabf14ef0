from __future__ import annotations

import builtins
import random

import numpy as np
import pytest

from maskcon._utils.errors import CorruptFileError, MaskconError, UsageError
from maskcon.retrieval import faiss_index
from maskcon.retrieval.index import Index, has_graph, index_store
from maskcon.retrieval.nearest import nearest, unit_rows
from maskcon.retrieval.store import Entry, Header
from tests.retrieval.images_to_search import ENCODER


def filled(folder, count=3000, dimension=24, seed=0):
    """A store of clustered vectors, some of them equal."""
    chance = np.random.default_rng(seed)
    centres = chance.standard_normal((40, dimension))
    vectors = unit_rows(
        centres[chance.integers(0, 40, count)] + 0.4 * chance.standard_normal((count, dimension))
    )
    digests = [f"{row:064x}" for row in range(count)]
    folder.mkdir(exist_ok=True)
    store = index_store(folder, Header(ENCODER, "x"))
    store.stage(digests, vectors)
    store.commit([Entry(f"{row:06d}", 1, 1, digest) for row, digest in enumerate(digests)])
    index = Index(folder)
    return index, index.vectors


def mutations(data: bytes, count: int):
    """Flipped bits, cuts, additions, swapped and zeroed pieces, at any place."""
    chance = random.Random(0)
    for number in range(count):
        place = chance.randrange(len(data))
        match number % 5:
            case 0:
                changed = bytearray(data)
                changed[place] ^= 1 << chance.randrange(8)
                yield bytes(changed)
            case 1:
                yield data[:place]
            case 2:
                yield data + chance.randbytes(1 + chance.randrange(50))
            case 3:
                length = 1 + chance.randrange(40)
                yield data[:place] + data[place + length :]
            case 4:
                other = data[:place] + chance.randbytes(16) + data[place + 16 :]
                yield other


@pytest.fixture
def _faiss():
    pytest.importorskip("faiss", reason="the extra `faiss` is not installed")


@pytest.mark.usefixtures("_faiss")
def test_the_graph_states_its_recall_and_keeps_it_on_new_queries(tmp_path):
    store, vectors = filled(tmp_path)
    told = store.make_graph()
    assert told == store.make_graph()  # not built twice
    assert float(told.split()[2]) >= 0.99
    store.use_graph()
    chance = np.random.default_rng(9)
    queries = unit_rows(vectors[:200] + 0.1 * chance.standard_normal((200, vectors.shape[1])))
    found = store.search(queries, 10)
    assert found.how == told
    _, truth = nearest(vectors, queries, 10)
    assert (found.scores >= truth[:, -1:] - 1e-9).mean() >= 0.99
    rows = np.array([[int(entry.path) for entry in entries] for entries in found.entries])
    np.testing.assert_allclose(found.scores, np.einsum("qkd,qd->qk", vectors[rows], queries), atol=1e-6)


@pytest.mark.usefixtures("_faiss")
def test_more_than_the_graph_finds_is_searched_exactly(tmp_path):
    store, vectors = filled(tmp_path, count=50)
    store.make_graph()
    store.use_graph()
    found = store.search(vectors[:2], 100)
    positions, scores = nearest(vectors, vectors[:2], 50)
    assert [[int(e.path) for e in row] for row in found.entries] == positions.tolist()
    assert (found.scores == scores).all()


@pytest.mark.usefixtures("_faiss")
def test_damaged_foreign_and_stale_graphs_are_refused(tmp_path):
    store, _ = filled(tmp_path / "one", count=100)
    store.make_graph()
    path = tmp_path / "one" / faiss_index.GRAPH
    data = path.read_bytes()
    for changed in mutations(data, 60):
        if changed != data:
            path.write_bytes(changed)
            with pytest.raises(CorruptFileError):
                store.use_graph()
    other, _ = filled(tmp_path / "other", count=100, seed=1)
    (tmp_path / "other" / faiss_index.GRAPH).write_bytes(data)
    with pytest.raises(UsageError, match="another state of the index"):
        other.use_graph()
    (tmp_path / "other" / faiss_index.GRAPH).unlink()
    with pytest.raises(UsageError, match="there is no HNSW graph"):
        other.use_graph()


@pytest.mark.usefixtures("_faiss")
def test_too_low_a_recall_is_an_error_and_leaves_no_graph(tmp_path, monkeypatch):
    store, _ = filled(tmp_path, count=300)
    monkeypatch.setattr(faiss_index, "WANTED_RECALL", 1.1)
    with pytest.raises(MaskconError, match="search stays exact"):
        store.make_graph()
    assert not has_graph(tmp_path)


@pytest.mark.usefixtures("_faiss")
def test_the_graph_before_stays_until_there_is_a_new_one_and_goes_if_there_is_none(tmp_path, monkeypatch):
    store, _ = filled(tmp_path, count=100)
    store.make_graph()
    changed, _ = filled(tmp_path, count=120)

    def interrupted(_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(faiss_index, "_sample_queries", interrupted)
        with pytest.raises(KeyboardInterrupt):
            changed.make_graph()
    assert has_graph(tmp_path)  # so that the next refresh knows that one is wanted
    monkeypatch.setattr(faiss_index, "WANTED_RECALL", 1.1)
    with pytest.raises(MaskconError, match="search stays exact"):
        changed.make_graph()
    assert not has_graph(tmp_path)


@pytest.mark.usefixtures("_faiss")
def test_building_the_graph_tells_how_far_it_is(tmp_path, monkeypatch):
    store, _ = filled(tmp_path, count=100)
    monkeypatch.setattr(faiss_index, "BUILD_ROWS", 40)
    told: list[tuple[int, int]] = []
    store.make_graph(lambda *values: told.append(values))
    assert told == [(40, 100), (80, 100), (100, 100)]


@pytest.mark.usefixtures("_faiss")
def test_queries_that_do_not_fit_are_refused_before_faiss_sees_them(tmp_path):
    store, vectors = filled(tmp_path, count=50)
    store.make_graph()
    store.use_graph()
    with pytest.raises(UsageError, match="k must be at least 1, got 0"):
        store.search(vectors[:1], 0)
    with pytest.raises(UsageError, match=r"queries must be \[Q, 24\]"):
        store.search(vectors[:1, :5], 3)


def test_without_faiss_the_extra_is_named_and_a_graph_that_is_there_stays(tmp_path, monkeypatch):
    store, _ = filled(tmp_path, count=20)
    genuine = builtins.__import__

    def without(name, *rest, **named):
        if name == "faiss":
            raise ImportError(name)
        return genuine(name, *rest, **named)

    if faiss_index.is_available():
        store.make_graph()
    had = has_graph(tmp_path)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UsageError, match=r"pip install 'maskcon\[faiss\]'"):
        store.make_graph()
    assert has_graph(tmp_path) == had  # for whoever has faiss again
