"""The scikit-learn example runs, and measures what it says."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

FILE = Path(__file__).parents[2] / "examples" / "sklearn_digits.py"
spec = importlib.util.spec_from_file_location("sklearn_digits", FILE)
assert spec is not None
assert spec.loader is not None
example = importlib.util.module_from_spec(spec)
spec.loader.exec_module(example)


def test_every_digit_has_a_kind_of_stroke_shared_with_others():
    kinds, counts = np.unique(example.STROKES, return_counts=True)
    assert len(example.STROKES) == 10
    assert (len(kinds), counts.min() >= 2) == (3, True)


def test_accuracy_is_that_of_the_nearest_labelled_image():
    train = np.repeat(np.arange(10.0), 2)[:, None]  # digit d lies at d
    digits = np.repeat(np.arange(10), 2)
    test = np.array([[0.1], [3.2], [8.9], [5.4]])
    found = example.accuracy(train, digits, test, np.array([0, 3, 9, 7]), labelled=2)
    assert found == pytest.approx(3 / 4)


def test_one_epoch_compares_pixels_with_an_embedding_of_coarse_labels_alone():
    found = example.compare(("coins",), epochs=1)
    assert list(found) == ["pixels", "coins"]
    for scores in found.values():
        assert len(scores) == len(example.LABELLED)
        assert scores == sorted(scores)  # more labels tell more
        assert 0.15 < scores[0] < scores[-1] < 1  # ten digits: chance is .1


@pytest.mark.slow
def test_an_embedding_of_coarse_labels_needs_fewer_named_digits_than_pixels_do():
    found = example.compare(("maskcon",))
    assert found["maskcon"][0] > found["pixels"][0] + 0.1  # of the .2 that the example reports


@pytest.mark.slow
def test_the_example_prints_a_row_for_each_method():
    done = subprocess.run(
        [sys.executable, str(FILE), "--epochs", "1", "--methods", "supce", "selfcon"],
        capture_output=True,
        text=True,
        check=True,
    )
    rows = [line.split() for line in done.stdout.splitlines()]
    assert [row[0] for row in rows[1:]] == ["pixels", "supce", "selfcon"]
    assert all(len(row) == 1 + len(example.LABELLED) for row in rows[1:])
