"""How long threads wait, and how many cores are free for them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from maskcon._utils import threads
from maskcon._utils.threads import SHORT_WAITS, free_cores, spin_briefly, usable_cores

# The command line with torch replaced by one that only tells what is set when it is imported.
TELLING = "import os; print(*(os.environ.get(name) for name in ('GOMP_SPINCOUNT', 'KMP_BLOCKTIME'))); raise SystemExit"


@pytest.fixture
def unset(monkeypatch):
    """Variables as before afterwards: the function writes to the environment by itself."""
    monkeypatch.setattr(os, "environ", {"PATH": os.environ["PATH"]})


@pytest.mark.usefixtures("unset")
def test_threads_spin_briefly_where_nothing_is_set():
    spin_briefly()
    assert {name: os.environ[name] for name in SHORT_WAITS} == SHORT_WAITS


@pytest.mark.usefixtures("unset")
@pytest.mark.parametrize("name", [*SHORT_WAITS, "OMP_WAIT_POLICY"])
def test_what_the_user_has_set_stays(name):
    os.environ[name] = "theirs"
    spin_briefly()
    assert os.environ[name] == "theirs"
    if name == "OMP_WAIT_POLICY":  # it is about the same waiting, in all libraries
        assert not SHORT_WAITS.keys() & os.environ.keys()


@pytest.mark.parametrize(("given", "told"), [({}, "3000 1"), ({"GOMP_SPINCOUNT": "7"}, "7 1")])
def test_a_command_sets_it_before_torch_is_imported(tmp_path, given, told):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(TELLING)
    kept = {name: value for name, value in os.environ.items() if name not in SHORT_WAITS}
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(
        [sys.executable, "-m", "maskcon", "train", "embedded", "--out", str(tmp_path / "run")],
        env={**kept, "PYTHONPATH": path, **given},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == told, done.stderr


def stat(monkeypatch, tmp_path, *shares: float) -> None:
    """A machine with cores that are busy for these shares of half a second of somebody's sleep."""
    path = tmp_path / "stat"

    def write(seconds: float) -> None:
        rows = [f"cpu{n} {round(100 * share * seconds)} 0 0 50 0 0 0 0 0 0" for n, share in enumerate(shares)]
        path.write_text("\n".join(["cpu  1 2 3 4 5 6 7", *rows, "intr 1 2", "ctxt 3"]))

    clock = iter([0.0, 0.5])
    write(0.0)
    monkeypatch.setattr(threads, "STAT", path)
    monkeypatch.setattr(threads.os, "sched_getaffinity", lambda _: set(range(len(shares))), raising=False)
    monkeypatch.setattr(threads.time, "sleep", write)
    monkeypatch.setattr(threads.time, "process_time", lambda: 0.0)
    monkeypatch.setattr(threads.time, "perf_counter", lambda: next(clock))


@pytest.mark.parametrize(
    ("shares", "free"),
    [((0, 0, 0, 0), 4), ((1, 0, 0, 0), 3), ((0.5, 0.5, 0, 0), 3), ((0.1, 0.1, 0.1, 0), 4), ((1, 1, 1, 1), 1)],
)
def test_free_cores_fall_by_the_busy_ones_but_one_is_left(monkeypatch, tmp_path, shares, free):
    stat(monkeypatch, tmp_path, *shares)
    assert free_cores(0.5) == free


def test_work_of_this_process_is_not_that_of_others(monkeypatch, tmp_path):
    stat(monkeypatch, tmp_path, 1, 0)
    own = iter([3.0, 3.5])
    monkeypatch.setattr(threads.time, "process_time", lambda: next(own))
    assert free_cores(0.5) == 2


def test_cores_that_this_process_may_not_use_do_not_count(monkeypatch, tmp_path):
    stat(monkeypatch, tmp_path, 1, 0, 0)
    monkeypatch.setattr(threads.os, "sched_getaffinity", lambda _: {1, 2}, raising=False)
    assert (usable_cores(), free_cores(0.5)) == (2, 2)


def test_without_proc_the_load_of_the_last_minute_counts(monkeypatch, tmp_path):
    monkeypatch.setattr(threads, "STAT", tmp_path / "none")
    monkeypatch.setattr(threads, "usable_cores", lambda: 8)
    monkeypatch.setattr(threads.os, "getloadavg", lambda: (2.6, 9.0, 9.0), raising=False)
    assert free_cores() == 5
    monkeypatch.delattr(threads.os, "getloadavg")
    assert free_cores() == 8
