"""d_z of finished runs: from the bank of the checkpoint, the same as the journal, and clear where it cannot be had."""

from __future__ import annotations

import math
import shutil

import pytest

import maskcon
from maskcon._utils.errors import DataError, UsageError
from maskcon.api import Run
from maskcon.config.settings import Machine
from maskcon.paper.bound import TAUS, BoundTracker, bound_and_recalls, bound_over_tau, own_distance
from tests.miniature import TINY, miniature

HERE = Machine(device="cpu")


def train(folder, method="maskcon", *, data=None, announce=None, **changes) -> Run:
    settings = {**TINY, "epochs": 1, **changes}
    return maskcon.fit(
        data or miniature(), method=method, out=folder, settings=settings, machine=HERE, announce=announce
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, Run]:
    root = tmp_path_factory.mktemp("runs")
    return {
        "maskcon": train(root / "maskcon", w=0.7),
        "other tau": train(root / "other", w=0.7, tau=0.5),
        "other seed": train(root / "seed", w=0.7, tau=0.5, seed=1),
        "grafit": train(root / "grafit", "grafit", w=0.7),
        "selfcon": train(root / "selfcon", "selfcon"),
        "supce": train(root / "supce", "supce"),
    }


@pytest.mark.parametrize(
    "changes", [{}, {"protocol": "reference"}, {"relation_space": "features"}, {"relation_space": "hog"}]
)
def test_tracking_gives_the_d_z_of_the_bank_and_changes_no_byte(tmp_path, changes):
    data = miniature().hold_out(0.3)  # sample numbers with gaps
    tracker = BoundTracker()
    run = train(tmp_path / "with", data=data, announce=tracker, w=0.7, epochs=2, **changes)
    plain = train(tmp_path / "without", data=data, w=0.7, epochs=2, **changes)
    one, other = ((r.folder / "encoder.safetensors").read_bytes() for r in (run, plain))
    assert one == other
    last = tracker.found[max(tracker.found)]
    assert len(tracker.found) >= 2
    assert set(last) == {"run", "selfcon", "supcon", "grafit", "maskcon"}
    rows = bound_over_tau(run, data, [TINY["tau"]])
    assert [row.method for row in rows] == ["maskcon", "grafit", "supcon", "selfcon"]
    for row in rows:
        assert row.d_z == pytest.approx(last[row.method], abs=1e-6)
    assert own_distance(run, data, TINY["tau"]) == pytest.approx(last["run"], abs=1e-6)
    assert last["run"] == last["maskcon"] != last["grafit"]


def test_tracking_needs_fine_labels_and_relations(tmp_path):
    with pytest.raises(DataError, match=r"fine labels.*miniature has none"):
        train(tmp_path / "run", data=miniature(fine=False), announce=BoundTracker())
    tracker = BoundTracker()
    train(tmp_path / "supce", "supce", announce=tracker)
    assert tracker.found == {}


def test_rows_are_ascending_in_tau_and_end_in_grafit(runs):
    rows = bound_over_tau(runs["maskcon"], miniature(), [math.inf, 0.1, 0.0, 0.1])
    assert [row.tau for row in rows] == [0.0, 0.1, math.inf, None, None, None]
    assert rows[2].d_z == rows[3].d_z  # tau = inf is Grafit with the same w
    assert {row.w for row in rows[:4]} == {0.7}


def test_weights_can_be_given(runs):
    given = bound_over_tau(runs["maskcon"], miniature(), [0.1, math.inf], w=1.0, grafit_w=0.2)
    by_method = {(row.method, row.tau): row for row in given}
    assert by_method["maskcon", math.inf].d_z == by_method["supcon", None].d_z
    assert by_method["grafit", None].w == 0.2
    nothing = bound_over_tau(runs["maskcon"], miniature(), [0.1], w=0.0)
    assert nothing[0].d_z == nothing[-1].d_z  # w = 0 is SelfCon
    assert nothing[0].d_z_own_key == nothing[-1].d_z_own_key > 1


def test_a_selfcon_run_can_be_the_reference_with_maskcon_at_weight_one(runs):
    rows = bound_over_tau(runs["selfcon"], miniature(), [0.1])
    assert rows[0].w == 1.0


def test_what_cannot_work_is_refused_with_the_way_out(runs, tmp_path):
    run = runs["maskcon"]
    for taus in ([], [-0.1], [math.nan]):
        with pytest.raises(UsageError, match="taus must be"):
            bound_over_tau(run, miniature(), taus)
    with pytest.raises(UsageError, match=r"w must lie in 0\.\.1, got 1\.5"):
        bound_over_tau(run, miniature(), [0.1], grafit_w=1.5)
    with pytest.raises(UsageError, match="supce, which has no keys"):
        bound_over_tau(runs["supce"], miniature(), [0.1])
    with pytest.raises(DataError, match="fine labels"):
        bound_over_tau(run, miniature(fine=False), [0.1])
    bare = tmp_path / "bare"
    shutil.copytree(run.folder, bare)
    shutil.rmtree(bare / "checkpoints")
    with pytest.raises(UsageError, match=r"no whole checkpoint.*train it again"):
        bound_over_tau(Run.open(bare), miniature(), [0.1])


def test_a_damaged_checkpoint_is_not_used(runs, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(runs["maskcon"].folder, copy)
    for state in (copy / "checkpoints").glob("*/state.safetensors"):
        content = bytearray(state.read_bytes())
        content[-1] ^= 1
        state.write_bytes(content)
    with pytest.raises(UsageError, match="does not match its checksum"):
        bound_over_tau(Run.open(copy), miniature(), [0.1])


def test_recall_and_d_z_of_the_runs_stand_beside_the_curve_of_the_reference(runs):
    by_tau = {
        TINY["tau"]: [runs["maskcon"]],
        0.5: [runs["other tau"], runs["other seed"]],
        math.inf: [runs["grafit"]],
    }
    rows, recalls, own = bound_and_recalls(by_tau, runs["selfcon"], miniature())
    assert [row.tau for row in rows[:-3]] == sorted({*TAUS, TINY["tau"]})
    assert recalls[0.5] == [runs["other tau"].recall[1], runs["other seed"].recall[1]]
    assert own[math.inf] == [own_distance(runs["grafit"], miniature(), math.inf)]
    # the curve itself is on the reference run's keys, with the w that the runs share
    expected = bound_over_tau(runs["selfcon"], miniature(), [0.5], w=0.7)[0]
    assert expected in rows


def test_no_trained_taus_are_needed_and_runs_of_different_weight_are_refused(runs):
    assert bound_and_recalls({}, runs["maskcon"], miniature())[1:] == ({}, {})
    mixed = {0.1: [runs["maskcon"]], 0.5: [runs["selfcon"]]}
    with pytest.raises(UsageError, match=r"share one w, these have \[0\.7, 1\.0\]"):
        bound_and_recalls(mixed, runs["maskcon"], miniature())
