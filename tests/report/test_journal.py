from __future__ import annotations

import json
import math
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskcon._utils.errors import CorruptFileError, UsageError
from maskcon.training.journal import Journal, read_journal


def write_steps(path: Path, first: int, last: int) -> None:
    with Journal(path) as journal:
        for step in range(first, last + 1):
            journal.write("step", step=step, epoch=step // 4, loss=1.0 / step)
            if step == 5:
                journal.write("warning", message="belongs to step 5")


def test_what_was_written_is_read_back_in_order(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "journal.jsonl"
    with Journal(path) as journal:
        journal.write("start", settings={"name": "Käfer\n\u2028", "folder": tmp_path})
        journal.write(
            "evaluation", step=3, epoch=1, recall={1: 0.5, 10: 0.75}, effective_rank=np.float32(2.5)
        )
    start, evaluation = read_journal(path)
    assert start == {"kind": "start", "settings": {"name": "Käfer\n\u2028", "folder": str(tmp_path)}}
    assert evaluation["recall"] == {"1": 0.5, "10": 0.75}
    assert evaluation["effective_rank"] == 2.5


def test_each_line_is_on_disk_before_write_returns(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    journal.write("step", step=1)
    assert path.read_bytes() == b'{"kind": "step", "step": 1}\n'
    journal.close()
    journal.close()
    with pytest.raises(ValueError, match="closed"):
        journal.write("step", step=2)


def test_nan_and_infinity_become_null_without_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with Journal(path) as journal:
            journal.write("step", step=1, loss=math.nan, worst=[math.inf, {"x": np.float64("-inf")}], ok=0.5)
    (event,) = read_journal(path)
    assert event == {"kind": "step", "step": 1, "loss": None, "worst": [None, {"x": None}], "ok": 0.5}
    assert "NaN" not in path.read_text()


def test_numpy_values_become_plain_ones(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal(path) as journal:
        journal.write("x", count=np.int64(3), flag=np.bool_(True), rows=np.array([[1.0, np.nan]]), none=None)
    assert read_journal(path) == [
        {"kind": "x", "count": 3, "flag": True, "rows": [[1.0, None]], "none": None}
    ]


def test_a_value_that_json_cannot_hold_is_refused_and_leaves_no_line(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal(path) as journal:
        with pytest.raises(TypeError, match="object"):
            journal.write("step", step=1, bad=object())
        journal.write("step", step=2)
    assert [event["step"] for event in read_journal(path)] == [2]


@pytest.mark.parametrize("cut", range(1, 28))
def test_a_line_torn_at_any_byte_is_passed_over_and_then_repaired(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "journal.jsonl"
    whole, last = b'{"kind": "step", "step": 1}\n', b'{"kind": "step", "step": 2}\n'
    path.write_bytes(whole + last[:cut])
    steps = [1, 2] if cut >= len(last) - 1 else [1]  # only the newline is missing: nothing is lost
    assert [event["step"] for event in read_journal(path)] == steps
    with Journal(path) as journal:
        journal.write("step", step=3)
    assert [event["step"] for event in read_journal(path)] == [*steps, 3]
    assert all(json.loads(line) for line in path.read_text().splitlines())


@pytest.mark.parametrize("tail", [b"\0" * 300, b"\0\0\n", b"\xff\xfe\n", b"7\n", b"{}\n", b"[" * 100_000])
def test_rubbish_at_the_end_is_cut_off_on_open(tmp_path: Path, tail: bytes) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b'{"kind": "step", "step": 1}\n' + tail)
    Journal(path).close()
    assert path.read_bytes() == b'{"kind": "step", "step": 1}\n'


def test_damage_in_the_middle_is_reported_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b'{"kind": "a"}\n{"kin\n{"kind": "b"}\n')
    with pytest.raises(CorruptFileError, match="line 2"):
        read_journal(path)


def test_a_missing_journal_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no journal"):
        read_journal(tmp_path / "none.jsonl")


def test_an_unwritable_place_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="another output folder"):
        Journal(tmp_path / "file" / "journal.jsonl")


@pytest.mark.parametrize("saved_at", [0, 1, 4, 5, 9])
def test_a_resumed_journal_equals_an_undisturbed_one(tmp_path: Path, saved_at: int) -> None:
    write_steps(tmp_path / "whole.jsonl", 1, 12)
    disturbed = tmp_path / "disturbed.jsonl"
    write_steps(disturbed, 1, saved_at)
    with Journal(disturbed) as journal:
        position = journal.position()  # kept with the checkpoint
    write_steps(disturbed, saved_at + 1, 9)
    with disturbed.open("ab") as file:
        file.write(b'{"kind": "st')  # the kill
    with Journal(disturbed) as journal:
        journal.rewind(position)
    write_steps(disturbed, saved_at + 1, 12)
    assert disturbed.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


def test_rewinding_beyond_the_end_or_into_a_line_leaves_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    write_steps(path, 1, 3)
    before = path.read_bytes()
    with Journal(path) as journal:
        journal.rewind(10 * len(before))
        assert path.read_bytes() == before
        journal.rewind(len(before) - 5)
        assert [event["step"] for event in read_journal(path)] == [1, 2]
        journal.write("step", step=3, again=True)
    assert read_journal(path)[-1] == {"kind": "step", "step": 3, "again": True}


plain_json = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**60), 2**60),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(),
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(
    events=st.lists(
        st.dictionaries(st.text().filter(lambda key: key not in ("kind", "self")), plain_json, max_size=4),
        max_size=4,
    )
)
def test_any_plain_value_survives_the_round_trip(
    tmp_path_factory: pytest.TempPathFactory, events: list[dict[str, object]]
) -> None:
    path = tmp_path_factory.mktemp("journal") / "journal.jsonl"
    with Journal(path) as journal:
        for event in events:
            journal.write("any", **event)
    assert read_journal(path) == [{"kind": "any", **event} for event in events]


def test_a_killed_writer_loses_no_line_it_had_written(tmp_path: Path) -> None:
    path, seen = tmp_path / "journal.jsonl", tmp_path / "seen"
    program = (
        "import sys\nfrom maskcon.training.journal import Journal\n"
        "journal, seen, step = Journal(sys.argv[1]), open(sys.argv[2], 'wb', buffering=0), 0\n"
        "while True:\n    step += 1\n    journal.write('step', step=step)\n    seen.write(b'.')\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program, str(path), str(seen)])
    try:
        deadline = time.monotonic() + 20
        while (not seen.exists() or seen.stat().st_size < 50) and time.monotonic() < deadline:
            time.sleep(0.01)
    finally:
        process.kill()
        process.wait()
    steps = [event["step"] for event in read_journal(path)]
    assert seen.stat().st_size >= 50
    assert len(steps) >= seen.stat().st_size
    assert steps == list(range(1, len(steps) + 1))
