"""An index in PostgreSQL with pgvector; transactions keep the promises of `Store`.

Several indexes, of any dimension, share three tables and are identified by name. All values are passed as parameters.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from maskcon._utils.errors import MaskconError, UsageError
from maskcon._utils.failpoints import failpoint
from maskcon.data.folder_layout import show
from maskcon.retrieval.nearest import unit_rows
from maskcon.retrieval.store import Entry, Header, Neighbours, Vectors, check_request

if TYPE_CHECKING:
    import psycopg

SCHEMES = ("postgresql://", "postgres://")
WRITE_LOCK = "hashtext('maskcon'), hashtext(%s)"  # advisory lock on the index of a name
VERSION = 1
CONNECT_SECONDS = 10
TABLES = (
    """CREATE TABLE IF NOT EXISTS maskcon_index (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        name text NOT NULL UNIQUE,
        version integer NOT NULL,
        encoder text NOT NULL,
        source bytea NOT NULL,
        root bytea NOT NULL,
        dimension integer NOT NULL
    )""",
    """CREATE TABLE IF NOT EXISTS maskcon_picture (
        index_id bigint NOT NULL REFERENCES maskcon_index ON DELETE CASCADE,
        path bytea NOT NULL,
        size bigint NOT NULL,
        mtime_ns numeric NOT NULL,
        digest bytea NOT NULL,
        embedding vector NOT NULL,
        PRIMARY KEY (index_id, path)
    )""",
    """CREATE TABLE IF NOT EXISTS maskcon_staged (
        name text NOT NULL,
        encoder text NOT NULL,
        digest bytea NOT NULL,
        embedding vector NOT NULL,
        PRIMARY KEY (name, encoder, digest)
    )""",
    "CREATE INDEX IF NOT EXISTS maskcon_picture_digest ON maskcon_picture (index_id, digest)",
)


class PostgresStore:
    """See `Store`; use it in a `with` block. With an owner it locks out other writers.

    A store opened to read (owner None) sees the index as of its opening.
    """

    def __init__(self, address: str, name: str, owner: Header | None = None) -> None:
        if not address.startswith(SCHEMES):  # the message must not repeat it: it may hold a password
            raise UsageError("--store takes an address that begins with postgresql://")
        if "\0" in name or name != os.fsencode(name).decode(errors="replace"):
            raise UsageError(f"{show(name)!r} cannot be the name of an index in a store; choose another")
        self.name, self.owner = name, owner
        self.notes: list[str] = []
        self._address = address
        self._connection: psycopg.Connection[Any] | None = None
        self._forgotten = False

    def __enter__(self) -> Self:
        psycopg, register = _packages()
        self._connection = _connect(self._address)
        if self.owner is None:
            self._connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            self._connection.read_only = True
        else:
            self._connection.autocommit = True
        try:
            with _server_errors():
                self._prepare(register)
        except BaseException:
            self._connection.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.owner is not None:
            # Unlock explicitly: the server may notice a closed connection late, and would block the next writer.
            with suppress(_packages()[0].Error):
                self._open.execute(f"SELECT pg_advisory_unlock({WRITE_LOCK})", (self.name,))
        self._open.close()

    def header(self) -> Header | None:
        row = self._row()
        return None if row is None else row[1]

    def entries(self) -> Sequence[Entry]:
        row = self._row()
        if row is None:
            return []
        query = "SELECT path, size, mtime_ns, digest FROM maskcon_picture WHERE index_id = %s ORDER BY path"
        with _server_errors():
            found = self._open.execute(query, (row[0],)).fetchall()
        return [_entry(values) for values in found]

    def known(self) -> set[str]:
        digests = {entry.digest for entry in self.entries()}
        query = "SELECT digest FROM maskcon_staged WHERE name = %s AND encoder = %s"
        with _server_errors():
            staged = self._open.execute(query, (self.name, self._owner().encoder)).fetchall()
        return digests | {bytes(digest).hex() for (digest,) in staged}

    def stage(self, digests: Sequence[str], vectors: Vectors) -> None:
        owner = self._owner()
        query = (
            "INSERT INTO maskcon_staged (name, encoder, digest, embedding) VALUES (%s, %s, %s, %s) "
            "ON CONFLICT (name, encoder, digest) DO UPDATE SET embedding = EXCLUDED.embedding"
        )
        rows = [
            (self.name, owner.encoder, bytes.fromhex(digest), vector)
            for digest, vector in zip(digests, unit_rows(vectors), strict=True)
        ]
        with _server_errors(), self._open.transaction(), self._open.cursor() as cursor:
            cursor.executemany(query, rows)

    def commit(self, entries: Sequence[Entry]) -> None:
        """Replace the index in one transaction: a search sees the old one or the new one."""
        rows = sorted(
            (os.fsencode(entry.path), entry.size, entry.mtime_ns, bytes.fromhex(entry.digest))
            for entry in entries
        )
        if [_entry(row) for row in rows] != self.entries() or self.header() != self.owner:
            failpoint("index-before-commit")
            with _server_errors(), self._open.transaction(), self._open.cursor() as cursor:
                cursor.execute(
                    "CREATE TEMPORARY TABLE maskcon_next (path bytea PRIMARY KEY, size bigint, "
                    "mtime_ns numeric, digest bytea) ON COMMIT DROP"
                )
                with cursor.copy("COPY maskcon_next (path, size, mtime_ns, digest) FROM STDIN") as copy:
                    for row in rows:
                        copy.write_row(row)
                self._merge(cursor, len(rows))
            self._forgotten = False
        with _server_errors():
            self._open.execute("DELETE FROM maskcon_staged WHERE name = %s", (self.name,))

    def forget(self) -> None:
        """Keep the rows until the commit replaces them: searches are still answered."""
        self._forgotten = True

    def search(self, queries: Vectors, k: int) -> Neighbours:
        """Find the k nearest exactly; the server compares all vectors."""
        row = self._row()
        if row is None:
            raise UsageError(f"the store has no index named {self.name!r}; build it with `maskcon index`")
        number, _, dimension = row
        check_request(queries, k, dimension or queries.shape[-1])  # 0: the index is empty
        # on unit vectors the negative inner product orders as the cosine does
        query = (
            "SELECT path, size, mtime_ns, digest, -(embedding <#> %s) AS score FROM maskcon_picture "
            "WHERE index_id = %s ORDER BY score DESC, path LIMIT %s"
        )
        entries, scores = [], []
        for vector in queries:
            with _server_errors():
                found = self._open.execute(query, (vector, number, k)).fetchall()
            entries.append([_entry(values[:4]) for values in found])
            scores.append([float(values[4]) for values in found])
        return Neighbours(entries, np.array(scores, dtype=np.float64).reshape(len(queries), -1))

    def _merge(self, cursor: psycopg.Cursor[Any], count: int) -> None:
        """Apply the list of entries to the index, within the transaction."""
        owner = self._owner()
        if self._forgotten:
            cursor.execute("DELETE FROM maskcon_index WHERE name = %s", (self.name,))  # and its pictures
        values = (VERSION, owner.encoder, os.fsencode(owner.source), os.fsencode(owner.root))
        cursor.execute(
            "INSERT INTO maskcon_index (name, version, encoder, source, root, dimension) "
            "VALUES (%s, %s, %s, %s, %s, 0) ON CONFLICT (name) DO UPDATE SET version = EXCLUDED.version, "
            "encoder = EXCLUDED.encoder, source = EXCLUDED.source, root = EXCLUDED.root RETURNING id",
            (self.name, *values),
        )
        (number,) = cursor.fetchone() or (None,)
        # Copy the vectors of new and moved images first: two files may have swapped names.
        cursor.execute(
            "CREATE TEMPORARY TABLE maskcon_moved ON COMMIT DROP AS "
            "SELECT n.path, n.size, n.mtime_ns, n.digest, v.embedding FROM maskcon_next n "
            "LEFT JOIN maskcon_picture same ON same.index_id = %(number)s AND same.path = n.path "
            "AND same.size = n.size AND same.mtime_ns = n.mtime_ns AND same.digest = n.digest "
            "JOIN LATERAL (SELECT embedding FROM ("
            "SELECT embedding, digest FROM maskcon_picture WHERE index_id = %(number)s AND digest = n.digest "
            "UNION ALL SELECT embedding, digest FROM maskcon_staged "
            "WHERE name = %(name)s AND encoder = %(encoder)s AND digest = n.digest) both_places LIMIT 1) v ON true "
            "WHERE same.path IS NULL",
            {"number": number, "name": self.name, "encoder": owner.encoder},
        )
        cursor.execute(
            "DELETE FROM maskcon_picture p WHERE p.index_id = %s "
            "AND NOT EXISTS (SELECT 1 FROM maskcon_next n WHERE n.path = p.path)",
            (number,),
        )
        cursor.execute(
            "INSERT INTO maskcon_picture (index_id, path, size, mtime_ns, digest, embedding) "
            "SELECT %s, path, size, mtime_ns, digest, embedding FROM maskcon_moved "
            "ON CONFLICT (index_id, path) DO UPDATE SET size = EXCLUDED.size, mtime_ns = EXCLUDED.mtime_ns, "
            "digest = EXCLUDED.digest, embedding = EXCLUDED.embedding",
            (number,),
        )
        cursor.execute(
            "SELECT count(*), min(vector_dims(embedding)), max(vector_dims(embedding)) "
            "FROM maskcon_picture WHERE index_id = %s",
            (number,),
        )
        stored, low, high = cursor.fetchone() or (0, None, None)
        if stored != count or low != high:  # rolls back
            raise MaskconError(
                f"the store holds {stored} of {count} vectors, of lengths {low} to {high}; use --replace"
            )
        cursor.execute("UPDATE maskcon_index SET dimension = %s WHERE id = %s", (low or 0, number))

    def _prepare(self, register: Any) -> None:
        """Take the write lock and create missing tables; or check that there is something to read."""
        if self.owner is not None:
            free = self._open.execute(f"SELECT pg_try_advisory_lock({WRITE_LOCK})", (self.name,)).fetchone()
            if free != (True,):
                raise UsageError(f"another process is writing the index {self.name!r}; wait for it")
            with self._open.transaction():
                self._open.execute("SELECT pg_advisory_xact_lock(hashtext('maskcon tables'))")
                if not self._has_tables():  # a role that may write tables may not be allowed to create them
                    self._open.execute("CREATE EXTENSION IF NOT EXISTS vector")
                    for statement in TABLES:
                        self._open.execute(statement)
        elif not self._has_tables():
            raise UsageError(
                "the store has no index yet; build one with `maskcon index RUN SOURCE --store ...`"
            )
        register(self._open)

    def _has_tables(self) -> bool:
        return self._open.execute("SELECT to_regclass('maskcon_index')").fetchone() != (None,)

    def _row(self) -> tuple[int, Header, int] | None:
        """Read id, header and dimension of the index; None if there is none, or it was forgotten."""
        if self._forgotten:
            return None
        query = "SELECT id, version, encoder, source, root, dimension FROM maskcon_index WHERE name = %s"
        with _server_errors():
            row = self._open.execute(query, (self.name,)).fetchone()
        if row is None:
            return None
        if row[1] != VERSION:
            raise UsageError(
                f"the store's index {self.name!r} has version {row[1]}, this maskcon reads {VERSION}; "
                "rebuild it with `maskcon index RUN SOURCE --replace`"
            )
        source, root = (os.fsdecode(bytes(value)) for value in row[3:5])
        return row[0], Header(row[2], source, root), row[5]

    @property
    def _open(self) -> psycopg.Connection[Any]:
        if self._connection is None:
            raise UsageError("the store is not open; use it in a `with` block")
        return self._connection

    def _owner(self) -> Header:
        if self.owner is None:
            raise UsageError("this store was opened to read; give it an owner to write")
        return self.owner


def _entry(values: Sequence[Any]) -> Entry:
    path, size, mtime_ns, digest = values
    return Entry(os.fsdecode(bytes(path)), int(size), int(mtime_ns), bytes(digest).hex())


@contextmanager
def _server_errors() -> Iterator[None]:
    """Turn errors of the server into one line."""
    import psycopg

    try:
        yield
    except psycopg.errors.FeatureNotSupported as error:
        raise MaskconError(f"the server has no pgvector ({_first_line(error)}); install it there") from None
    except psycopg.Error as error:
        raise MaskconError(f"the store failed: {_first_line(error)}") from None


def _connect(address: str) -> psycopg.Connection[Any]:
    import psycopg

    with _server_errors():
        try:
            return psycopg.connect(address, connect_timeout=CONNECT_SECONDS)
        except psycopg.ProgrammingError:  # a malformed address; libpq's message would quote parts of it
            raise UsageError("--store is not a valid address; write special characters as %XX") from None


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _packages() -> tuple[Any, Any]:
    try:
        import psycopg
        from pgvector.psycopg import register_vector
    except ImportError:
        raise UsageError(
            "a store in PostgreSQL needs two packages: pip install 'maskcon[pgvector]'"
        ) from None
    return psycopg, register_vector
