from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from maskcon._utils.errors import CorruptFileError, DataError, UsageError
from maskcon.data.collection import gather
from maskcon.data.decoding import decode
from maskcon.retrieval.embeddings import INDEX, EmbeddingsStore, Index
from maskcon.retrieval.nearest import unit_rows
from maskcon.retrieval.store import Header, refresh
from tests.miniature import miniature
from tests.retrieval.images_to_search import ENCODER, SIDE, Embedder, draw, photos, update

store_module = sys.modules["maskcon.retrieval.store"]


def vectors_of(where: Path) -> dict[str, np.ndarray]:
    index = Index(where)
    return {entry.path: index.vectors[row] for row, entry in enumerate(index.entries)}


def expected(folder: Path) -> dict[str, np.ndarray]:
    """Every image of the folder embedded by itself, without an index."""
    found = {}
    for path in folder.rglob("*.png"):
        pixels = decode(path, SIDE, 3)[None]
        found[path.relative_to(folder).as_posix()] = unit_rows(Embedder()(pixels, None))[0]
    return found


def assert_up_to_date(folder: Path, where: Path) -> None:
    have, want = vectors_of(where), expected(folder)
    assert list(have) == sorted(want, key=os.fsencode)
    for path, vector in want.items():
        assert (have[path] == vector).all(), path


def test_files_added_changed_and_removed_are_taken_in_and_only_new_content_is_embedded(tmp_path):
    folder, where = photos(tmp_path / "photos"), tmp_path / "index"
    first = update(folder, where)
    assert (first.added, first.embedded, first.total) == (6, 6, 6)
    draw(folder / "kind 0" / "new.png", 100)
    draw(folder / "kind 0" / "2.png", 101)
    (folder / "kind 1" / "5.png").unlink()
    embedder = Embedder()
    done = update(folder, where, embedder)
    assert (done.added, done.changed, done.removed, done.unchanged) == (1, 1, 1, 4)
    assert done.embedded == embedder.count == 2
    assert_up_to_date(folder, where)


def test_nothing_changed_reads_no_file_and_writes_nothing(tmp_path, monkeypatch):
    folder, where = photos(tmp_path / "photos"), tmp_path / "index"
    update(folder, where)
    before = (where / INDEX).stat()
    pictures = gather(str(folder), canvas=SIDE, channels=3)
    monkeypatch.setattr(type(pictures), "digests", None)  # would fail if called
    monkeypatch.setattr(type(pictures), "read", None)
    store = EmbeddingsStore(where / INDEX, Header(ENCODER, pictures.source, pictures.root))
    assert refresh(store, pictures, Embedder()).unchanged == 6
    assert (where / INDEX).stat() == before


def test_touched_renamed_doubled_and_exchanged_files_cost_no_embedding(tmp_path):
    folder, where = photos(tmp_path / "photos"), tmp_path / "index"
    update(folder, where)
    os.utime(folder / "kind 0" / "0.png", (1, 1))
    (folder / "kind 0" / "2.png").rename(folder / "moved.png")
    (folder / "copy.png").write_bytes((folder / "kind 1" / "1.png").read_bytes())
    one, other = folder / "kind 1" / "3.png", folder / "kind 1" / "5.png"
    one.rename(folder / "aside.png")
    other.rename(one)
    (folder / "aside.png").rename(other)
    embedder = Embedder()
    done = update(folder, where, embedder)
    assert embedder.count == done.embedded == 0
    assert (done.added, done.changed, done.removed) == (2, 2, 1)
    assert_up_to_date(folder, where)
    assert update(folder, where).unchanged == 7


def test_the_same_size_and_another_time_is_noticed_by_content(tmp_path):
    folder, where = tmp_path / "photos", tmp_path / "index"
    path = folder / "a.bmp"
    draw(path, 0)
    size = path.stat().st_size
    update(folder, where)
    draw(path, 1)
    assert path.stat().st_size == size
    assert update(folder, where).changed == 1


def test_a_folder_in_the_place_of_another_is_compared_by_content(tmp_path):
    one, other, where = tmp_path / "one", tmp_path / "other", tmp_path / "index"
    for number, folder in enumerate((one, other)):  # as two archives leave them: same names, sizes and times
        draw(folder / "a.bmp", number)
        os.utime(folder / "a.bmp", (1, 1))
    update(one, where)
    done = update(other, where)
    assert (done.changed, done.embedded) == (1, 1)
    expected = unit_rows(Embedder()(decode(other / "a.bmp", SIDE, 3)[None], None))[0]
    assert (vectors_of(where)["a.bmp"] == expected).all()
    assert update(other, where).unchanged == 1


