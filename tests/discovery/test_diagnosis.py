"""The verdict on embeddings whose state is known."""

from __future__ import annotations

import numpy as np
import pytest

from maskcon.discovery.diagnosis import NEIGHBOURS, agreement, diagnose, effective_rank, measure, neighbours
from maskcon.discovery.kinds import Embedded, Wanted, find_kinds

CLASSES, EACH, DIMENSION = 4, 60, 32
COARSE = np.repeat(np.arange(CLASSES), EACH)
FINE = 3 * COARSE + np.arange(CLASSES * EACH) % 3
SETTINGS = {
    "method": "maskcon",
    "epochs": 8,
    "learning_rate": 0.5,
    "weight_decay": 1.0,
    "w": 1.0,
    "image_size": 32,
}


def embedding(coarse: float, fine: float, noise: float, seed: int = 0) -> np.ndarray:
    """Vectors with so much variance by coarse class, by fine kind within it, and by image; noise depends on seed."""
    random = np.random.default_rng(0)
    parts = coarse * random.standard_normal((CLASSES, DIMENSION))[COARSE]
    parts += fine * random.standard_normal((3 * CLASSES, DIMENSION))[FINE]
    own = np.random.default_rng(seed + 1)
    return parts + noise * own.standard_normal((len(COARSE), DIMENSION))


def test_good_embedding_is_called_good_and_asks_for_kinds():
    vectors = embedding(1, 1, 0.3)
    steady = vectors + 0.1 * np.random.default_rng(9).standard_normal(vectors.shape)
    found = diagnose(measure(vectors, COARSE, views=steady, others=[steady]), SETTINGS, "runs/x")
    assert found.state == "good"
    assert {finding.state for finding in found.findings} == {"good", "unknown"}
    assert found.advice == ("next: maskcon kinds runs/x",)


@pytest.mark.parametrize(
    "vectors", [np.ones((240, 8)), np.outer(2 * (COARSE % 2) - 1, np.ones(8)), np.zeros((240, 8))]
)
def test_collapsed_embedding_is_told_with_other_settings(vectors):
    noise = 1e-3 * np.random.default_rng(0).standard_normal(vectors.shape)
    for given in (vectors, vectors + noise * (vectors.any())):
        found = diagnose(measure(given, COARSE), SETTINGS)
        assert (found.state, found.findings[0].state) == ("bad", "bad")
        assert "--set learning_rate=0.05 --set weight_decay=0.0005" in found.advice[0]


def test_repeated_coarse_classes_are_told_by_their_share_of_the_variance():
    found = measure(embedding(2, 0.1, 0.3), COARSE)
    assert found.within < 0.1
    diagnosis = diagnose(found, {**SETTINGS, "method": "supce"})
    assert diagnosis.state == "bad"
    assert "--method teachcon" in diagnosis.advice[0]
    assert "--w 0.5, or --epochs 4" in diagnose(found, SETTINGS).advice[0]


def test_within_class_noise_is_told_by_views_and_by_seeds():
    one, other = embedding(0.5, 0, 1), embedding(0.5, 0, 1, seed=5)
    found = diagnose(measure(one, COARSE, views=other, others=[other]), SETTINGS)
    states = {finding.question: finding.state for finding in found.findings}
    assert (
        states["same neighbours in another view?"] == states["same neighbours by another seed?"] == "doubtful"
    )
    assert found.state == "doubtful"
    assert found.measures.seeds == pytest.approx(0, abs=0.1)


def test_unsure_kinds_are_told():
    cloud = embedding(1, 0, 1)
    images = Embedded([f"{i}" for i in range(240)], [f"c{c}" for c in COARSE], cloud.astype(np.float32))
    found = diagnose(measure(cloud, COARSE, kinds=find_kinds(images, Wanted(every=4))), SETTINGS, "r")
    assert next(f.state for f in found.findings if f.question == "kinds sure?") == "doubtful"
    assert any("maskcon ask r" in line for line in found.advice)
    alone = diagnose(measure(cloud, COARSE, kinds=find_kinds(images, Wanted(every=60))), SETTINGS, "r")
    finding = next(f for f in alone.findings if f.question == "kinds sure?")
    assert (finding.state, finding.answer) == (
        "unknown",
        "not known: too few images per kind; 240 kinds, 0 classes left whole",
    )


def test_fine_labels_give_recall_purity_and_confusions_of_an_oracle():
    vectors = embedding(1, 0.3, 0.6)
    names = [f"f{label}" for label in range(12)]
    kind_of = ["a" if row % 2 else "b" for row in range(240)]
    found = measure(vectors, COARSE, fine=FINE, fine_names=names, kind_of=kind_of)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    right, wrong = 0, {}
    for row in range(240):
        others = [i for i in range(240) if COARSE[i] == COARSE[row] and i != row]
        nearest = max(others, key=lambda i: unit[row] @ unit[i])
        right += FINE[nearest] == FINE[row]
        if FINE[nearest] != FINE[row]:
            wrong[FINE[row], FINE[nearest]] = wrong.get((FINE[row], FINE[nearest]), 0) + 1
    assert found.recall == round(right / 240, 3)
    (a, b, share), *_ = found.confusions
    assert share == round(max(wrong.values()) / 20, 3)
    assert wrong[names.index(a), names.index(b)] == max(wrong.values())
    groups = {(c, k): [] for c in range(4) for k in "ab"}
    for row in range(240):
        groups[COARSE[row], kind_of[row]].append(FINE[row])
    assert found.purity == round(sum(max(np.bincount(own)) for own in groups.values()) / 240, 3)


def test_agreement_is_one_for_the_same_and_zero_for_unrelated_neighbours():
    random = np.random.default_rng(0)
    one, other = random.standard_normal((2, 400, 16))
    classes = np.zeros(400, dtype=int)
    near = neighbours(one, classes)
    assert agreement(near, near, classes) == 1
    assert agreement(near, neighbours(other, classes), classes) == pytest.approx(0, abs=0.02)
    assert agreement(near[:15], near[:15], np.zeros(15, dtype=int)) is None
    assert near.shape == (400, NEIGHBOURS)
    assert not (near == np.arange(400)[:, None]).any()


def test_effective_rank_counts_equal_directions():
    assert effective_rank(np.vstack([np.eye(5), -np.eye(5)])) == pytest.approx(5)
    assert effective_rank(np.zeros((4, 3))) == 1


def test_one_class_of_three_images_gets_an_answer():
    found = diagnose(
        measure(np.random.default_rng(0).standard_normal((3, 8)), np.zeros(3, dtype=int)), SETTINGS
    )
    assert found.findings
    assert found.measures.views is None
