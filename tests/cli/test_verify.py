"""Checksums of a finished run: written at its end, checked by every command, by `verify` all of them."""

from __future__ import annotations

import json
import random

import pytest
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

import maskcon
from maskcon._utils.errors import CorruptFileError, MaskconError
from maskcon._utils.files import SUMS, file_states
from maskcon.api import score
from maskcon.cli import app
from maskcon.training.run_folder import ENCODER, RESULT
from tests.finished_run import finished_run
from tests.miniature import miniature
from tests.training.runs import fit, weights


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return fit(tmp_path_factory.mktemp("verified") / "run", epochs=1).folder


def invoke(*arguments: object):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_an_untouched_run_is_intact(finished):
    found = invoke("verify", finished, "--json")
    assert found.exit_code == 0, found.output
    states = json.loads(found.stdout)
    assert set(states.values()) == {"intact"}
    names = {"config.yaml", "environment.json", "journal.jsonl", ENCODER, RESULT}
    assert names <= set(states)
    assert any(name.startswith("checkpoints/step-") for name in states)


@pytest.mark.parametrize("seed", range(25))
def test_a_flipped_bit_of_any_file_is_detected_by_every_reader(finished, seed):
    chance = random.Random(seed)
    names = [ENCODER] * 6 + ["config.yaml", RESULT, "journal.jsonl", SUMS]
    path = finished / chance.choice(names)
    before = path.read_bytes()
    data = bytearray(before)
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)
    try:
        with pytest.raises(CorruptFileError, match="SHA256SUMS"):
            maskcon.Run.open(finished)
        assert isinstance(invoke("verify", finished).exception, CorruptFileError)
    finally:
        path.write_bytes(before)
    assert maskcon.Run.open(finished).recall


def test_a_damaged_encoder_is_written_again_by_the_advice_of_the_message(tmp_path):
    run = fit(tmp_path / "run", epochs=1)
    before = weights(run.folder)
    (run.folder / ENCODER).write_bytes(before[:-1])
    with pytest.raises(CorruptFileError, match="delete it and rerun the same command"):
        fit(tmp_path / "run", epochs=1)
    (run.folder / ENCODER).unlink()
    fit(tmp_path / "run", epochs=1)
    assert weights(run.folder) == before
    assert set(file_states(run.folder).values()) == {"intact"}


def test_a_lost_line_or_file_is_noticed(tmp_path):
    folder = fit(tmp_path / "run", epochs=1).folder
    lines = (folder / SUMS).read_text().splitlines(keepends=True)
    (folder / SUMS).write_text("".join(line for line in lines if ENCODER not in line))
    with pytest.raises(CorruptFileError, match=rf"{ENCODER} has no checksum"):
        maskcon.Run.open(folder)
    (folder / SUMS).write_text("".join(lines))
    (folder / "journal.jsonl").unlink()
    with pytest.raises(CorruptFileError, match=r"journal\.jsonl has been lost"):
        maskcon.Run.open(folder)


def test_lost_checksums_are_no_earlier_version(tmp_path):
    folder = fit(tmp_path / "run", epochs=1).folder
    before = weights(folder)
    (folder / SUMS).unlink()
    (folder / ENCODER).write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
    with pytest.raises(CorruptFileError, match=rf"{SUMS} has been lost"):
        maskcon.Run.open(folder)
    assert isinstance(invoke("verify", folder).exception, CorruptFileError)
    (folder / RESULT).unlink()
    fit(tmp_path / "run", epochs=1)
    assert weights(folder) == before


def test_a_run_of_an_earlier_version_opens_unchecked_and_verify_says_so(tmp_path):
    folder = finished_run(tmp_path / "run").folder
    found = invoke("verify", folder)
    assert found.exit_code == 0
    assert "no checksums" in found.output


def test_damaged_checkpoints_and_folders_of_other_things_are_named(finished, tmp_path):
    state = next((finished / "checkpoints").glob("*/state.safetensors"))
    before = state.read_bytes()
    state.write_bytes(before + b" ")
    try:
        found = invoke("verify", finished)
        assert "does not match its checksum" in found.output
        assert isinstance(found.exception, CorruptFileError)
    finally:
        state.write_bytes(before)
    assert "holds nothing with checksums; give a run" in str(invoke("verify", tmp_path).exception)
    assert "there is no " in str(invoke("verify", tmp_path / "x").exception)


def test_weights_that_became_nan_are_not_scored(tmp_path):
    run = finished_run(tmp_path / "run", miniature())
    tensors = load_file(run.folder / ENCODER)
    with safe_open(run.folder / ENCODER, framework="pt") as file:
        header = file.metadata()
    next(value for value in tensors.values() if value.ndim > 1).fill_(float("nan"))
    save_file(tensors, run.folder / ENCODER, header)
    with pytest.raises(MaskconError, match="encoder gives NaN or Inf; train it again"):
        score(run, data=miniature())
