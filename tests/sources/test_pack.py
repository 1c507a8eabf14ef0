from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from maskcon.errors import DataError
from maskcon.sources import load_folder, pack
from tests.sources.miniatures import write_picture
from tests.sources.test_folder import all_paths, write_classes


def test_large_folder_is_packed_into_the_cache_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_classes(tmp_path / "set", "a", "b")
    (root / "a" / "text.jpg").write_text("not a picture")
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(noise).save(root / "a" / "cut.png")
    (root / "a" / "cut.png").write_bytes((root / "a" / "cut.png").read_bytes()[:5000])
    cache = tmp_path / "cache"
    in_memory = load_folder(root, cache=cache)
    assert not cache.exists()
    monkeypatch.setattr(pack, "PACK_ABOVE_BYTES", 1000)
    packed = load_folder(root, cache=cache)
    assert sorted(path.suffix for path in cache.iterdir()) == [".npy", ".npz"]
    assert packed.fingerprint() == in_memory.fingerprint()
    assert packed.notes == in_memory.notes

    def no_decoding(*_: object) -> None:
        raise AssertionError("decoded again")

    with monkeypatch.context() as context:
        context.setattr(pack, "decode", no_decoding)
        assert load_folder(root, cache=cache).fingerprint() == in_memory.fingerprint()
    write_picture(root / "a" / "another.png")
    assert len(all_paths(load_folder(root, cache=cache))) == len(all_paths(in_memory)) + 1


def test_packed_images_are_memory_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_classes(tmp_path / "set", "a", count=4, size=(64, 32))
    write_classes(root, "b", count=4, size=(32, 64))
    monkeypatch.setattr(pack, "PACK_ABOVE_BYTES", 1000)
    data = load_folder(root, cache=tmp_path / "cache")
    assert isinstance(data.train.images, np.memmap)


def test_damaged_pack_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_classes(tmp_path / "set", "a", "b")
    monkeypatch.setattr(pack, "PACK_ABOVE_BYTES", 1000)
    first = load_folder(root, cache=tmp_path / "cache").fingerprint()
    for path in (tmp_path / "cache").iterdir():
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert load_folder(root, cache=tmp_path / "cache").fingerprint() == first


def test_interrupted_packing_leaves_no_pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_classes(tmp_path / "set", "a", "b")
    monkeypatch.setattr(pack, "PACK_ABOVE_BYTES", 1000)

    def interrupted(_done: int, _total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load_folder(root, cache=tmp_path / "cache", progress=interrupted)
    assert list((tmp_path / "cache").iterdir()) == []


def test_too_little_room_for_the_pack_is_said_before_decoding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_classes(tmp_path / "set", "a", "b")
    monkeypatch.setattr(pack, "PACK_ABOVE_BYTES", 1000)
    monkeypatch.setattr(pack.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(100, 50, 50))
    with pytest.raises(DataError, match="GB free; set XDG_CACHE_HOME"):
        load_folder(root, cache=tmp_path / "cache")
