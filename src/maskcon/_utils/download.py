"""Download files; resume after interruptions, check before renaming."""

from __future__ import annotations

import errno
import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from maskcon._utils.errors import CorruptFileError, DataError, MaskconError
from maskcon._utils.files import file_digest, one_at_a_time, write_all

# bytes so far, bytes in total; the former twice if the total is unknown
Progress = Callable[[int, int], None]

BLOCK_BYTES = 1 << 18
MAX_FAILURES = 4  # in a row without new bytes; a slow transfer that makes progress is never abandoned
BACKOFF_SECONDS = 1.0  # doubled after each such failure
TRANSIENT_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})


def fetch(
    url: str,
    destination: Path,
    *,
    algorithm: str,
    digest: str,
    progress: Progress | None = None,
    timeout: float = 30,
) -> Path:
    """Download `url` to `destination` and return it; check and keep an existing file.

    Bytes are written to `destination` + ".part", which is renamed only after the checksum agrees. An interrupted
    transfer is resumed, in this call or a later one. Of several processes, one downloads and the others wait.

    Args:
        algorithm, digest: checksum of the complete file, such as "sha256" and its hexadecimal digits.
    """
    part = destination.with_name(destination.name + ".part")
    transfer = _Transfer(url, part, destination, algorithm, digest, progress, timeout)
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        with one_at_a_time(destination.parent):
            if destination.exists():
                complaint = transfer.complaint(destination)
                if complaint is not None:
                    raise CorruptFileError(
                        f"{destination} is not the file of {url}: {complaint}; delete it and try again"
                    )
                return destination
            transfer.run()
            part.replace(destination)
    except OSError as error:
        raise DataError(f"cannot read or write {destination}: {error.strerror or error}") from error
    return destination


@dataclass
class _Transfer:
    """The transfer of one file into its .part file."""

    url: str
    part: Path
    destination: Path
    algorithm: str
    digest: str
    progress: Progress | None
    timeout: float

    def run(self) -> None:
        """Attempt until complete and checked, or raise."""
        failures = 0
        furthest = self._size()
        restarted = False
        while True:
            before = self._size()
            resumed = before > 0
            try:
                if not resumed or self.complaint(self.part) is not None:
                    self._attempt(before)
                complaint = self.complaint(self.part)
                if complaint is None:
                    return
                self.part.unlink(missing_ok=True)
                if not resumed or restarted:
                    raise CorruptFileError(
                        f"{self.destination}: what {self.url} sent is not the expected file ({complaint}); "
                        "it was deleted and nothing of it used"
                    )
                # an old part may belong to another version of the file: retry once from the start
                restarted, furthest = True, 0
            except _InterruptedError as error:
                failures = 0 if self._size() > furthest else failures + 1
                furthest = max(furthest, self._size())
                if failures >= MAX_FAILURES:
                    raise self._unreachable(error) from error
                if failures:
                    time.sleep(BACKOFF_SECONDS * 2 ** (failures - 1))

    def complaint(self, path: Path) -> str | None:
        """Return why the file at `path` is not the expected one; None if it is."""
        actual = file_digest(path, self.algorithm)
        return None if actual == self.digest else f"its {self.algorithm} is {actual} instead of {self.digest}"

    def _size(self) -> int:
        return self.part.stat().st_size if self.part.exists() else 0

    def _attempt(self, offset: int) -> None:
        """Make one request; keep all received bytes in the .part file."""
        headers = {"User-Agent": "maskcon", "Accept-Encoding": "identity"}
        if offset:
            headers["Range"] = f"bytes={offset}-"
        try:
            with _OPENER.open(
                urllib.request.Request(self.url, headers=headers), timeout=self.timeout
            ) as response:
                self._receive(response, offset)
        except urllib.error.HTTPError as error:
            if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and offset:
                self.part.unlink(missing_ok=True)  # longer than the server's file: not a part of it
                raise _InterruptedError("the partial file does not fit the server's") from error
            if error.code in TRANSIENT_STATUS:
                raise _InterruptedError(f"the server answered {error.code} {error.reason}") from error
            raise DataError(
                f"{self.url} answered {error.code} {error.reason}; "
                f"find the file elsewhere and put it at {self.destination}"
            ) from error
        except MaskconError:
            raise
        except (OSError, http.client.HTTPException, ValueError) as error:
            # URLError and timeouts are OSErrors; ValueError: a redirect to an invalid address
            raise _InterruptedError(str(getattr(error, "reason", error) or type(error).__name__)) from error

    def _receive(self, response: http.client.HTTPResponse, offset: int) -> None:
        if offset and response.status != http.HTTPStatus.PARTIAL_CONTENT:
            offset = 0  # the server sends the whole file again
        elif offset and not response.headers.get("Content-Range", "").startswith(f"bytes {offset}-"):
            self.part.unlink(missing_ok=True)  # the next attempt requests the whole file
            raise _InterruptedError("the server sent another part of the file than requested")
        total = _announced_total(response, offset)
        done = offset
        with self._writing():
            part = self.part.open("ab" if offset else "wb", buffering=0)
        with part as file:
            while block := response.read(BLOCK_BYTES):
                with self._writing():
                    write_all(file, block)
                done += len(block)
                if self.progress is not None:
                    self.progress(done, total or done)
        if total is not None and done < total:
            raise _InterruptedError(f"the connection closed after {done} of {total} bytes")

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Report an error of the disk as such, not as one of the connection."""
        try:
            yield
        except OSError as error:
            reason = "the disk is full; make room" if error.errno == errno.ENOSPC else error.strerror or error
            raise CorruptFileError(
                f"{self.part} is incomplete: {reason}; then try again. Nothing of it was used"
            ) from error

    def _unreachable(self, error: _InterruptedError) -> DataError:
        return DataError(
            f"cannot reach {urlsplit(self.url).hostname} ({error}); download {self.url} on another machine "
            f"and put it at {self.destination}"
        )


class _InterruptedError(Exception):
    """The transfer stopped for a transient reason."""


def _build_opener() -> urllib.request.OpenerDirector:
    """Build an opener for http(s) only: no redirect may lead to a local file or ftp."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPRedirectHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.UnknownHandler(),
    ):
        opener.add_handler(handler)
    return opener


_OPENER = _build_opener()


def _announced_total(response: http.client.HTTPResponse, offset: int) -> int | None:
    length = response.headers.get("Content-Length", "")
    return offset + int(length) if length.isdecimal() else None
