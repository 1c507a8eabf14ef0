from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

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
    assert len(list(cache.iterdir())) == 1
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
    (folder,) = (tmp_path / "cache").iterdir()
    for path in folder.iterdir():
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        assert load_folder(root, cache=tmp_path / "cache").fingerprint() == first
        assert list((tmp_path / "cache").iterdir()) == [folder]


def test_flipped_bytes_beside_the_pack_never_escape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_classes(tmp_path / "set", "a", "b")
    monkeypatch.setattr(pack, "PACK_ABOVE_BYTES", 1000)
    data = load_folder(root, cache=tmp_path / "cache")
    (folder,) = (tmp_path / "cache").iterdir()
    shape = (len(data.train) + len(data.test), 3, 20, 20)
    assert pack._read_stored(folder, shape) is not None
    generator = np.random.default_rng(0)
    for name in ("beside.npz", "images.npy"):
        original = (folder / name).read_bytes()
        for _ in range(500):
            data_bytes = bytearray(original)
            for place in generator.integers(0, len(data_bytes) if name == "beside.npz" else 128, 4):
                data_bytes[place] = generator.integers(0, 256)
            (folder / name).write_bytes(data_bytes)
            found = pack._read_stored(folder, shape)
            assert found is None or len(found.images) == len(found.sizes) == len(found.kept)
        (folder / name).write_bytes(original)


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


@pytest.mark.skipif(os.name != "posix", reason="folders are not locked there")
def test_what_a_killed_process_left_is_swept_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_classes(tmp_path / "set", "a", "b")
    cache = tmp_path / "cache"
    code = (
        "import os, sys; from pathlib import Path; from maskcon.sources import load_folder, pack\n"
        "pack.PACK_ABOVE_BYTES = 1000\n"
        "load_folder(Path(sys.argv[1]), cache=Path(sys.argv[2]), progress=lambda *_: os._exit(9))"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(root), str(cache)], check=False)
    assert killed.returncode == 9
    (left,) = cache.iterdir()
    monkeypatch.setattr(pack, "PACK_ABOVE_BYTES", 1000)
    load_folder(root, cache=cache)
    assert not left.exists()
    assert len(list(cache.iterdir())) == 1


@pytest.mark.skipif(os.name != "posix", reason="folders are not locked there")
def test_of_two_processes_one_packs_and_the_other_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_classes(tmp_path / "set", "a", "b")
    monkeypatch.setattr(pack, "PACK_ABOVE_BYTES", 1000)
    decoded: list[int] = []

    def load_it() -> None:
        load_folder(root, cache=tmp_path / "cache", progress=lambda done, _: progress(done))

    second = threading.Thread(target=load_it)

    def progress(done: int) -> None:
        decoded.append(done)
        if len(decoded) == 1:
            second.start()
            second.join(timeout=0.3)

    load_it()
    second.join(timeout=30)
    assert not second.is_alive()
    assert decoded == [20]


def test_file_that_disappears_before_packing_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_classes(tmp_path / "set", "a", "b")
    monkeypatch.setattr(pack, "PACK_ABOVE_BYTES", 1000)
    fingerprint = pack._fingerprint

    def late(*arguments: Any) -> str:
        (root / "a" / "3.png").unlink()
        return fingerprint(*arguments)

    monkeypatch.setattr(pack, "_fingerprint", late)
    data = load_folder(root, cache=tmp_path / "cache")
    assert len(all_paths(data)) == 19
    assert any("a/3.png" in note for note in data.notes)
