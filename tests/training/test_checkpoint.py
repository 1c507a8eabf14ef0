from __future__ import annotations

import errno
import hashlib
import os
import random
from dataclasses import FrozenInstanceError, asdict
from pathlib import Path

import pytest
import safetensors.torch
import torch

from maskcon._utils.errors import CorruptFileError, MaskconError
from maskcon._utils.files import FAILPOINT, checksums
from maskcon.training import checkpoint as module
from maskcon.training.checkpoint import Progress, load_checkpoint, load_latest, save_checkpoint

FORKS = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes do not fork there")
FAILPOINTS = [
    "before-state.safetensors",
    "before-state.json",
    "before-SHA256SUMS",
    "before-rename",
    "after-rename",
    "before-removing-old",
]


def tensors(value: float) -> dict[str, torch.Tensor]:
    return {"a": torch.full((3, 4), value), "b": torch.arange(5)}


def test_what_is_saved_comes_back(tmp_path):
    save_checkpoint(tmp_path, 7, tensors(1.5), {"progress": {"step": 7}})
    found, notes = load_latest(tmp_path)
    assert notes == []
    assert found is not None
    assert torch.equal(found.tensors["a"], torch.full((3, 4), 1.5))
    assert found.values == {"progress": {"step": 7}, "step": 7}


def test_a_run_starts_with_nothing_counted_and_nothing_evaluated():
    counts = asdict(Progress())
    assert counts.pop("evaluated_step") < counts["step"]
    assert not any(counts.values())


def test_what_was_saved_cannot_be_replaced(tmp_path):
    save_checkpoint(tmp_path, 1, tensors(1), {})
    with pytest.raises(FrozenInstanceError):
        load_latest(tmp_path)[0].values = {}