def test_equal_images_have_equal_vectors_and_are_embedded_once(tmp_path):
    folder, where = tmp_path / "photos", tmp_path / "index"
    for name in ("b.png", "a.png", "z/c.png"):
        draw(folder / name, 5)
    draw(folder / "other.png", 6)
    embedder = Embedder()
    assert update(folder, where, embedder).total == 4
    assert embedder.count == 2
    store = Index(where)
    query = vectors_of(where)["b.png"][None]
    found = store.search(query, 10)  # more than there are
    assert [entry.path for entry in found.entries[0]] == ["a.png", "b.png", "z/c.png", "other.png"]
    assert found.scores.shape == (1, 4)
    assert found.scores[0, :3] == pytest.approx(1.0)


def test_names_of_any_kind_work(tmp_path):
    folder, where = tmp_path / "photos", tmp_path / "index"
    names = [
        "with space.png",
        'it\'s "quoted".png',
        "ねこ/猫.png",
        "🐈.png",
        "line\nbreak.png",
        "%s; DROP.png",
    ]
    for number, name in enumerate(names):
        draw(folder / name, number)
    bad = Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9.png"))
    bad.write_bytes((folder / "🐈.png").read_bytes())
    assert update(folder, where).total == 7
    assert_up_to_date(folder, where)
    assert update(folder, where).unchanged == 7


def test_progress_is_reported_before_the_first_image_is_read(tmp_path):
    told: list[tuple[int, int]] = []
    folder, where = photos(tmp_path / "photos"), tmp_path / "index"
    update(folder, where, progress=lambda *values: told.append(values))
    assert (told[0], told[-1]) == ((0, 6), (6, 6))


def test_unreadable_images_are_reported_or_stop_a_strict_refresh(tmp_path):
    folder, where = photos(tmp_path / "photos", 3), tmp_path / "index"
    (folder / "text.png").write_text("not a picture")
    (folder / "cut.png").write_bytes((folder / "kind 0" / "0.png").read_bytes()[:200])
    (folder / "nowhere.png").symlink_to(folder / "absent")
    with pytest.raises(DataError, match="3 such files so far"):
        update(folder, where, strict=True)
    assert not (where / INDEX).exists()
    done = update(folder, where)
    assert done.total == 3
    assert set(done.failures) == {"text.png", "cut.png", "nowhere.png"}
    assert done.embedded == 0  # kept from the try that was strict


def test_an_image_that_became_unreadable_leaves_the_index(tmp_path):
    folder, where = photos(tmp_path / "photos", 3), tmp_path / "index"
    update(folder, where)
    (folder / "kind 1" / "1.png").write_text("broken now")
    done = update(folder, where)
    assert (done.removed, done.total) == (1, 2)
    assert "kind 1/1.png" in done.failures


def test_a_folder_without_an_image_leaves_the_index_alone(tmp_path):
    folder, where = photos(tmp_path / "photos", 3), tmp_path / "index"
    update(folder, where)
    before = (where / INDEX).read_bytes()
    for path in folder.rglob("*.png"):
        path.unlink()
    with pytest.raises(
        DataError,
        match=r"no image found in .*; give a folder of images\. The 3 images stored before are unchanged",
    ):
        update(folder, where)
    (folder / "a.png").write_text("no picture")
    with pytest.raises(
        DataError, match=r"cannot be read: a\.png \(not an image of a known format\)\. The 3 images"
    ):
        update(folder, where)
    assert (where / INDEX).read_bytes() == before


def test_an_interrupted_build_goes_on_where_it_was(tmp_path, monkeypatch):
    folder, where = photos(tmp_path / "photos", 9), tmp_path / "index"
    monkeypatch.setattr(store_module, "CHUNK_IMAGES", 2)
    with pytest.raises(KeyboardInterrupt):
        update(folder, where, Embedder(fail_after=4))
    assert not (where / INDEX).exists()
    embedder = Embedder()
    assert update(folder, where, embedder).total == 9
    assert embedder.count == 5
    assert not (where / f".{INDEX}.parts").exists()
    assert_up_to_date(folder, where)


def test_damaged_parts_and_those_of_another_model_are_made_again(tmp_path, monkeypatch):
    folder, where = photos(tmp_path / "photos", 6), tmp_path / "index"
    monkeypatch.setattr(store_module, "CHUNK_IMAGES", 2)
    monkeypatch.setattr(store_module, "STAGE_SECONDS", 0.0)
    with pytest.raises(KeyboardInterrupt):
        update(folder, where, Embedder(fail_after=4))
    first, second = sorted((where / f".{INDEX}.parts").iterdir())
    data = bytearray(first.read_bytes())
    data[-40] ^= 1
    first.write_bytes(bytes(data))
    second.write_bytes(second.read_bytes().replace(ENCODER.encode(), b"f" * 64))
    embedder = Embedder()
    update(folder, where, embedder)
    assert embedder.count == 6
    assert_up_to_date(folder, where)


