"""Servers that are really killed amid edits: every acknowledged edit is there again."""

from __future__ import annotations

import http.client
import itertools
import json
import random
import signal
import threading
from pathlib import Path

import pytest

from maskcon.data.kinds_file import read_kinds
from tests.app.serving import CLASSES, PER_CLASS, Served, embeddings
from tests.cli.commands import maskcon

COUNT = len(CLASSES) * PER_CLASS


class Editing(threading.Thread):
    """Moves one image after the other to a name of its own until the server is gone."""

    def __init__(self, served: Served, numbers: itertools.count, kinds: dict[int, set[str]]) -> None:
        super().__init__()
        self.served, self.numbers, self.kinds = served, numbers, kinds
        self.acknowledged = 0

    def run(self) -> None:
        for number in self.numbers:
            image, name = number * 7 % COUNT, f"name {number}"
            body = {"action": "move", "ids": [image], "to": name}
            self.kinds[image] = self.kinds[image] | {name}  # it may be there without an answer
            try:
                self.served.json("/api/edits", body)
            except (OSError, http.client.HTTPException, json.JSONDecodeError):
                return
            self.kinds[image] = {name}
            self.acknowledged += 1


def kill_amid_edits(folder: Path, kills: int) -> tuple[dict[int, set[str]], int]:
    """Return the kinds that each edited image may have, and the number of acknowledged edits."""
    file, numbers = embeddings(folder), itertools.count()
    chance, kinds, acknowledged = random.Random(0), {}, 0
    for _ in range(kills):
        served = Served(file)
        check(served, kinds)
        editing = Editing(served, numbers, kinds)
        editing.start()
        editing.join(chance.uniform(0.05, 1.5))
        assert served.end(signal.SIGKILL) == -signal.SIGKILL
        editing.join(60)
        acknowledged += editing.acknowledged
    return kinds, acknowledged


def check(served: Served, kinds: dict[int, set[str]]) -> None:
    ids = ",".join(map(str, range(COUNT)))
    for image in served.json(f"/api/images?ids={ids}")["images"]:
        assert image["kind"] in kinds.setdefault(image["id"], {image["kind"]})
        kinds[image["id"]] = {image["kind"]}


def killed_and_checked(folder: Path, kills: int) -> None:
    kinds, acknowledged = kill_amid_edits(folder, kills)
    assert acknowledged >= 3 * kills
    served = Served(folder / "photos.parquet")
    check(served, kinds)
    assert served.json("/api/state")["revision"] >= acknowledged
    assert served.end() == 0
    rows = read_kinds(folder / "photos-kinds" / "kinds.csv")
    for image, names in kinds.items():
        assert rows[image].kind in names


def test_every_acknowledged_edit_is_there_after_three_kills(tmp_path):
    pytest.importorskip("fastapi")
    killed_and_checked(tmp_path, 3)


@pytest.mark.slow
def test_every_acknowledged_edit_is_there_after_twenty_kills(tmp_path):
    pytest.importorskip("fastapi")
    killed_and_checked(tmp_path, 20)


def test_a_kill_between_writing_and_syncing_an_edit_harms_no_other(tmp_path):
    pytest.importorskip("fastapi")
    file = embeddings(tmp_path)
    served = Served(file, MASKCON_FAILPOINT="edit-before-sync:3")
    served.json("/api/edits", {"action": "move", "ids": [0], "to": "A"})
    served.json("/api/edits", {"action": "junk", "ids": [1]})
    with pytest.raises((OSError, http.client.HTTPException)):
        served.json("/api/undo", {})
    assert served.process.wait(60) == 99
    served = Served(file)
    first, second = served.json("/api/images?ids=0,1")["images"]
    assert first["kind"] == "A"
    assert served.json("/api/state")["revision"] in (2, 3)
    assert second["role"] == "junk" or served.json("/api/state")["revision"] == 3
    assert served.end() == 0


@pytest.mark.slow
def test_kinds_takes_over_the_edits_of_a_killed_explorer(tmp_path):
    pytest.importorskip("fastapi")
    from tests.finished_run import finished_run

    embeddings(tmp_path)
    run = finished_run(tmp_path / "run").folder
    served = Served(run, str(tmp_path / "photos"), "--device", "cpu")
    served.json("/api/edits", {"action": "move", "ids": [0, 1, 2], "to": "Gala"})
    served.json("/api/edits", {"action": "junk", "ids": [50]})
    served.end(signal.SIGKILL)
    assert not any(row.kind == "Gala" for row in read_kinds(run / "kinds" / "kinds.csv"))  # it is behind
    done = maskcon("kinds", str(run), "--device", "cpu", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = read_kinds(run / "kinds" / "kinds.csv")
    assert [row.kind for row in rows[:3]] == ["Gala"] * 3
    assert rows[50].role == "junk"
    again = maskcon("kinds", str(run), "--device", "cpu", cwd=tmp_path)
    assert "nothing changed" in again.stdout
    assert read_kinds(run / "kinds" / "kinds.csv") == rows
