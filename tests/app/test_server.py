"""The explorer as its page meets it: a process, asked over HTTP."""

from __future__ import annotations

import http.client
import io
import json
import signal
import socket
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from maskcon.data.kinds_file import read_kinds
from tests.app.serving import CLASSES, PER_CLASS, Served, embeddings
from tests.cli.commands import maskcon

COUNT = len(CLASSES) * PER_CLASS
APPLE = {"coarse": "apple"}


def test_the_state_lists_every_class_with_its_kinds(served):
    state = served.json("/api/state")
    assert {group["name"] for group in state["classes"]} == set(CLASSES)
    assert state["images"] == COUNT
    assert not state["can_upload"]
    apple = next(group for group in state["classes"] if group["name"] == "apple")
    assert [kind["size"] for kind in apple["kinds"]] == [20, 20]
    assert len(apple["kinds"][0]["typical"]) == 7
    assert "photos-kinds/kinds.csv" in state["command"]
    shown = served.json("/api/images?ids=0,41")["images"]
    assert [(image["id"], image["path"], image["coarse"]) for image in shown] == [
        (0, "0/00.png", "apple"),
        (41, "1/01.png", "pear"),
    ]


def test_a_kind_lists_its_images_the_most_typical_first(served):
    kind = served.json("/api/images?ids=39")["images"][0]["kind"]
    images = served.json(f"/api/kind?coarse=apple&kind={kind.replace(' ', '%20')}")["images"]
    assert {image["id"] % 2 for image in images} == {1}
    roles = [image["role"] for image in images]
    assert roles[0] == "typical"
    order = ["typical", "", "borderline", "outlier", "junk"]
    assert roles == sorted(roles, key=order.index)


def test_labels_agree_with_the_state(served):
    content = served.get("/api/labels")[1]
    assert len(content) == 6 * COUNT
    coarse, kind = np.frombuffer(content[: 4 * COUNT], "<u2").reshape(2, COUNT)
    state = served.json("/api/state")
    names = [(group["name"], kind["name"]) for group in state["classes"] for kind in group["kinds"]]
    for image in served.json("/api/images?ids=0,1,50,100")["images"]:
        assert names[kind[image["id"]]] == (image["coarse"], image["kind"])
        assert state["classes"][coarse[image["id"]]]["name"] == image["coarse"]


def test_the_map_places_every_image_at_once_and_improves(served):
    status, headers, content = served.raw("GET", "/api/map", None, {"X-Maskcon-Token": served.token})
    assert status == 200
    points = np.frombuffer(content, "<f4").reshape(COUNT, 2)
    assert np.abs(points).max() <= 1
    for _ in range(100):
        _, headers, better = served.raw("GET", "/api/map", None, {"X-Maskcon-Token": served.token})
        if headers["x-map"] == "tsne":
            break
        time.sleep(0.2)
    assert headers["x-map"] == "tsne"
    assert np.isfinite(np.frombuffer(better, "<f4")).all()


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="no /proc")
def test_the_server_shrinks_images_without_loading_torch(tmp_path):
    file = embeddings(tmp_path)
    Image.new("RGB", (300, 200)).save(tmp_path / "photos" / "0" / "00.png")
    server = Served(file)
    try:
        status, content = server.get("/thumb/0?size=64")
        assert status == 200
        assert Image.open(io.BytesIO(content)).size == (64, 43)
        assert "libtorch" not in Path(f"/proc/{server.process.pid}/maps").read_text()
    finally:
        server.end()


def test_thumbnails_are_encoded_again_at_the_size_asked_for(served):
    for path, size in (("/thumb/0?size=64", (30, 20)), ("/image/0", (30, 20))):
        status, content = served.get(path)
        assert status == 200
        assert Image.open(io.BytesIO(content)).size == size
    assert served.get("/thumb/0?size=65")[0] == 400
    assert served.get(f"/thumb/{COUNT}")[0] == 404
    assert served.get("/thumb/-1")[0] == 404