def test_every_folder_of_a_save_is_synced_and_made_where_it_is_missing(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(module, "sync_folder", lambda folder: synced.append(folder.name))
    save_checkpoint(tmp_path / "run" / "checkpoints", 1, tensors(1), {})
    assert synced == [".step-00000001.tmp", "checkpoints"]


def test_channels_last_tensors_come_back_equal(tmp_path):
    weight = torch.randn(4, 3, 2, 2).to(memory_format=torch.channels_last)
    save_checkpoint(tmp_path, 1, {"w": weight}, {})
    assert torch.equal(load_latest(tmp_path)[0].tensors["w"], weight)


def test_only_the_newest_are_kept(tmp_path):
    for step in range(5):
        save_checkpoint(tmp_path, step, tensors(step), {}, keep=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000003", "step-00000004"]


def test_saving_the_same_step_again_replaces_it(tmp_path):
    save_checkpoint(tmp_path, 3, tensors(1), {})
    save_checkpoint(tmp_path, 3, tensors(2), {})
    assert load_latest(tmp_path)[0].tensors["a"][0, 0] == 2


def test_an_empty_folder_has_no_checkpoint(tmp_path):
    assert load_latest(tmp_path / "nothing") == (None, [])


def die_saving(folder: Path, step: int, value: float, point: str) -> None:
    """Save in a fork that ends at a failpoint, keeping one checkpoint."""
    given = {"a": torch.full((3, 4), value)}
    child = os.fork()
    if child == 0:
        os.environ[FAILPOINT] = point
        try:
            save_checkpoint(folder, step, given, {}, keep=1)
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 99


@FORKS
@pytest.mark.parametrize("point", ["before-rename", "between-renames", "after-rename", "before-removing-old"])
def test_a_kill_while_the_only_checkpoint_is_replaced_leaves_a_whole_one(tmp_path, point):
    save_checkpoint(tmp_path, 1, tensors(1), {}, keep=1)
    die_saving(tmp_path, 1, 2.0, point)
    found, notes = load_latest(tmp_path)
    assert notes == []
    assert found.tensors["a"][0, 0] == (2 if point in ("after-rename", "before-removing-old") else 1)
    save_checkpoint(tmp_path, 1, tensors(4), {}, keep=1)
    assert load_latest(tmp_path)[0].tensors["a"][0, 0] == 4
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]


@FORKS
@pytest.mark.parametrize("point", FAILPOINTS)
def test_a_kill_at_any_point_of_a_save_leaves_a_whole_checkpoint(tmp_path, point):
    save_checkpoint(tmp_path, 1, tensors(1), {})
    save_checkpoint(tmp_path, 2, tensors(2), {})
    die_saving(tmp_path, 3, 3.0, point)
    found, notes = load_latest(tmp_path)
    assert notes == []
    expected = 3 if point in ("after-rename", "before-removing-old") else 2
    assert found.values["step"] == expected
    save_checkpoint(tmp_path, 4, tensors(4), {}, keep=1)
    assert [path.name for path in tmp_path.iterdir()] == [
        "step-00000004"
    ]  # nor is anything left of the dead save
    assert load_latest(tmp_path)[0].values["step"] == 4


def damage(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    kind = chance.choice(["flip", "cut", "grow"])
    if kind == "flip":
        place = chance.randrange(len(content))
        content[place] ^= 1 << chance.randrange(8)
    elif kind == "cut":
        del content[chance.randrange(len(content)) :]
    else:
        content += bytes([chance.randrange(256)])
    path.write_bytes(bytes(content))


def test_a_thousand_damaged_files_are_all_detected_and_the_one_before_is_used(tmp_path):
    chance = random.Random(0)
    save_checkpoint(tmp_path, 1, tensors(1), {"x": 1})
    save_checkpoint(tmp_path, 2, tensors(2), {"x": 2})
    newest = tmp_path / "step-00000002"
    whole = {path.name: path.read_bytes() for path in newest.iterdir()}
    for _ in range(1000):
        victim = newest / chance.choice(list(whole))
        before = whole[victim.name]
        damage(victim, chance)
        if victim.read_bytes() != before:
            found, notes = load_latest(tmp_path)
            # A changed byte outside the sums themselves (a trailing space, say) may leave the content whole.
            if found.values["step"] == 2:
                assert victim.name == module.SUMS
                assert torch.equal(found.tensors["a"], torch.full((3, 4), 2.0))
            else:
                assert found.values["x"] == 1
                assert "falling back" in notes[0]
        victim.write_bytes(before)


def test_a_missing_file_is_detected(tmp_path):
    folder = save_checkpoint(tmp_path, 1, tensors(1), {})
    (folder / module.VALUES).unlink()
    with pytest.raises(CorruptFileError, match="incomplete"):
        load_checkpoint(folder)
    assert load_latest(tmp_path)[0] is None


def grow(folder: Path) -> None:
    with (folder / module.TENSORS).open("ab") as file:
        file.write(b" ")


def test_damaged_checkpoints_are_set_aside_once_and_never_kept_in_place_of_good_ones(tmp_path):
    for step in (24, 25):
        grow(save_checkpoint(tmp_path, step, tensors(step), {}))
    found, notes = load_latest(tmp_path)
    assert found is None
    assert [path.name for path in tmp_path.glob("step-*")] != []  # only looked at
    found, notes = load_latest(tmp_path, set_aside=True)
    assert found is None
    assert [note.split(";")[1] for note in notes[:2]] == [
        " kept as damaged-step-00000025",
        " kept as damaged-step-00000024",
    ]
    assert notes[2].endswith("the run starts over")
    assert load_latest(tmp_path, set_aside=True) == (None, [])  # told once
    for step in range(1, 12):
        save_checkpoint(tmp_path, step, tensors(step), {})
    assert sorted(path.name for path in tmp_path.glob("step-*")) == ["step-00000010", "step-00000011"]
    assert len(list(tmp_path.glob("damaged-*"))) == 2
    grow(tmp_path / "step-00000011")
    assert load_latest(tmp_path, set_aside=True)[0].values["step"] == 10


def test_the_checkpoint_just_written_is_kept_whatever_lies_beside_it(tmp_path):
    save_checkpoint(tmp_path, 9, tensors(9), {}, keep=1)
    save_checkpoint(tmp_path, 1, tensors(1), {}, keep=1)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO])
