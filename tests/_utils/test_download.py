from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import os
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from maskcon._utils import download
from maskcon._utils.download import fetch
from maskcon._utils.errors import CorruptFileError, DataError
from maskcon._utils.files import write_all

CONTENT = bytes(range(256)) * 4000  # about 1 MB
SHA256 = hashlib.sha256(CONTENT).hexdigest()
MD5 = hashlib.md5(CONTENT).hexdigest()
CHECKED = {"algorithm": "sha256", "digest": SHA256}


class Server(ThreadingHTTPServer):
    """Serves CONTENT, with faults as the test sets them."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content = CONTENT
        self.honours_range = True
        self.shifted_range = False
        self.cut_after: list[int] = []  # bytes after which the next transfers are broken off
        self.meanwhile: Callable[[], None] = lambda: None  # happens between the halves of an answer
        self.statuses: list[int] = []  # answered first, one a request
        self.sends_length = True
        self.redirect_to: str | None = None
        self.ranges: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/file.bin"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        server = self.server
        asked = self.headers.get("Range")
        server.ranges.append(asked)
        if server.statuses:
            self.send_error(server.statuses.pop(0))
            return
        if server.redirect_to is not None:
            self.send_response(302)
            self.send_header("Location", server.redirect_to)
            self.end_headers()
            return
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and server.honours_range else 0
        if start >= len(server.content) and start:
            self.send_error(416)
            return
        body = server.content[start:]
        self.send_response(206 if start else 200)
        if start:
            first = start + 1 if server.shifted_range else start
            self.send_header(
                "Content-Range", f"bytes {first}-{len(server.content) - 1}/{len(server.content)}"
            )
        if server.sends_length:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        body = body[: server.cut_after.pop(0)] if server.cut_after else body
        with contextlib.suppress(ConnectionError):  # of a client that had enough
            self.wfile.write(body[: len(body) // 2])
            server.meanwhile()
            self.wfile.write(body[len(body) // 2 :])


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(download, "BACKOFF_SECONDS", 0.001)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(download, "_OPENER", download._build_opener())
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield running
        running.shutdown()


def only_file(folder: Path) -> str:
    (path,) = folder.iterdir()
    return path.name


def test_file_arrives_under_its_name_with_progress(server: Server, tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    target = tmp_path / "new" / "file.bin"
    found = fetch(
        server.url,
        target,
        **CHECKED,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert found == target
    assert target.read_bytes() == CONTENT
    assert only_file(target.parent) == "file.bin"
    assert seen[-1] == (len(CONTENT), len(CONTENT))


def test_file_already_there_is_checked_and_not_fetched(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.bin").write_bytes(CONTENT)
    fetch(server.url, tmp_path / "file.bin", **CHECKED)
    assert server.ranges == []


def test_other_file_already_there_is_refused_and_kept(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.bin").write_bytes(b"mine")
    with pytest.raises(CorruptFileError, match=r"file\.bin.*delete it"):
        fetch(server.url, tmp_path / "file.bin", **CHECKED)
    assert (tmp_path / "file.bin").read_bytes() == b"mine"


def test_interrupted_transfer_goes_on_where_it_stopped(server: Server, tmp_path: Path) -> None:
    server.cut_after = [300_000, 200_000, 100_000, 50_000, 10_000, 10_000]  # more often than MAX_FAILURES
    fetch(server.url, tmp_path / "file.bin", **CHECKED)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert server.ranges[:3] == [None, "bytes=300000-", "bytes=500000-"]


def test_transfer_of_an_earlier_call_goes_on(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.bin.part").write_bytes(CONTENT[:1000])
    fetch(server.url, tmp_path / "file.bin", algorithm="md5", digest=MD5)
    assert server.ranges == ["bytes=1000-"]
    assert only_file(tmp_path) == "file.bin"


def test_complete_part_file_needs_no_request(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.bin.part").write_bytes(CONTENT)
    fetch(server.url, tmp_path / "file.bin", **CHECKED)
    assert server.ranges == []


@pytest.mark.parametrize("fault", ["ignores", "shifts"])
def test_server_that_does_not_honour_the_range_does_no_harm(
    server: Server, tmp_path: Path, fault: str
) -> None:
    server.honours_range, server.shifted_range = fault != "ignores", fault == "shifts"
    server.cut_after = [300_000]
    fetch(server.url, tmp_path / "file.bin", **CHECKED)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


def test_transfer_that_always_breaks_at_the_same_byte_ends(server: Server, tmp_path: Path) -> None:
    server.honours_range = False
    server.cut_after = [300_000] * 100
    with pytest.raises(DataError, match="closed after 300000"):
        fetch(server.url, tmp_path / "file.bin", **CHECKED)
    assert len(server.ranges) == download.MAX_FAILURES + 1


def test_other_content_on_a_breaking_line_is_not_fetched_for_ever(server: Server, tmp_path: Path) -> None:
    server.cut_after = [300_000, 1_000_000] * 50
    with pytest.raises(CorruptFileError, match="not the expected file"):
        fetch(server.url, tmp_path / "file.bin", algorithm="sha256", digest="0" * 64)
    assert len(server.ranges) == 4  # broken off, completed, and once more from the start
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.name != "posix", reason="folders are not locked there")
def test_second_process_waits_for_the_first_and_uses_its_file(server: Server, tmp_path: Path) -> None:
    second = threading.Thread(target=fetch, args=(server.url, tmp_path / "file.bin"), kwargs=CHECKED)

    def begin_second() -> None:
        server.meanwhile = lambda: None
        second.start()
        second.join(timeout=0.3)  # time enough to do harm

    server.meanwhile = begin_second
    fetch(server.url, tmp_path / "file.bin", **CHECKED)
    second.join(timeout=30)
    assert not second.is_alive()
    assert server.ranges == [None]
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert only_file(tmp_path) == "file.bin"


def test_folder_in_the_place_of_the_file_is_a_data_error(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.bin").mkdir()
    with pytest.raises(DataError, match="Is a directory"):
        fetch(server.url, tmp_path / "file.bin", **CHECKED)


def test_stale_part_file_is_replaced(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.bin.part").write_bytes(b"x" * 1000)
    fetch(server.url, tmp_path / "file.bin", **CHECKED)
    assert server.ranges == ["bytes=1000-", None]
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


def test_part_file_longer_than_the_file_is_replaced(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.bin.part").write_bytes(b"x" * (len(CONTENT) + 5))
    fetch(server.url, tmp_path / "file.bin", **CHECKED)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("algorithm", "digest"), [("sha256", "0" * 64), ("sha256", ""), ("sha256", SHA256[:8]), ("md5", "0" * 32)]
)
def test_wrong_checksum_leaves_no_file(server: Server, tmp_path: Path, algorithm: str, digest: str) -> None:
    with pytest.raises(CorruptFileError, match=r"file\.bin"):
        fetch(server.url, tmp_path / "file.bin", algorithm=algorithm, digest=digest)
    assert list(tmp_path.iterdir()) == []


def test_404_says_so_and_where_to_put_the_file(server: Server, tmp_path: Path) -> None:
    server.statuses = [404]
    with pytest.raises(DataError, match=r"answered 404.*put it at .*file\.bin"):
        fetch(server.url, tmp_path / "file.bin", **CHECKED)
    assert len(server.ranges) == 1


def test_passing_server_trouble_is_retried(server: Server, tmp_path: Path) -> None:
    server.statuses = [503, 429, 500]
    fetch(server.url, tmp_path / "file.bin", **CHECKED)
    assert len(server.ranges) == 4


def test_lasting_server_trouble_ends(server: Server, tmp_path: Path) -> None:
    server.statuses = [503] * 100
    with pytest.raises(DataError, match=r"cannot reach 127\.0\.0\.1 .*503.*another machine"):
        fetch(server.url, tmp_path / "file.bin", **CHECKED)
    assert len(server.ranges) == download.MAX_FAILURES


def test_offline_message_says_what_to_do(server: Server, tmp_path: Path) -> None:
    url = server.url
    server.shutdown()
    server.server_close()
    with pytest.raises(DataError) as caught:
        fetch(url, tmp_path / "file.bin", timeout=2, **CHECKED)
    assert f"download {url} on another machine and put it at {tmp_path / 'file.bin'}" in str(caught.value)


@pytest.mark.parametrize("location", ["file:///etc/passwd", "ftp://127.0.0.1/file", "http://[bad"])
def test_redirect_cannot_leave_http(server: Server, tmp_path: Path, location: str) -> None:
    server.redirect_to = location
    with pytest.raises(DataError):
        fetch(server.url, tmp_path / "file.bin", timeout=2, **CHECKED)
    assert list(tmp_path.iterdir()) == []


def test_full_disk_is_named_and_what_arrived_can_be_resumed(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(file: io.FileIO, data: bytes) -> None:
        if file.tell() + len(data) > 300_000:
            raise OSError(errno.ENOSPC, "No space left on device")
        write_all(file, data)

    with monkeypatch.context() as context:
        context.setattr(download, "write_all", full_disk)
        with pytest.raises(CorruptFileError, match=r"file\.bin\.part.*disk is full"):
            fetch(server.url, tmp_path / "file.bin", **CHECKED)
    assert only_file(tmp_path) == "file.bin.part"
    fetch(server.url, tmp_path / "file.bin", **CHECKED)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_full_disk_is_named_for_a_file_smaller_than_a_buffer(server: Server, tmp_path: Path) -> None:
    server.content = CONTENT[:1000]
    (tmp_path / "file.bin.part").symlink_to("/dev/full")
    with pytest.raises(CorruptFileError, match=r"file\.bin\.part.*disk is full"):
        fetch(server.url, tmp_path / "file.bin", **CHECKED)
    assert len(server.ranges) == 1


def test_unwritable_place_is_a_data_error(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"cannot read or write .*below\.bin"):
        fetch(server.url, tmp_path / "file" / "below.bin", **CHECKED)