def test_search_finds_the_own_kind_and_leaves_out_what_is_not_wanted(served):
    found = served.json("/api/search", {"positive": [0, 2], "negative": [1], "k": 5})["results"]
    assert {hit["id"] % 2 for hit in found} == {0}
    assert {hit["id"] for hit in found}.isdisjoint({0, 2})
    assert all(hit["id"] < PER_CLASS for hit in found)
    only = served.json("/api/search", {"positive": [0], "coarse": "pear", "k": 100})["results"]
    assert len(only) == PER_CLASS
    assert served.ask("/api/search", {"positive": []})[0] == 400
    assert served.ask("/api/search", {"positive": [1], "negative": [1]})[0] == 400


def test_an_edit_with_a_known_id_is_answered_again_and_not_applied_twice(served):
    kind = served.json("/api/images?ids=2")["images"][0]["kind"]
    body = {"action": "rename", **APPLE, "kind": kind, "to": "Gala", "edit_id": "abcdef0123456789"}
    first = served.json("/api/edits", body)
    assert served.json("/api/edits", body) == first
    assert served.json("/api/undo", {"edit_id": "u1"})["revision"] == first["revision"] + 1
    assert served.json("/api/undo", {"edit_id": "u1"})["revision"] == first["revision"] + 1
    assert served.ask("/api/undo", {})[0] == 409
    assert served.ask("/api/edits", {"action": "rename", **APPLE, "kind": "gone", "to": "x"})[0] == 409
    assert served.ask("/api/edits", {"action": "burn"})[0] == 400


def test_queues_find_what_was_put_there(tmp_path):
    pytest.importorskip("fastapi")
    from maskcon.retrieval.embeddings_file import read_embeddings, write_embeddings

    file = embeddings(tmp_path)
    found = read_embeddings(file)
    entries, vectors = list(found.entries), found.vectors
    vectors[3] = vectors[50]  # an apple among pears
    vectors[81] = vectors[80] + 0.001
    (tmp_path / "photos/2/01.png").write_bytes((tmp_path / "photos/2/00.png").read_bytes())
    write_embeddings(file, found.header, entries, list(vectors))
    running = Served(file)
    try:
        items = {}
        for queue in ("mislabelled", "duplicates", "outliers"):
            for _ in range(100):
                status, answer = running.ask(f"/api/check?queue={queue}")
                if status == 200:
                    break
                assert status == 202
                time.sleep(0.2)
            items[queue] = answer["items"]
        assert [item["ids"] for item in items["mislabelled"]] == [[3]]
        assert "are pear" in items["mislabelled"][0]["reason"]
        assert [item["ids"] for item in items["duplicates"]] == [[80, 81]]
        assert all(len(item["ids"]) == 1 for item in items["outliers"])
        running.json("/api/edits", {"action": "junk", "ids": [3]})
        assert running.json("/api/check?queue=mislabelled")["items"] == []
        # a few named images suggest the name for the others of their kind
        ids = list(range(0, 20, 2))
        running.json("/api/edits", {"action": "move", "ids": ids, "to": "Gala"})
        (item,) = running.json("/api/suggestions?coarse=apple")["items"]
        assert item["kind"] == "Gala"
        assert set(item["ids"]) <= set(range(20, 40, 2))
        assert len(item["ids"]) >= 5
        running.json("/api/edits", {"action": "reject", "ids": item["ids"][:3], "kind": "Gala"})
        (left,) = running.json("/api/suggestions?coarse=apple")["items"]
        assert left["ids"] == item["ids"][3:]
        running.json("/api/edits", {"action": "keep", "ids": [80, 81], "queue": "duplicates"})
        assert running.json("/api/check?queue=duplicates")["items"] == []
        running.process.kill()  # they are known after it
        running.process.communicate()
        running = Served(file)
        assert running.json("/api/suggestions?coarse=apple")["items"] == [left]
        running.json("/api/undo", {})
        running.json("/api/undo", {})
        assert running.json("/api/suggestions?coarse=apple")["items"] == [item]
    finally:
        assert running.end() == 0