@pytest.mark.parametrize("method", ["read_bytes", "iterdir"])
def test_what_cannot_be_read_is_not_damaged_and_stops_the_resume(tmp_path, monkeypatch, number, method):
    save_checkpoint(tmp_path, 1, tensors(1), {})

    def fail(self, **_):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(Path, method, fail)
        with pytest.raises(
            MaskconError, match=f"cannot read .*{os.strerror(number)}.*nothing was changed"
        ) as error:
            load_latest(tmp_path, set_aside=True)
    assert not isinstance(error.value, CorruptFileError)
    assert load_latest(tmp_path)[0].values["step"] == 1


def test_a_sealed_checkpoint_that_lacks_a_tensor_is_not_taken(tmp_path):
    folder = save_checkpoint(tmp_path, 1, tensors(1), {})
    data = safetensors.torch.save({"a": torch.zeros(3, 4)})
    sums = (folder / module.SUMS).read_text().splitlines()
    (folder / module.TENSORS).write_bytes(data)
    (folder / module.SUMS).write_text(f"{hashlib.sha256(data).hexdigest()}  {module.TENSORS}\n{sums[1]}\n")
    with pytest.raises(CorruptFileError, match="not complete: b is missing"):
        load_checkpoint(folder)


def test_a_full_disk_leaves_the_old_checkpoint_and_says_what_to_do(tmp_path, monkeypatch):
    save_checkpoint(tmp_path, 1, tensors(1), {})
    real, calls = module.write_synced, []

    for level in range(3):  # the disk fills at the first, second, third file of a save
        calls.clear()

        def full(path, data, level=level):
            calls.append(path)
            if len(calls) > level:
                path.write_bytes(data[: len(data) // 2])
                raise OSError(28, "No space left on device")
            real(path, data)

        monkeypatch.setattr(module, "write_synced", full)
        with pytest.raises(MaskconError, match=r"No space left.*one before it is intact"):
            save_checkpoint(tmp_path, 2, tensors(2), {})
        assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]
        assert load_latest(tmp_path)[0].values["step"] == 1


def test_a_disk_that_removes_nothing_is_no_reason_not_to_save(tmp_path, monkeypatch):
    for step in range(2, 4):
        save_checkpoint(tmp_path, step, tensors(step), {})
    left = tmp_path / ".step-00000001.tmp"  # by a save that was killed
    left.mkdir()
    (left / "state.json").touch()

    def fail(*_, **__):
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "unlink", fail)
    save_checkpoint(tmp_path, 4, tensors(4), {}, keep=1)
    assert load_latest(tmp_path)[0].values["step"] == 4
    monkeypatch.setattr(module, "write_synced", fail)
    with pytest.raises(MaskconError, match="could not save the checkpoint of step 5"):
        save_checkpoint(tmp_path, 5, tensors(5), {})


def test_values_that_json_does_not_know_are_never_saved(tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        save_checkpoint(tmp_path, 1, tensors(1), {"loss": float("nan")})
    assert load_latest(tmp_path) == (None, [])


def test_values_that_are_no_json_are_damage_even_with_their_checksum(tmp_path):
    folder = save_checkpoint(tmp_path, 1, tensors(1), {})
    contents = {"state.safetensors": (folder / "state.safetensors").read_bytes(), "state.json": b"{"}
    (folder / "state.json").write_bytes(contents["state.json"])
    (folder / "SHA256SUMS").write_bytes(checksums(contents))
    with pytest.raises(CorruptFileError, match="cannot be read"):
        load_checkpoint(folder)


def test_a_damaged_checkpoint_that_cannot_be_set_aside_is_an_error(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(module, "sync_folder", synced.append)
    for step in (1, 2):
        (save_checkpoint(tmp_path, step, tensors(1), {}) / "state.json").write_bytes(b"{")
    synced.clear()
    load_latest(tmp_path, set_aside=True)
    assert synced == [tmp_path, tmp_path]
    (tmp_path / "damaged-step-00000002").rename(tmp_path / "step-00000002")

    def fail(*_):
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(MaskconError, match=r"damaged and cannot be renamed: Permission denied; move it away"):
        load_latest(tmp_path, set_aside=True)
