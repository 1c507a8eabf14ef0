from __future__ import annotations

import pytest

import maskcon
from maskcon._utils.errors import DataError
from maskcon.api import Run
from maskcon.config.settings import Machine
from maskcon.methods.bound import Recipe, bank_distances
from maskcon.paper.bound import BoundTracker, _labels
from maskcon.paper.relations import bank_of_run
from tests.miniature import TINY, miniature


def train(folder, method="maskcon", *, data=None, announce=None, **changes) -> Run:
    settings = {**TINY, "epochs": 1, **changes}
    return maskcon.fit(
        data or miniature(),
        method=method,
        out=folder,
        settings=settings,
        machine=Machine(device="cpu"),
        announce=announce,
    )


@pytest.mark.parametrize("changes", [{}, {"relation_space": "features"}, {"relation_space": "hog"}])
def test_tracking_gives_the_d_z_of_the_bank_and_changes_no_byte(tmp_path, changes):
    data = miniature().hold_out(0.3)  # sample numbers with gaps
    tracker = BoundTracker()
    run = train(tmp_path / "with", data=data, announce=tracker, w=0.7, epochs=2, **changes)
    plain = train(tmp_path / "without", data=data, w=0.7, epochs=2, **changes)
    one, other = ((r.folder / "encoder.safetensors").read_bytes() for r in (run, plain))
    assert one == other
    last = tracker.found[max(tracker.found)]
    assert len(tracker.found) >= 2
    bank = bank_of_run(run)
    recipes = {name: Recipe(name, 0.7, TINY["tau"]) for name in ("selfcon", "supcon", "grafit", "maskcon")}
    expected = bank_distances(recipes, bank.compared, bank.index, _labels(data.train), exclude_own_keys=True)
    assert last == pytest.approx({**expected, "run": expected["maskcon"]}, abs=1e-6)
    assert last["maskcon"] != last["grafit"]


def test_tracking_needs_fine_labels_and_relations(tmp_path):
    with pytest.raises(DataError, match=r"fine labels.*miniature has none"):
        train(tmp_path / "run", data=miniature(fine=False), announce=BoundTracker())
    tracker = BoundTracker()
    train(tmp_path / "supce", "supce", announce=tracker)
    assert tracker.found == {}