def test_the_end_writes_kinds_csv_which_the_next_start_continues(tmp_path):
    pytest.importorskip("fastapi")
    file = embeddings(tmp_path)
    running = Served(file)
    second = maskcon("explore", str(file), "--no-browser", cwd=tmp_path)
    assert second.returncode == 2
    assert "`maskcon explore` or another command has" in second.stderr
    running.json("/api/edits", {"action": "move", "ids": [0, 1], "to": "Gala"})
    assert running.end(signal.SIGTERM) == 0
    folder = tmp_path / "photos-kinds"
    assert sum(row.kind == "Gala" for row in read_kinds(folder / "kinds.csv")) == 2
    text = (folder / "kinds.csv").read_text("utf-8-sig").replace("Gala", "Fuji")
    (folder / "kinds.csv").write_text(text, "utf-8")  # by hand, while no server runs
    running = Served(file)
    state = running.json("/api/state")
    assert state["last_edit"] == "took over kinds.csv: 2 images changed"
    assert state["revision"] == 2
    assert running.json("/api/undo", {})["revision"] == 3
    assert running.json("/api/images?ids=0")["images"][0]["kind"] == "Gala"
    assert running.end() == 0
    assert "Traceback" not in running.errors.read_text()


def test_a_file_changed_by_hand_meanwhile_stays_and_is_taken_over_at_the_next_start(tmp_path):
    pytest.importorskip("fastapi")
    file, csv = embeddings(tmp_path), tmp_path / "photos-kinds" / "kinds.csv"
    running = Served(file)
    running.json("/api/edits", {"action": "move", "ids": [0, 1, 2], "to": "Gala"})
    until(lambda: csv.read_text("utf-8-sig").count("Gala") == 3)
    csv.write_text(csv.read_text("utf-8-sig").replace("0/00.png,apple,Gala", "0/00.png,apple,Fuji"), "utf-8")
    by_hand = csv.read_bytes()
    assert by_hand.count(b"Fuji") == 1
    running.json("/api/edits", {"action": "move", "ids": [3], "to": "Gala"})
    until(lambda: running.json("/api/state")["problem"])
    running.json("/api/edits", {"action": "junk", "ids": [4]})
    assert "changed by hand" in running.json("/api/state")["problem"]
    assert running.end() == 0
    assert csv.read_bytes() == by_hand
    assert "kinds.csv was changed by hand" in running.errors.read_text()
    running = Served(file)
    images = running.json("/api/images?ids=0,1,2,3,4")["images"]
    assert [image["kind"] for image in images[:4]] == ["Fuji", "Gala", "Gala", "Gala"]
    assert images[4]["role"] == "junk"
    assert running.json("/api/state")["last_edit"] == "took over kinds.csv: 1 image changed"
    assert running.end() == 0
    assert [row.kind for row in read_kinds(csv)[:4]] == ["Fuji", "Gala", "Gala", "Gala"]


def test_an_end_without_an_edit_leaves_a_file_changed_by_hand(tmp_path):
    pytest.importorskip("fastapi")
    file, csv = embeddings(tmp_path), tmp_path / "photos-kinds" / "kinds.csv"
    running = Served(file)
    running.json("/api/state")  # it answers: now it ends as it should
    by_hand = csv.read_bytes().replace(b"kind 1", b"Gala")
    csv.write_bytes(by_hand)
    assert running.end() == 0
    assert csv.read_bytes() == by_hand
    assert "kinds.csv was changed by hand" in running.errors.read_text()


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        ({"method": "teachcon", "w": 0.8, "tau": 0.05}, "--method teachcon --w 0.8 --tau 0.05"),
        (
            {"method": "maskcon", "tau": float("inf"), "freeze": True},
            "--freeze --method maskcon --w 1 --tau inf",
        ),
        ({"method": "grafit", "freeze": True, "thaw": 2}, "--thaw 2 --method grafit --w 1"),
        ({"method": "supcon"}, "--method supcon"),
        ({"method": "selfcon"}, ""),  # it has no relation that names could refine
    ],
)
def test_the_command_shown_trains_as_the_run_was(settings, options, tmp_path):
    from types import SimpleNamespace

    from maskcon.app.startup import _train_command
    from maskcon.config.settings import RunConfig

    config = RunConfig(source=str(tmp_path), **settings)
    kinds = SimpleNamespace(classes={"apple": None})
    words = ["maskcon", "train", str(tmp_path), "--fine", str(tmp_path / "kinds.csv"), *options.split()]
    assert _train_command(str(tmp_path), tmp_path / "kinds.csv", kinds, None, config) == " ".join(words)


