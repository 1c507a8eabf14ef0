"""Against a real server; see `servers`."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from maskcon._utils.errors import MaskconError, UsageError
from maskcon.data.collection import gather
from maskcon.data.decoding import decode
from maskcon.retrieval.embeddings import Index
from maskcon.retrieval.nearest import unit_rows
from maskcon.retrieval.pgvector import PostgresStore
from maskcon.retrieval.store import Header, refresh
from tests.retrieval.images_to_search import ENCODER, SIDE, Embedder, draw, photos, update
from tests.retrieval.servers import postgres

ODD_NAMES = [
    'it\'s "quoted".png',
    "ねこ/猫.png",
    "🐈.png",
    "line\nbreak.png",
    "'); DROP TABLE maskcon_image; --.png",
]


@pytest.fixture(scope="module")
def address():
    with postgres() as found:
        yield found


def store_of(folder: Path, address: str, name: str, encoder: str = ENCODER) -> PostgresStore:
    source = str(folder.resolve())
    return PostgresStore(address, name, Header(encoder, source, source))


def update_there(folder: Path, address: str, name: str, embedder: Embedder | None = None):
    pictures = gather(str(folder), canvas=SIDE, channels=3)
    with store_of(folder, address, name) as store:
        return refresh(store, pictures, embedder or Embedder())


def assert_same_index(folder: Path, address: str, name: str, where: Path) -> None:
    """The store answers as an index in a folder, made from nothing, does."""
    update(folder, where)
    index = Index(where)
    with PostgresStore(address, name) as store:
        assert store.header() == index.header
        assert store.entries() == [replace(entry, coarse=None) for entry in index.entries]
        found, expected = store.search(index.vectors[:3], 100), index.search(index.vectors[:3], 100)
    assert found.entries == [[replace(entry, coarse=None) for entry in row] for row in expected.entries]
    np.testing.assert_allclose(found.scores, expected.scores, atol=1e-6)


def test_an_index_in_the_store_follows_the_folder_as_one_on_disk_does(tmp_path, address):
    folder = photos(tmp_path / "photos")
    for number, name in enumerate(ODD_NAMES):
        draw(folder / name, 20 + number)
    Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9.png")).write_bytes((folder / "🐈.png").read_bytes())
    first = update_there(folder, address, "photos")
    assert (first.added, first.embedded) == (12, 11)
    assert_same_index(folder, address, "photos", tmp_path / "one")
    draw(folder / "new.png", 100)
    draw(folder / "kind 0" / "2.png", 101)
    (folder / "kind 1" / "5.png").unlink()
    one, other = folder / "kind 0" / "0.png", folder / "kind 1" / "1.png"
    one.rename(folder / "aside.png")
    other.rename(one)
    (folder / "aside.png").rename(other)
    os.utime(folder / "🐈.png", (1, 1))
    embedder = Embedder()
    done = update_there(folder, address, "photos", embedder)
    assert (done.added, done.changed, done.removed) == (1, 3, 1)
    assert embedder.count == 2
    assert_same_index(folder, address, "photos", tmp_path / "two")
    assert update_there(folder, address, "photos").unchanged == 12


def test_several_indexes_of_other_models_and_dimensions_live_side_by_side(tmp_path, address):
    folder = photos(tmp_path / "photos", 3)
    update_there(folder, address, "forty-eight")
    pictures = gather(str(folder), canvas=SIDE, channels=3)
    with store_of(folder, address, "name with 'quotes'", "f" * 64) as store:
        refresh(store, pictures, lambda images, _: images[:, :, 0, 0])
        assert store.search(unit_rows(np.ones((1, 3))), 2).scores.shape == (1, 2)
        with pytest.raises(UsageError, match=r"queries must be \[Q, 3\]"):
            store.search(np.ones((1, 48), np.float32), 2)
    with PostgresStore(address, "forty-eight") as store:
        header = store.header()
        assert header is not None
        assert header.encoder == ENCODER
        assert len(store.search(unit_rows(np.ones((1, 48))), 10).entries[0]) == 3
    with PostgresStore(address, "absent") as store:
        assert store.header() is None
        with pytest.raises(UsageError, match="no index named 'absent'"):
            store.search(np.ones((1, 48), np.float32), 2)


def test_forgetting_replaces_the_vectors_at_the_commit_and_not_before(tmp_path, address):
    folder = photos(tmp_path / "photos", 3)
    update_there(folder, address, "replaced")
    pictures = gather(str(folder), canvas=SIDE, channels=3)
    with store_of(folder, address, "replaced", "f" * 64) as store:
        store.forget()
        with PostgresStore(address, "replaced") as reader:
            assert len(reader.entries()) == 3
        done = refresh(store, pictures, lambda images, _: images[:, :, 0, 0])
    assert done.embedded == 3
    with PostgresStore(address, "replaced") as reader:
        assert reader.header() == store.owner
        assert reader.search(unit_rows(np.ones((1, 3))), 9).scores.shape == (1, 3)


def test_the_next_writer_need_not_wait_until_the_server_misses_the_last(tmp_path, address, monkeypatch):
    """The server may take its time to end a closed connection; here it never does, until the end."""
    psycopg = pytest.importorskip("psycopg")
    folder = photos(tmp_path / "photos", 3)
    left_open = []
    with monkeypatch.context() as patched:
        patched.setattr(psycopg.Connection, "close", lambda connection: left_open.append(connection))
        update_there(folder, address, "turns")
        assert update_there(folder, address, "turns").embedded == 0
    assert len(left_open) == 2
    for connection in left_open:
        connection.close()


def test_a_writer_whose_connection_is_lost_ends_with_that_error_alone(tmp_path, address):
    folder = photos(tmp_path / "photos", 3)

    def work() -> None:
        with store_of(folder, address, "lost") as store:
            store._open.close()
            raise RuntimeError("the work failed")

    with pytest.raises(RuntimeError, match="the work"):
        work()


def test_who_reads_sees_one_state_of_the_index_whatever_is_written_meanwhile(tmp_path, address):
    folder = photos(tmp_path / "photos", 3)
    update_there(folder, address, "read")
    pictures = gather(str(folder), canvas=SIDE, channels=3)
    with PostgresStore(address, "read") as reader:
        header = reader.header()
        with store_of(folder, address, "read", "f" * 64) as store:  # another model, of the same dimension
            store.forget()
            refresh(store, pictures, lambda images, _: Embedder()(images, _) ** 3)
        query = unit_rows(Embedder()(decode(folder / "kind 0" / "0.png", SIDE, 3)[None], None))
        found = reader.search(query, 1)
        assert reader.header() == header
        assert found.entries[0][0].path == "kind 0/0.png"
        assert found.scores[0, 0] == pytest.approx(1.0)
    with PostgresStore(address, "read") as later:
        assert later.header() != header
        assert later.search(query, 1).scores[0, 0] < 0.999


def test_who_may_write_to_the_tables_need_not_be_allowed_to_make_them(tmp_path, address):
    import psycopg

    folder = photos(tmp_path / "photos", 3)
    update_there(folder, address, "of an administrator")
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("CREATE ROLE guest LOGIN")
        connection.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
        connection.execute(
            "GRANT SELECT, INSERT, UPDATE, DELETE ON maskcon_header, maskcon_image, maskcon_vector TO guest"
        )
    assert update_there(folder, address.replace("tester@", "guest@"), "of a guest").added == 3


@pytest.mark.parametrize("name", ["caf\udce9", "zero\0byte"])
def test_a_name_that_is_no_text_is_refused(name):
    with pytest.raises(UsageError, match="cannot be the name of an index in a store"):
        PostgresStore("postgresql://host/none", name)


CHILD = """
import sys
from dataclasses import replace
from pathlib import Path
from tests.retrieval.test_pgvector import update_there
module = sys.modules["maskcon.retrieval.store"]
module.CHUNK_IMAGES, module.STAGE_SECONDS = 2, 0.0
update_there(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
"""


@pytest.mark.parametrize(("point", "staged"), [("index-after-stage:2", 4), ("index-before-commit", 6)])
def test_a_killed_refresh_leaves_the_index_and_keeps_what_was_embedded(tmp_path, address, point, staged):
    folder, name = photos(tmp_path / "photos", 3), f"killed {point}"
    update_there(folder, address, name)
    for number in range(6):
        draw(folder / f"new {number}.png", 50 + number)
    (folder / "kind 0" / "0.png").unlink()
    environment = {**os.environ, "MASKCON_FAILPOINT": point, "PYTHONPATH": os.pathsep.join([*sys.path, "."])}
    killed = subprocess.run(
        [sys.executable, "-c", CHILD, str(folder), address, name],
        env=environment, cwd=Path(__file__).parents[2], check=False,
    )  # fmt: skip
    assert killed.returncode == 99
    with PostgresStore(address, name) as store:
        assert len(store.entries()) == 3
    embedder = Embedder()
    update_there(folder, address, name, embedder)
    assert embedder.count == 6 - staged
    assert_same_index(folder, address, name, tmp_path / "index")


def test_two_writers_of_one_index_do_not_meet(tmp_path, address):
    folder = photos(tmp_path / "photos", 3)
    with (
        store_of(folder, address, "shared"),
        pytest.raises(UsageError, match="another process is writing"),
        store_of(folder, address, "shared"),
    ):
        pass
    update_there(folder, address, "shared")  # the turn ended with the connection


def test_an_empty_index_has_no_neighbours(tmp_path, address):
    with store_of(tmp_path, address, "empty") as store:
        store.commit([])
        assert store.search(np.ones((2, 4), np.float32), 3).entries == [[], []]


def test_what_the_server_refuses_is_one_line(address):
    with pytest.raises(MaskconError, match=r'the store failed: .*database "absent" does not exist') as caught:
        PostgresStore(address.replace("/postgres?", "/absent?"), "x").__enter__()
    assert "\n" not in str(caught.value)


def test_a_server_that_is_not_there_is_told_without_the_password():
    pytest.importorskip("psycopg", reason="the extra `pgvector` is not installed")
    pytest.importorskip("pgvector", reason="the extra `pgvector` is not installed")
    with pytest.raises(MaskconError, match="the store failed") as caught:
        PostgresStore("postgresql://someone:hush@127.0.0.1:1/none", "x").__enter__()
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("password", ["hush%zz", "hu%sh"])
def test_an_address_that_cannot_be_read_is_not_repeated(password):
    pytest.importorskip("psycopg", reason="the extra `pgvector` is not installed")
    pytest.importorskip("pgvector", reason="the extra `pgvector` is not installed")
    with pytest.raises(UsageError, match="is not a valid address") as caught:
        PostgresStore(f"postgresql://someone:{password}@host/none", "x").__enter__()
    assert "hu" not in str(caught.value)


def test_other_addresses_are_refused_without_repeating_them():
    with pytest.raises(UsageError, match="begins with postgresql://") as caught:
        PostgresStore("mysql://someone:hush@host/none", "x")
    assert "hush" not in str(caught.value)


def test_without_the_packages_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pgvector.psycopg", None)
    with pytest.raises(UsageError, match=r"pip install 'maskcon\[pgvector\]'"):
        PostgresStore("postgresql://host/none", "x").__enter__()