CHILD = """
import sys
from pathlib import Path
from tests.retrieval.images_to_search import update
module = sys.modules["maskcon.retrieval.store"]
module.CHUNK_IMAGES, module.STAGE_SECONDS = 2, 0.0
print(update(Path(sys.argv[1]), Path(sys.argv[2])).embedded)
"""
POINTS = [
    "index-in-mid-file:1", "index-in-mid-file:4", "file-before-rename:1", "file-before-rename:2",
    "index-after-stage:1", "index-after-stage:2", "index-before-commit:1", "file-before-rename:4",
    "index-after-commit:1",
]  # fmt: skip


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_any_point_leaves_the_old_index_and_the_next_try_ends_the_same(tmp_path, point):
    folder, where = photos(tmp_path / "photos", 3), tmp_path / "index"
    update(folder, where)
    before = vectors_of(where)
    for number in range(6):
        draw(folder / f"new {number}.png", 50 + number)
    (folder / "kind 0" / "0.png").unlink()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, "."])}
    command = [sys.executable, "-c", CHILD, str(folder), str(where)]
    root = Path(__file__).parents[2]
    killed = subprocess.run(command, env={**environment, "MASKCON_FAILPOINT": point}, cwd=root, check=False)
    assert killed.returncode == 99
    if point == "index-after-commit:1":
        assert_up_to_date(folder, where)
    else:
        assert vectors_of(where).keys() == before.keys()
    embedder = Embedder()
    update(folder, where, embedder)
    staged = {"index-after-stage:1": 2, "index-after-stage:2": 4, "index-before-commit:1": 6}.get(point)
    assert staged is None or embedder.count == 6 - staged
    assert_up_to_date(folder, where)
    assert {path.name for path in where.iterdir()} == {INDEX}


def test_an_index_of_another_model_is_not_reused(tmp_path, monkeypatch):
    folder, where = photos(tmp_path / "photos", 3), tmp_path / "index"
    update(folder, where)
    pictures = gather(str(folder), canvas=SIDE, channels=3)
    store = EmbeddingsStore(where / INDEX, Header("f" * 64, pictures.source, pictures.root))
    store.forget()
    monkeypatch.setattr(store_module, "CHUNK_IMAGES", 1)
    with pytest.raises(KeyboardInterrupt):
        refresh(store, pictures, Embedder(fail_after=2))
    assert vectors_of(where).keys() == expected(folder).keys()  # of the model before, still
    store = EmbeddingsStore(where / INDEX, store.owner)
    store.forget()
    embedder = Embedder()
    refresh(store, pictures, embedder)
    assert embedder.count == 1  # the other two were kept
    assert Index(where).header == store.owner


def test_a_damaged_index_is_refused_by_refresh_and_search(tmp_path):
    folder, where = photos(tmp_path / "photos", 3), tmp_path / "index"
    update(folder, where)
    path = where / INDEX
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UsageError, match="its end is missing; it was not changed: delete it"):
        update(folder, where)
    with pytest.raises(CorruptFileError):
        Index(where)


def test_an_absent_index_says_what_to_do(tmp_path):
    with pytest.raises(UsageError, match=r"there is no index in .*; build one with `maskcon index"):
        Index(tmp_path)


def test_arrays_are_indexed_by_name_and_content_and_only_what_changed_is_embedded(tmp_path):
    data = miniature(train=8, test=4)
    store = EmbeddingsStore(tmp_path / INDEX, Header(ENCODER, data.name))
    seen: list[tuple[int, ...]] = []

    def flat(images, sizes):
        seen.append(images.shape)
        return images.reshape(len(images), -1)

    assert gather(data, canvas=SIDE, channels=3).root == ""
    assert refresh(store, gather(data, canvas=SIDE, channels=3), flat).embedded == 12
    assert seen == [(12, 3, SIDE, SIDE)]  # grey ones, for an encoder of colour
    assert refresh(store, gather(data, canvas=SIDE, channels=3), flat).unchanged == 12
    changed = data.train.images.copy()
    changed[3] += 1
    data = replace(data, train=replace(data.train, images=changed))
    done = refresh(store, gather(data, canvas=SIDE, channels=3), flat)
    assert (done.changed, done.unchanged, done.embedded) == (1, 11, 1)