def test_the_methods_that_take_names_are_those_of_the_registry():
    from maskcon.app.startup import NAMED_METHODS
    from maskcon.methods.registry import all_methods

    found = {
        method.name: tuple(name for name in ("w", "tau") if getattr(method, f"uses_{name}"))
        for method in all_methods()
        if method.uses_names
    }
    assert found == NAMED_METHODS


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="127.0.0.2 is of Linux")
def test_a_server_for_other_machines_answers_to_the_address_of_a_request_and_to_no_name(tmp_path):
    pytest.importorskip("fastapi")
    running = Served(embeddings(tmp_path), "--host", "0.0.0.0")
    port = running.port

    def status(host: str, origin: str | None = None) -> int:
        connection = http.client.HTTPConnection("127.0.0.2", port, timeout=20)
        headers = {"Host": host, "X-Maskcon-Token": running.token, "Content-Type": "application/json"}
        try:
            connection.request("POST", "/api/undo", "{}", headers | ({"Origin": origin} if origin else {}))
            return connection.getresponse().status
        finally:
            connection.close()

    try:
        here = f"127.0.0.2:{port}"
        assert status(here) == status(here, f"http://{here}") == 409  # let in; there is nothing to undo
        for host in (f"127.0.0.2:{port + 1}", "127.0.0.2", f"127.0.0.3:{port}", f"evil.example:{port}"):
            assert status(host) == status(here, f"http://{host}") == 403, host
        assert status(f"{socket.gethostname()}:{port}") == 403
    finally:
        running.end()


def test_the_address_is_printed_even_if_all_else_is_to_be_quiet(tmp_path):
    pytest.importorskip("fastapi")
    running = Served(embeddings(tmp_path), "--quiet")  # reads the address
    running.json("/api/state")
    running.process.send_signal(signal.SIGINT)
    out, _ = running.process.communicate(timeout=60)
    assert out == b""
    assert running.errors.read_text() == ""


def until(holds):
    begun = time.monotonic()
    while not holds():
        assert time.monotonic() - begun < 30
        time.sleep(0.1)


def test_a_missing_extra_is_told_with_its_command(monkeypatch, tmp_path):
    import importlib.util

    from tests.cli.in_process import refused

    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "fastapi" else find(name, *rest)
    )
    text = refused("explore", str(tmp_path))
    assert text == "`maskcon explore` needs fastapi; install with: pip install 'maskcon[app]'"


def test_questions_bring_their_answers_as_edits(served):
    items = served.json("/api/ask?n=6")["items"]
    assert len(items) == 6
    (first,) = items[0]["ids"]
    own, other = items[0]["answers"][:2]
    assert own == {
        "label": items[0]["kind"],
        "edit": {"action": "keep", "ids": [first], "queue": "ask"},
    }
    assert other["edit"] == {"action": "move", "ids": [first], "to": other["label"]}
    for answer in (own, other):
        served.json("/api/edits", answer["edit"])
        assert [first] not in [
            item["ids"] for item in served.json("/api/ask?n=200")["items"]
        ]  # it is known now
        assert np.flatnonzero(np.frombuffer(served.get("/api/labels")[1][-COUNT:], "u1") >= 128) == [first]
        served.json("/api/undo", {})
        assert [first] in [item["ids"] for item in served.json("/api/ask?n=200")["items"]]


