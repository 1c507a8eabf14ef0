"""Cross-entropy on the coarse labels beside a method's own loss."""

from __future__ import annotations

import json

import pytest

import maskcon
from maskcon._utils.errors import UsageError
from maskcon.config.settings import Machine
from tests.miniature import TINY, miniature

OFTEN = Machine(checkpoint_every_seconds=0, device="cpu")


def losses(folder, method="maskcon", **changes):
    settings = {**TINY, "epochs": 1, **changes}
    maskcon.fit(miniature(), method=method, preset="cpu", out=folder, settings=settings, machine=OFTEN)
    lines = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]
    return [
        (line["loss"], line["contrast"], line["cross_entropy"]) for line in lines if line["kind"] == "step"
    ]


def test_the_loss_is_the_methods_own_and_the_weighted_cross_entropy(tmp_path):
    for loss, contrast, cross_entropy in losses(tmp_path / "run", coarse_weight=0.5):
        assert loss == pytest.approx(contrast + 0.5 * cross_entropy, rel=1e-5)


def test_without_it_there_is_no_cross_entropy(tmp_path):
    assert all(
        cross_entropy is None and loss == contrast
        for loss, contrast, cross_entropy in losses(tmp_path / "run")
    )


def test_a_relation_to_oneself_with_it_is_twice_the_loss_of_coins_at_one_half(tmp_path):
    joined = losses(tmp_path / "joined", "grafit", w=0.0, coarse_weight=1.0)[0]
    coins = losses(tmp_path / "coins", "coins", w=0.5)[0]
    assert joined == pytest.approx((2 * coins[0], *coins[1:]), rel=1e-5)


@pytest.mark.parametrize(("method", "sees"), [("selfcon", "no"), ("supfine", "fine")])
def test_a_method_that_does_not_see_coarse_labels_refuses_it(tmp_path, method, sees):
    with pytest.raises(UsageError, match=f"sees {sees} labels; leave it out"):
        losses(tmp_path / "run", method, coarse_weight=1.0)
    assert not (tmp_path / "run").exists()
