"""Confidence and roles of images."""

from __future__ import annotations

import numpy as np
import pytest

from maskcon.discovery.roles import judge


def judged_by_loop(to_kinds: dict[str, np.ndarray], found: list[str], row: int) -> tuple[float, str]:
    own = found[row]
    second = min(values[row] for kind, values in to_kinds.items() if kind != own)
    sure = max(0.0, 1 - to_kinds[own][row] / second)
    same = [i for i in range(len(found)) if found[i] == own]
    near = sorted(to_kinds[own][i] for i in same)
    first, third = np.percentile(near, [25, 75])
    if len(same) >= 4 and to_kinds[own][row] > third + 1.5 * (third - first) + 1e-6:
        return sure, "outlier"
    if sure < 0.1:
        return sure, "borderline"
    return sure, "typical" if near.index(to_kinds[own][row]) < len(same) / 3 else ""


@pytest.mark.parametrize("seed", range(10))
def test_judge_matches_the_loop_oracle(seed):
    random = np.random.default_rng(seed)
    kinds = ("a", "b", "a", "c")  # two centres of one kind, as after a merge
    table = random.random((60, 4))
    merged = {"a": table[:, [0, 2]].min(1), "b": table[:, 1], "c": table[:, 3]}
    found = [str(random.choice(["a", "b", "c"])) for _ in range(60)]
    confidence, roles = judge(table, kinds, found, [f"{i:02}" for i in range(60)], [False] * 60)
    for row in range(60):
        sure, role = judged_by_loop(merged, found, row)
        assert confidence[row] == pytest.approx(sure, abs=6e-4)
        assert roles[row] == role


def test_a_class_of_one_kind_is_ranked_by_distance_without_borderline():
    table = np.array([[0.3], [0.1], [0.2], [0.25]])
    confidence, roles = judge(table, ("kind 1",), ["kind 1"] * 4, list("abcd"), [False] * 4)
    assert confidence == [0.25, 1.0, 0.75, 0.5]
    assert roles == ["", "typical", "typical", ""]


def test_junk_stays_junk_and_an_image_without_kind_gets_neither():
    table = np.array([[0.1, 1], [0.1, 1], [1, 0.1]])
    confidence, roles = judge(table, ("a", "b"), ["a", "", "b"], list("xyz"), [True, False, False])
    assert confidence == [None, None, 0.9]
    assert roles == ["junk", "", "typical"]


def test_equal_images_are_no_outliers_and_coinciding_centres_no_error():
    table = np.full((9, 2), 1e-9)
    table[0, 0] = 3e-8
    _, roles = judge(table, ("a", "b"), ["a"] * 9, [str(i) for i in range(9)], [False] * 9)
    assert "outlier" not in roles
    zero = judge(np.zeros((2, 2)), ("a", "b"), ["a", "b"], ["x", "y"], [False] * 2)
    assert zero == ([0.0, 0.0], ["borderline", "borderline"])
