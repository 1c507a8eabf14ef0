"""What benchmarks/relations.py measures of a relation."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from maskcon.config.resolution import resolve
from maskcon.methods.registry import RelationInputs, method_named

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import relations


def test_the_share_of_right_neighbours_is_by_weight_and_leaves_out_the_own_key():
    inputs = RelationInputs(
        keys=torch.eye(2),
        coarse=torch.tensor([0, 0]),
        index=torch.tensor([0, 1]),
        bank_keys=torch.eye(2),
        bank_coarse=torch.tensor([0, 0]),
        bank_index=torch.tensor([2, 3]),
        w=1.0,
        tau=1.0,
    )
    watch = relations.Watch(torch.tensor([5, 6, 5, 6]))  # each image's nearest entry is of its kind
    plain = method_named("maskcon")
    with watch.over(plain):
        recipe = method_named("maskcon").relation
        assert recipe is not None
        near, far = recipe(inputs)[0, 1:].tolist()
    assert watch.share == pytest.approx(near / (near + far))
    assert method_named("maskcon") is plain


def test_a_row_has_the_settings_of_its_method_and_the_sizes_of_the_run():
    config = resolve(
        "embedded", method="teachcon", preset="fast", overrides={"freeze": True, "epochs": 3}
    ).config
    made = relations.settings_of("maskcon tau=0.3", 2, config)
    assert (made.method, made.tau, made.seed, made.epochs, made.coarse_weight) == ("maskcon", 0.3, 2, 3, 0.0)
    grafit = resolve("embedded", method="grafit", preset="fast", overrides={"freeze": True}).config
    made = relations.settings_of("grafit", 0, config)
    assert (made.w, made.learning_rate) == (grafit.w, grafit.learning_rate)


def test_the_table_averages_seeds_and_marks_what_is_missing():
    rows = {
        "a | selfcon | 0": {"recall": 0.5, "share": None},
        "a | selfcon | 1": {"recall": 0.7, "share": None},
        "b | maskcon | 0": {"recall": 0.4, "share": 0.25},
    }
    assert relations.table(rows).splitlines()[2:] == [
        "| selfcon | 60.00 ± 14.14 |  | - |  |",
        "| maskcon | - |  | 40.00 | 25 % |",
    ]
