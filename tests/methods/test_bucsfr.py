from __future__ import annotations

import math

import pytest
import torch

from maskcon.methods import bucsfr
from maskcon.methods.bucsfr import ClusterDraws, Clusters, coding_length, k_means, merge
from maskcon.methods.losses import relation_loss
from maskcon.methods.registry import RelationInputs, method_named
from maskcon.methods.relations import self_relation
from maskcon.training import loop
from tests.miniature import miniature
from tests.training.runs import ends_as_if_never_stopped, fit, weights

METHOD = method_named("bucsfr")


def unit(rows: int, dim: int = 4, seed: int = 0) -> torch.Tensor:
    drawn = torch.randn(rows, dim, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.normalize(drawn, dim=1)


def slow_length(points: torch.Tensor) -> float:
    n, dim = points.shape
    gram = points.double() @ points.double().T  # the n x n form; the code has the D x D one
    return (n + dim) / 2 * math.log2(torch.det(torch.eye(n) + dim / (16 * n) * gram).item())


def slow_best_pair(points: torch.Tensor, cluster: torch.Tensor) -> tuple[float, tuple[int, int]]:
    found = []
    for a in range(int(cluster.max()) + 1):
        for b in range(a + 1, int(cluster.max()) + 1):
            one, other = points[cluster == a], points[cluster == b]
            saved = slow_length(one) + slow_length(other) - slow_length(torch.cat([one, other]))
            cost = slow_length(other if len(one) >= len(other) else one) / saved
            if saved > 0:
                found.append((cost, (a, b)))
    return min(found)


def inputs(batch: int = 5, bank: int = 30, clusters: int = 4, seed: int = 0) -> RelationInputs:
    numbers = torch.Generator().manual_seed(seed)
    shares = torch.softmax(3 * torch.randn(bank, clusters, generator=numbers), dim=1)
    cluster = torch.randint(clusters, (batch,), generator=numbers)
    return RelationInputs(
        keys=unit(batch, seed=seed),
        coarse=torch.randint(2, (batch,), generator=numbers),
        index=torch.arange(batch),
        bank_keys=unit(bank, seed=seed + 1),
        bank_coarse=torch.randint(2, (bank,), generator=numbers),
        bank_index=torch.arange(bank) % 9,
        w=0.5,
        tau=0.1,
        clusters=ClusterDraws(cluster, shares, torch.rand(batch, 2 * bank, generator=numbers)),
    )


def slow_row(given: RelationInputs, i: int) -> tuple[list[float], list[bool]]:
    """One row of the relation and of what the softmax omits, entry by entry."""
    assert given.clusters is not None
    assert given.index is not None
    assert given.bank_index is not None
    bank = len(given.bank_keys)
    allowed = [
        j
        for j in range(bank)
        if given.bank_coarse[j] == given.coarse[i] and given.bank_index[j] != given.index[i]
    ]
    p = {j: given.clusters.shares[j, given.clusters.cluster[i]].item() for j in allowed}
    drawn = given.clusters.uniforms[i].tolist()
    positive = {j for j in allowed if drawn[j] * max(p.values()) < p[j]}
    negative = {j for j in allowed if drawn[bank + j] * max(1 - x for x in p.values()) < 1 - p[j]}
    d = {j: (given.keys[i] @ given.bank_keys[j]).item() for j in positive}
    row = [1.0] + [math.exp((d[j] - max(d.values())) / given.tau) if j in d else 0.0 for j in range(bank)]
    left_out = [j in allowed and j not in positive | negative for j in range(bank)]
    return [value / sum(row) for value in row], left_out


@pytest.mark.parametrize("seed", range(4))
def test_relation_and_entries_left_out_match_the_loop_oracle(seed):
    given = inputs(seed=seed)
    relation, omitted = given.cluster_relation(), given.left_out()
    assert omitted is not None
    for i in range(5):
        row, left_out = slow_row(given, i)
        torch.testing.assert_close(relation[i], torch.tensor(row), atol=1e-5, rtol=1e-4)
        assert omitted[i].tolist() == left_out
    assert omitted.any()
    assert not (omitted & (relation[:, 1:] > 0)).any()


def test_draws_have_the_probabilities_of_the_formula():
    shares = torch.tensor([[0.8, 0.2], [0.2, 0.8]])
    uniforms = torch.rand(20_000, 4, generator=torch.Generator().manual_seed(0))
    draws = ClusterDraws(torch.zeros(20_000, dtype=torch.long), shares, uniforms)
    candidates = torch.ones(20_000, 2, dtype=torch.bool)
    drawn = bucsfr.positives(draws, candidates).float().mean(dim=0)
    assert drawn[0] == 1
    assert drawn[1] == pytest.approx(0.25, abs=0.01)
    omitted = bucsfr.left_out(draws, candidates).float().mean(dim=0)
    assert omitted[0] == 0  # always a positive
    assert omitted[1] == 0  # always a negative: 1 - p is largest


def test_what_is_drawn_neither_as_positive_nor_as_negative_is_left_out():
    shares = torch.tensor([[0.8, 0.2], [0.5, 0.5], [0.2, 0.8]])
    uniforms = torch.rand(20_000, 6, generator=torch.Generator().manual_seed(0))
    draws = ClusterDraws(torch.zeros(20_000, dtype=torch.long), shares, uniforms)
    omitted = bucsfr.left_out(draws, torch.ones(20_000, 3, dtype=torch.bool)).float().mean(dim=0)
    neither = (1 - 0.5 / 0.8) * (1 - 0.5 / 0.8)  # no positive at p / max p, no negative at (1-p) / max (1-p)
    assert omitted.tolist() == pytest.approx([0, neither, 0], abs=0.01)


def test_before_there_are_clusters_and_for_an_image_without_one_the_relation_is_that_of_selfcon():
    given = inputs()
    assert given.clusters is not None
    given.clusters.cluster[0] = bucsfr.NO_CLUSTER
    omitted = given.left_out()
    assert omitted is not None
    assert torch.equal(given.cluster_relation()[:1], self_relation(1, 30))
    assert not omitted[0].any()
    bare = RelationInputs(**{**vars(given), "clusters": None})
    assert torch.equal(bare.cluster_relation(), self_relation(5, 30))
    assert bare.left_out() is None


def test_the_loss_without_some_entries_is_that_of_a_bank_without_them():
    given = inputs()
    relation, omitted = given.cluster_relation(), given.left_out()
    assert omitted is not None
    queries = unit(5, seed=9).requires_grad_()
    whole = relation_loss(queries, given.keys, given.bank_keys, relation, 0.2, METHOD.left_out_of(given))
    (gradient,) = torch.autograd.grad(whole.sum(), queries)
    for i in range(5):
        alone = queries[i : i + 1].detach().requires_grad_()
        kept = ~omitted[i]
        z = relation[i : i + 1, torch.cat([torch.tensor([True]), kept])]
        loss = relation_loss(alone, given.keys[i : i + 1], given.bank_keys[kept], z, 0.2)
        torch.testing.assert_close(loss[0], whole[i])
        torch.testing.assert_close(torch.autograd.grad(loss.sum(), alone)[0][0], gradient[i])


def test_coding_length_matches_the_slow_one():
    points = unit(7, 3)
    fast = coding_length((points.T @ points)[None], torch.tensor([7.0]))
    assert fast.item() == pytest.approx(slow_length(points), rel=1e-4)


@pytest.mark.parametrize("seed", range(4))
def test_the_pair_of_least_cost_is_merged(monkeypatch, seed):
    points, cluster = unit(40, seed=seed), torch.arange(40) % 5
    cost, (a, b) = slow_best_pair(points, cluster)
    monkeypatch.setattr(bucsfr, "MOST_LOST", cost * 1.01)
    merged = merge(points, cluster)
    assert int(merged.max()) == 3
    together = merged[:, None] == merged[None]
    before = (cluster[:, None] == cluster[None]) | (
        ((cluster == a) | (cluster == b))[:, None] & ((cluster == a) | (cluster == b))[None]
    )
    assert torch.equal(together, before)
    monkeypatch.setattr(bucsfr, "MOST_LOST", cost * 0.99)
    assert torch.equal(merge(points, cluster), cluster)


def test_k_means_finds_groups_that_are_far_apart_and_bears_identical_points():
    generator = torch.Generator().manual_seed(0)
    centres = torch.eye(4)[torch.arange(60) % 4] * 9
    found = k_means(centres + unit(60) * 0.1, 4, generator)
    assert all(len(found[torch.arange(60) % 4 == kind].unique()) == 1 for kind in range(4))
    assert len(found.unique()) == 4
    assert k_means(torch.ones(5, 2), 3, generator).tolist() == [0] * 5


def test_clusters_lie_within_coarse_classes_and_never_become_more():
    coarse = torch.tensor([0] * 40 + [1] * 25 + [3])  # class 2 has no image, class 3 one
    clusters = Clusters(coarse, 4)
    assert clusters.draws(torch.arange(3), unit(7), torch.rand(3, 14)) is None
    clusters.take_in(torch.arange(66), unit(66))
    numbers = []
    for epoch in range(3):
        clusters.update(torch.Generator().manual_seed(epoch))
        draws = clusters.draws(torch.arange(66), unit(7), torch.rand(66, 14))
        assert draws is not None
        kinds = [set(draws.cluster[coarse == label].tolist()) for label in (0, 1, 3)]
        assert not kinds[0] & kinds[1]
        assert len(kinds[2]) == 1
        numbers.append(sum(map(len, kinds)))
        assert draws.shares.shape == (7, numbers[-1])
        torch.testing.assert_close(draws.shares.sum(dim=1), torch.ones(7))
    assert numbers == sorted(numbers, reverse=True)
    assert numbers[0] <= 4 + 2 + 1


def test_a_run_resumes_in_mid_epoch_to_the_same_bytes(tmp_path, monkeypatch):
    settings = {"method": "bucsfr", "relation_warmup_epochs": 1.0, "epochs": 4, "data": miniature(150)}
    assert ends_as_if_never_stopped(tmp_path, **settings)
    updates = 0
    real = Clusters.update

    def update(self, generator):
        nonlocal updates
        updates += 1
        real(self, generator)

    step = loop.train_step

    def crash(learner, data, config, place, rows):
        if place.step == crash_at:
            raise InterruptedError
        return step(learner, data, config, place, rows)

    monkeypatch.setattr(Clusters, "update", update)
    crash_at = 24  # of 10 per epoch
    monkeypatch.setattr(loop, "train_step", crash)
    with pytest.raises(InterruptedError):
        fit(tmp_path / "killed", **settings)
    assert updates == 2
    monkeypatch.setattr(loop, "train_step", step)
    fit(tmp_path / "killed", **settings)
    assert updates == 3  # the epoch of the crash went on with the clusters of its checkpoint
    assert weights(tmp_path / "killed") == weights(tmp_path / "whole")
