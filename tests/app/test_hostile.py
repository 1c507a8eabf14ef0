"""Hostile requests: the right status, nothing leaked, nothing crashed; `test_there_are_enough` counts them."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import socket
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from PIL import Image

from tests.app.serving import CLASSES, PER_CLASS, Served, embeddings

COUNT = len(CLASSES) * PER_CLASS
SECRET = b"the-secret-of-this-test"
GETS = (
    *(
        "/",
        "/static/app.js",
        "/api/state",
        "/api/kind?coarse=apple&kind=kind%201",
        "/api/images?ids=0",
        "/api/labels",
    ),
    *("/api/map", "/api/map/progress", "/thumb/0", "/image/0", "/api/check?queue=outliers", "/api/events"),
    *("/api/suggestions?coarse=apple", "/api/sheet", "/api/kinds.csv", "/nothing", "/?token=", "/?token=x"),
)
POSTS = ("/api/edits", "/api/undo", "/api/redo", "/api/follow", "/api/search", "/api/upload", "/api/export")
JSON = {"Content-Type": "application/json"}
OUTSIDE = (5, 6, 7, 8, 9, 10)  # rows whose file is none of the source's


@dataclass(frozen=True)
class Asked:
    """A request and the statuses that answer it; headers of None are not sent."""

    method: str
    path: str
    allowed: tuple[int, ...]
    body: bytes | None = None
    headers: tuple[tuple[str, str], ...] = ()
    token: bool = True


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> Iterator[Served]:
    pytest.importorskip("fastapi")
    from maskcon.retrieval.embeddings_file import read_embeddings, write_embeddings

    folder = tmp_path_factory.mktemp("hostile")
    file = embeddings(folder)
    (folder / "secret.txt").write_bytes(SECRET)
    Image.new("RGB", (8, 8), "red").save(folder / "secret.png")
    photos = folder / "photos" / "0"
    for row, target in ((5, folder / "secret.png"), (6, folder / "secret.txt"), (7, Path("/etc/passwd"))):
        (photos / f"{row:02}.png").unlink()
        (photos / f"{row:02}.png").symlink_to(target)
    (photos / "08.png").unlink()
    os.mkfifo(photos / "08.png")
    found = read_embeddings(file)
    entries = list(found.entries)
    entries[9] = replace(entries[9], path="../secret.png")
    entries[10] = replace(entries[10], path=str(folder / "secret.png"))
    write_embeddings(file, found.header, entries, list(found.vectors))
    running = Served(file)
    yield running
    running.process.kill()
    running.process.communicate()


def without_or_with_wrong_token(served: Served) -> Iterator[Asked]:
    for path in GETS:
        yield Asked("GET", path, (403,), token=False)
    for path in POSTS:
        yield Asked("POST", path, (403,), b"{}", tuple(JSON.items()), token=False)
    token, port = served.token, served.port
    wrong = [
        "",
        "x",
        token[:-1],
        token + "x",
        token.swapcase(),
        f" {token}x",
        "%00",
        "ÿ" * 9,
        "a" * 9000,
        "null",
        '"',
    ]
    for value in wrong:
        yield Asked("GET", "/api/state", (403,), headers=(("X-Maskcon-Token", value),), token=False)
        cookie = (("Cookie", f"maskcon_{port}={value}"),)
        yield Asked("POST", "/api/undo", (403,), b"{}", (*JSON.items(), *cookie), token=False)
    for cookie in (f"maskcon_{port + 1}={token}", f"maskcon={token}", token, f";;=;{token}", "=" * 4000):
        yield Asked("GET", "/api/state", (403,), headers=(("Cookie", cookie),), token=False)
    for path in (
        f"/api/state?token={token}",
        f"/index.html?token={token}",
        f"//?token={token}",
        f"/static?token={token}",
    ):
        yield Asked("GET", path, (403,), token=False)


def of_other_hosts_and_origins(served: Served) -> Iterator[Asked]:
    port = served.port
    hosts = [
        *(
            "evil.example",
            "127.0.0.1",
            "localhost",
            f"127.0.0.1:{port + 1}",
            f"localhost.evil.example:{port}",
            "",
        ),
        *(
            f"127.0.0.1.nip.io:{port}",
            f"0.0.0.0:{port}",
            f"[::1]:{port}",
            f"2130706433:{port}",
            f"127.1:{port}",
        ),
        *(
            f"127.0.0.1:{port}@evil.example",
            f"evil.example#127.0.0.1:{port}",
            f"127.0.0.1:{port},evil.example",
        ),
    ]
    for host, (method, path) in itertools.product(hosts, (("GET", "/api/state"), ("POST", "/api/undo"))):
        body = b"{}" if method == "POST" else None
        yield Asked(method, path, (403, 400), body, (*JSON.items(), ("Host", host)))
    yield Asked("GET", f"/?token={served.token}", (403,), headers=(("Host", "evil.example"),), token=False)
    origins = [
        *(
            "null",
            "http://evil.example",
            "https://evil.example:443",
            f"https://127.0.0.1:{port}",
            "file://",
            "",
        ),
        *(f"http://127.0.0.1:{port + 1}", "http://127.0.0.1", f"http://localhost.evil.example:{port}", "*"),
        *(
            f"http://127.0.0.1:{port}.evil.example",
            f"http://evil.example/127.0.0.1:{port}",
            "chrome-extension://x",
        ),
    ]
    for origin, path in itertools.product(origins, ("/api/edits", "/api/upload", "/api/export")):
        yield Asked("POST", path, (403,), b"{}", (*JSON.items(), ("Origin", origin)))
    for site in ("cross-site", "bogus"):
        yield Asked("POST", "/api/undo", (403,), b"{}", (*JSON.items(), ("Sec-Fetch-Site", site)))
        yield Asked(
            "GET", "/thumb/0", (403,), headers=(("Sec-Fetch-Site", site), ("Sec-Fetch-Mode", "no-cors"))
        )


def to_other_files(_served: Served) -> Iterator[Asked]:
    up = (
        "..",
        "%2e%2e",
        "..%2f",
        "%2e%2e%2f",
        "..%5c",
        "..\\",
        "%c0%ae%c0%ae",
        "....//",
        "..;",
        "%252e%252e%252f",
        ".%00.",
    )
    ends = ("/etc/passwd", "/secret.txt", "/server.py", "/edits.jsonl")
    for part, end in itertools.product(up, ends):
        yield Asked("GET", f"/static/{part}/{part}{end}", (400, 404))
    for path in (
        *(
            "/etc/passwd",
            "//etc/passwd",
            "/static/%2fetc%2fpasswd",
            "/static/server.py",
            "/static/",
            "/static",
            "/.git/config",
        ),
        *(
            "/kinds.npz",
            "/edits.jsonl",
            "/static/index.html%00.js",
            "/static/%00",
            "/static/static",
            "/docs",
            "/openapi.json",
        ),
        *(
            "/thumb/../etc/passwd",
            "/thumb/0.png",
            "/thumb/%2e%2e",
            "/image/file:///etc/passwd",
            "/thumb/-1",
            f"/thumb/{COUNT}",
        ),
        *(
            "/thumb/99999999999999999999",
            "/thumb/1e3",
            "/thumb/0x1",
            "/thumb/0/..",
            "/image/",
            "/thumb/0?size=-1",
        ),
        *(
            "/thumb/0?size=99999",
            "/thumb/0?size=../..",
            "/thumb/NaN",
            "/image/%30%00",
            "/thumb/%D9%A1x",
        ),
    ):
        yield Asked("GET", path, (400, 404))
    for row in OUTSIDE:
        for path in (f"/thumb/{row}?size=64", f"/image/{row}"):
            yield Asked("GET", path, (404,))


def of_wrong_form(_served: Served) -> Iterator[Asked]:
    deep = b"[" * 100_000
    bodies = [
        *(
            b"",
            b"{",
            b"[]",
            b"null",
            b"1",
            b'"x"',
            b"\xff\xfe",
            b"\x00" * 100,
            deep,
            b'{"a":' * 20_000,
            b"{}{}",
            b"NaN",
        ),
        *(
            b'{"action": NaN}',
            b'{"action": 1e999}',
            b'{"ids": [' + b"9" * 5000 + b"]}",
            b'{"action": "rename"}',
        ),
        *(
            b'{"action": "rename", "coarse": "apple", "kind": "kind 1", "to": "\\ud800"}',
            b'{"action": ["rename"]}',
        ),
        *(b'{"action": "move", "ids": "0", "to": "x"}', b'{"action": "move", "ids": [-1], "to": "x"}'),
        *(b'{"action": "move", "ids": [1.5], "to": "x"}', b'{"action": "move", "ids": [[0]], "to": "x"}'),
        *(
            b'{"action": "move", "ids": [99999999999], "to": "x"}',
            b'{"action": "move", "ids": [0, 50], "to": "x"}',
        ),
        *(
            b'{"action": "split", "coarse": "apple", "kind": "kind 1", "parts": 1000000}',
            b'{"action": "__class__"}',
        ),
        *(
            b'{"action": "parts", "coarse": "apple", "kind": "kind 1", "new": {}}',
            b'{"action": "take", "junk": [0]}',
        ),
        *(
            b'{"action": "junk", "ids": [0], "edit_id": 5}',
            b'{"action": "junk", "ids": [0], "__proto__": {}}',
        ),
    ]
    for body in bodies:
        yield Asked("POST", "/api/edits", (400,), body, tuple(JSON.items()))
    for body in bodies[1:14]:
        yield Asked("POST", "/api/search", (400,), body, tuple(JSON.items()))
        yield Asked("POST", "/api/export", (400,), body, tuple(JSON.items()))
    for kind in (
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "",
        "application/jsonx",
    ):
        for path in ("/api/edits", "/api/undo", "/api/search"):
            yield Asked("POST", path, (415,), b"{}", (("Content-Type", kind),))
    for name in (
        "../x",
        "/etc/x",
        "a/b",
        "a\\b",
        "..",
        ".",
        ".hidden",
        "con",
        "x\x00y",
        "x\ny",
        "",
        "y" * 300,
        "~root",
        "=x",
    ):
        body = json.dumps({"links": True, "to": name}).encode()
        yield Asked("POST", "/api/export", (400,), body, tuple(JSON.items()))
    for path in (
        *(
            "/api/kind",
            "/api/kind?coarse=apple",
            "/api/images?ids=x",
            "/api/images?ids=0,-1x",
            "/api/check",
            "/api/check?queue=x",
        ),
        *(
            "/api/images?ids=" + "1," * 5000,
            "/api/images?ids=" + ",".join(["0"] * 501),
            "/thumb/0?size=x",
            "/api/suggestions",
        ),
    ):
        yield Asked("GET", path, (400,))
    for path in (
        "/api/kind?coarse=%00&kind=x",
        "/api/kind?coarse=apple&kind=%F0%9F",
        "/api/suggestions?coarse=plum",
    ):
        yield Asked("GET", path, (409,))
    for path in ("/api/images?ids=-1", f"/api/images?ids={COUNT}", "/api/images?ids=99999999999999"):
        yield Asked("GET", path, (404,))
    for method, path in itertools.product(
        ("PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "PROPFIND"), ("/api/edits", "/thumb/0")
    ):
        yield Asked(method, path, (405,))
    for path in ("/api/edits", "/api/upload"):
        yield Asked("GET", path, (405,))
    yield Asked(
        "POST", "/api/upload", (400,), b"x", (("Content-Type", "application/octet-stream"),)
    )  # no encoder


def of_large_bodies(_served: Served) -> Iterator[Asked]:
    for size in ("8388609", "99999999999999999999", "1" + "0" * 400, "-1", "0x10", "1_0", "ten"):
        yield Asked("POST", "/api/edits", (413, 400), None, (*JSON.items(), ("Content-Length", size)))
    yield Asked("POST", "/api/search", (413,), b" " * (8 << 20) + b"  ", tuple(JSON.items()))
    yield Asked("POST", "/api/upload", (413,), b" " * ((32 << 20) + 1), (("Content-Type", "image/png"),))


def all_of(served: Served) -> Iterator[Asked]:
    for part in (
        without_or_with_wrong_token,
        of_other_hosts_and_origins,
        to_other_files,
        of_wrong_form,
        of_large_bodies,
    ):
        yield from part(served)


def send(served: Served, asked: Asked) -> tuple[int, bytes]:
    """Send a request as it is, byte by byte."""
    headers = dict(asked.headers)
    lines = [
        f"{asked.method} {asked.path.replace(' ', '%20')} HTTP/1.1",
        f"Host: {headers.pop('Host', f'127.0.0.1:{served.port}')}",
    ]
    if asked.token:
        lines.append(f"X-Maskcon-Token: {served.token}")
    if asked.body is not None and "Content-Length" not in headers:
        headers["Content-Length"] = str(len(asked.body))
    lines += [f"{name}: {value}" for name, value in headers.items()]
    content = "\r\n".join([*lines, "Connection: close", "", ""]).encode() + (asked.body or b"")
    return received(served, content)


def received(served: Served, content: bytes) -> tuple[int, bytes]:
    """Send bytes; return the status, 0 for none, and all that came back."""
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as connection:
        connection.settimeout(20)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # refused before all was sent
            connection.sendall(content)
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while part := connection.recv(65536):
                answer += part
    return (int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0), answer


def leaks(answer: bytes, served: Served) -> bool:
    marks = (SECRET, b"root:x:", b"import annotations", served.token.encode(), b"Traceback", b'"base":')
    return any(mark in answer for mark in marks)


def test_there_are_enough(served):
    assert sum(1 for _ in all_of(served)) >= 300


def test_every_hostile_request_gets_its_status_and_leaks_nothing(served, tmp_path):
    revision = served.json("/api/state")["revision"]
    before = sorted(path for path in served.errors.parent.rglob("*") if "photos-kinds" not in str(path))
    wrong = []
    for asked in all_of(served):
        status, answer = send(served, asked)
        policy = b"content-security-policy: default-src 'none'" in answer.lower()
        if status not in asked.allowed or leaks(answer, served) or not (policy or status == 400):
            wrong.append((asked, status, answer[:300]))
    assert wrong == []
    assert served.process.poll() is None
    assert served.json("/api/state")["revision"] == revision
    assert (
        sorted(path for path in served.errors.parent.rglob("*") if "photos-kinds" not in str(path)) == before
    )
    assert "Traceback" not in served.errors.read_text()


@pytest.mark.parametrize(
    "content",
    [
        b"\x00" * 1000,
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 50_000 + b"\r\n",
        b"POST /api/edits HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n",
        b"GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        b"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 200,
        b"GET / HTTP/1.1\r\nHost: evil.example\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    ],
)
def test_what_is_no_request_is_refused(served, content):
    with socket.create_connection(("127.0.0.1", served.port), timeout=5) as connection:
        answer = b""
        with contextlib.suppress(ConnectionError, OSError):
            connection.sendall(content)
            connection.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionError):
            answer = connection.recv(65536)
    assert answer == b"" or int(answer.split(b" ", 2)[1]) in (400, 403, 405, 426, 431)
    assert not leaks(answer, served)
    assert served.json("/api/state")["images"] == COUNT


def test_an_endless_body_is_cut_off(served):
    head = f"POST /api/edits HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nX-Maskcon-Token: {served.token}\r\n"
    head += "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    status, _ = received(served, head.encode() + (b"100000\r\n" + b" " * (1 << 20) + b"\r\n") * 12)
    assert status == 413
    assert served.json("/api/state")["images"] == COUNT


def test_hostile_names_are_kept_as_text(served):
    names = [
        "<script>alert(1)</script>",
        '"><img src=x onerror=alert(1)>',
        "=cmd|' /C calc'!A0",
        "../../x",
        "${7*7}",
        "\u202eevil",
        "%00",
    ]
    for name in names:
        served.json("/api/edits", {"action": "move", "ids": [20, 21], "to": name})
        assert served.json("/api/images?ids=20")["images"][0]["kind"] == name
        sheet = served.get("/api/sheet")[1]
        assert b"<script>alert" not in sheet
        assert b"<img src=x" not in sheet
        assert b"default-src 'none'" in sheet
        _, headers, _ = served.raw("GET", "/api/state", None, {"X-Maskcon-Token": served.token})
        assert (headers["content-type"], headers["x-content-type-options"]) == ("application/json", "nosniff")
        csv = served.get("/api/kinds.csv")[1].decode("utf-8-sig")
        assert f",{name}," not in csv if name.startswith("=") else True
    path = Path(served.json("/api/export", {"links": False})["path"])
    assert all(found.resolve().is_relative_to(path.resolve()) for found in path.rglob("*"))
    assert SECRET not in b"".join(found.read_bytes() for found in path.rglob("*") if found.is_file())


def bomb(width: int, height: int) -> bytes:
    """A PNG that says it is huge."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(b"\0" * 1000))
        + chunk(b"IEND", b"")
    )


