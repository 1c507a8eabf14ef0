"""d_z in the journal: there when asked for, right, and without a trace in the weights."""

from __future__ import annotations

import json

import pytest
import torch

import maskcon
from maskcon._utils.errors import DataError
from maskcon.config.settings import Machine
from maskcon.methods.bound import bound_distance
from maskcon.methods.memory_bank import MemoryBank
from maskcon.training.callbacks import Callback
from maskcon.training.checkpoint import load_latest
from maskcon.training.journal import read_journal
from tests.miniature import TINY, miniature
from tests.training.test_distributed import FROZEN, launch

NAMES = {"run", "selfcon", "supcon", "grafit", "maskcon"}


class Told(Callback):
    def __init__(self) -> None:
        self.messages: list[str] = []

    def on_message(self, text: str) -> None:
        self.messages.append(text)


def fit(folder, method="maskcon", *, data=None, announce=None, **changes):
    return maskcon.fit(
        data or miniature(),
        method=method,
        out=folder,
        settings={**TINY, **changes},
        machine=Machine(device="cpu", checkpoint_every_seconds=0),
        announce=announce,
    )


def tracked(folder) -> list[dict[str, float]]:
    return [e["d_z"] for e in read_journal(folder / "journal.jsonl") if e["kind"] == "evaluation"]


@pytest.mark.parametrize("method", ["maskcon", "selfcon"])
def test_tracking_changes_no_byte_of_the_encoder_nor_the_rest_of_the_journal(tmp_path, method):
    fit(tmp_path / "with", method, track_bound=True)
    fit(tmp_path / "without", method)
    encoders = [(tmp_path / name / "encoder.safetensors").read_bytes() for name in ("with", "without")]
    assert encoders[0] == encoders[1]
    journals = [read_journal(tmp_path / name / "journal.jsonl") for name in ("with", "without")]
    assert len(tracked(tmp_path / "with")) == 2
    for event, other in zip(*journals, strict=True):
        assert "d_z" not in other
        left, right = (
            {k: v for k, v in e.items() if k not in ("d_z", "settings") and not k.endswith("seconds")}
            for e in (event, other)
        )
        assert left == right


@pytest.mark.parametrize("exclude", [True, False])
def test_the_journal_holds_d_z_of_the_bank_by_the_fine_labels_of_its_samples(tmp_path, exclude):
    data = miniature().hold_out(0.3)  # sample numbers with gaps
    fit(tmp_path / "run", "grafit", data=data, track_bound=True, w=0.6, exclude_own_keys=exclude)
    last = tracked(tmp_path / "run")[-1]
    assert set(last) == NAMES
    checkpoint, _ = load_latest(tmp_path / "run" / "checkpoints")
    assert checkpoint is not None
    bank = MemoryBank(TINY["bank_size"], TINY["projection_dim"])
    bank.load_state_dict(
        {name.removeprefix("bank."): t for name, t in checkpoint.tensors.items() if name.startswith("bank.")}
    )
    row_of = {number: row for row, number in enumerate(data.train.index.tolist())}
    rows = [row_of[number] for number in bank.index.tolist()]
    fine = torch.from_numpy(data.train.fine)[rows]
    coarse = torch.from_numpy(data.train.coarse)[rows]
    assert torch.equal(coarse, bank.coarse)
    index = bank.index if exclude else torch.arange(len(bank))
    for name, expected in {
        "run": "grafit",
        "selfcon": "selfcon",
        "supcon": "supcon",
        "maskcon": "maskcon",
    }.items():
        d_z = bound_distance(
            expected,
            *(bank.keys, bank.keys, coarse, coarse, fine, fine),
            index=index,
            bank_index=index,
            w=0.6,
            tau=TINY["tau"],
        )
        assert last[name] == pytest.approx(d_z, abs=2e-6)
    assert last["run"] == last["grafit"] != last["maskcon"]


def test_a_source_without_fine_labels_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(DataError, match=r"track_bound .* fine labels.*miniature has none"):
        fit(tmp_path / "run", data=miniature(fine=False), track_bound=True)
    assert not (tmp_path / "run").exists()


def test_a_method_without_keys_trains_and_says_that_it_has_no_d_z(tmp_path):
    told = Told()
    fit(tmp_path / "run", "supce", announce=told, track_bound=True)
    assert any("SupCE has no relations" in message for message in told.messages)
    assert all("d_z" not in event for event in read_journal(tmp_path / "run" / "journal.jsonl"))


def test_a_bank_that_is_still_empty_has_no_d_z_yet(tmp_path):
    fit(tmp_path / "run", track_bound=True, prime_bank=False, eval_when="before")
    first, *later = tracked(tmp_path / "run")
    assert first is None
    assert all(set(values) == NAMES for values in later)


@pytest.mark.slow
def test_two_processes_track_the_same_d_z_as_one(tmp_path):
    launch(tmp_path, 1, 5, track_bound=True, **FROZEN)
    launch(tmp_path, 2, 5, track_bound=True, **FROZEN)
    one, two = tracked(tmp_path / "run-1"), tracked(tmp_path / "run-2")
    assert len(one) == len(two) == 1
    assert set(two[0]) == NAMES
    for name in NAMES:
        assert two[0][name] == pytest.approx(one[0][name], abs=1e-4)
    assert json.loads((tmp_path / "run-2" / "result.json").read_text())["processes"] == 2