def test_other_images_follow_the_answers_as_after_maskcon_ask(tmp_path):
    pytest.importorskip("fastapi")
    from dataclasses import replace

    from maskcon.discovery.kinds_folder import read_folder
    from maskcon.discovery.questions import apply_answers
    from maskcon.discovery.session import embedded_of
    from maskcon.retrieval.embeddings_file import read_embeddings

    file = embeddings(tmp_path)
    running = Served(file)
    try:
        assert running.ask("/api/follow", {})[0] == 409
        names = {0: "Gala", 2: "Fuji", 42: "Conference", 43: "Abate"}
        for row, name in names.items():
            running.json("/api/edits", {"action": "move", "ids": [row], "to": name})
        running.json("/api/edits", {"action": "keep", "ids": [1], "queue": "ask"})
        kinds, _ = read_folder(tmp_path / "photos-kinds")
        answers = [replace(kinds.rows[row], kind=name) for row, name in names.items()] + [kinds.rows[1]]
        expected = apply_answers(kinds, answers, embedded_of(read_embeddings(file))).rows
        assert sum(was.kind != now.kind for was, now in zip(kinds.rows, expected, strict=True)) > 30
        assert running.json("/api/follow", {})["change"].startswith("took over answers: ")
        ids = ",".join(map(str, range(COUNT)))
        now = [image["kind"] for image in running.json(f"/api/images?ids={ids}")["images"]]
        assert now == [row.kind for row in expected]
        running.process.kill()  # it is known after it
        running.process.communicate()
        running = Served(file)
        assert running.json("/api/undo", {})["change"].startswith("undone: took over answers")
        images = running.json("/api/images?ids=0,4")["images"]
        assert [image["kind"] for image in images] == ["Gala", kinds.rows[4].kind]
    finally:
        running.end()


def test_events_tell_other_tabs_of_a_change(served):
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=20)
    connection.request("GET", "/api/events", headers={"X-Maskcon-Token": served.token})
    response = connection.getresponse()
    assert response.getheader("content-type", "").startswith("text/event-stream")
    assert b"revision" in response.readline()
    response.readline()
    revision = served.json("/api/edits", {"action": "junk", "ids": [7]})["revision"]
    begun = time.monotonic()
    while f'"revision": {revision}'.encode() not in response.readline():
        assert time.monotonic() - begun < 5
    connection.close()
    served.json("/api/undo", {})


def test_the_images_of_a_run_itself_are_shown_from_its_folder(tmp_path):
    pytest.importorskip("fastapi")
    from maskcon.data import load
    from tests.finished_run import finished_run

    embeddings(tmp_path)
    for name in "012":
        (tmp_path / "photos" / name).rename(tmp_path / "photos" / f"class {name}")
    run = finished_run(tmp_path / "run", load(str(tmp_path / "photos")), source=str(tmp_path / "photos"))
    done = maskcon("kinds", str(run.folder), "--device", "cpu", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    running = Served(run.folder)
    try:
        status, content = running.get("/thumb/0?size=64")
        assert status == 200, content
        assert Image.open(io.BytesIO(content)).size == (30, 20)
        state = running.json("/api/state")
        assert state["command"].startswith(f"maskcon train {tmp_path / 'photos'} --fine ")
        assert state["command"].endswith("kinds.csv --method maskcon --w 1 --tau 0.1")
        assert state["can_upload"]
        headers = {"X-Maskcon-Token": running.token, "Content-Type": "application/octet-stream"}
        picture = (tmp_path / "photos" / running.json("/api/images?ids=5")["images"][0]["path"]).read_bytes()
        status, _, answer = running.raw("POST", "/api/upload", picture, headers)
        assert status == 200, answer
        assert json.loads(answer) == {"upload": "u1", "width": 30, "height": 20}
        (best, *_) = running.json("/api/search", {"uploads": ["u1"], "k": 3})["results"]
        assert best["id"] == 5
        assert best["score"] > 0.999
        assert running.ask("/api/search", {"uploads": ["u9"]})[0] == 400
    finally:
        running.end()