def uploads() -> Iterator[tuple[bytes, tuple[int, ...]]]:
    stream = io.BytesIO()
    Image.new("RGB", (40, 30), "blue").save(stream, "PNG")
    good = stream.getvalue()
    yield good, (200,)
    yield good + b"<script>alert(1)</script>", (200,)
    for cut in range(1, len(good) - 12, 9):
        yield good[:cut], (200, 400)  # a picture may be complete without its end
    for content in (
        *(
            b"",
            b"x",
            b"\x00" * 5000,
            b"<svg xmlns='http://www.w3.org/2000/svg'/>",
            b"<html>",
            b"PK\x03\x04" + b"\0" * 90,
        ),
        *(
            b"%!PS-Adobe\n",
            b"%PDF-1.7\n",
            b"GIF89a",
            b"\xff\xd8\xff\xe0",
            b"II*\x00\xff\xff\xff\xff",
            b"P6\n99999 99999\n255\n",
        ),
        *(
            b"BM" + b"\xff" * 60,
            b"RIFF\xff\xff\xff\xffWEBPVP8 ",
            bomb(100_000, 100_000),
            bomb(60_000, 60_000),
            bomb(0, 10),
        ),
        *(b"#!/bin/sh\nid\n", b"\x7fELF" + b"\0" * 64, b"\x80\x04cos\nsystem\n(S'id'\ntR."),
    ):
        yield content, (400,)


def test_hostile_uploads_are_refused_and_the_server_lives(tmp_path):
    pytest.importorskip("fastapi")
    from tests.finished_run import finished_run

    embeddings(tmp_path)
    run = finished_run(tmp_path / "run").folder
    running = Served(run, str(tmp_path / "photos"), "--device", "cpu")
    try:
        headers = (("Content-Type", "application/octet-stream"),)
        wrong = []
        for content, allowed in uploads():
            status, answer = send(running, Asked("POST", "/api/upload", allowed, content, headers))
            if status not in allowed or leaks(answer, running):
                wrong.append((content[:40], status, answer[-200:]))
        assert wrong == []
        assert running.end() == 0
        assert "Traceback" not in running.errors.read_text()
    finally:
        running.process.kill()
        running.process.communicate()
