"""Store an index in PostgreSQL with pgvector; transactions implement `Store`.

Several indexes, of any dimension, share three tables and are identified by name. All values are passed as parameters.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from maskcon._utils.errors import MaskconError, UsageError, first_line
from maskcon._utils.files import failpoint
from maskcon.data.folder_layout import show
from maskcon.retrieval.nearest import unit_rows
from maskcon.retrieval.store import Entry, Header, Neighbours, Vectors, check_request

if TYPE_CHECKING:
    import psycopg

SCHEMES = ("postgresql://", "postgres://")
WRITE_LOCK = "hashtext('maskcon'), hashtext(%s)"  # advisory lock on the index of a name
CONNECT_SECONDS = 10
TABLES = (
    """CREATE TABLE IF NOT EXISTS maskcon_header (
        name text PRIMARY KEY,
        encoder text NOT NULL,
        source bytea NOT NULL,
        root bytea NOT NULL
    )""",
    """CREATE TABLE IF NOT EXISTS maskcon_image (
        name text NOT NULL,
        path bytea NOT NULL,
        size bigint NOT NULL,
        mtime_ns numeric NOT NULL,
        digest bytea NOT NULL,
        PRIMARY KEY (name, path)
    )""",
    # by content and encoder, so that a vector may wait here for the commit of its image
    """CREATE TABLE IF NOT EXISTS maskcon_vector (
        name text NOT NULL,
        encoder text NOT NULL,
        digest bytea NOT NULL,
        embedding vector NOT NULL,
        PRIMARY KEY (name, encoder, digest)
    )""",
)


class PostgresStore:
    """An index in PostgreSQL; see `Store`. Use it in a `with` block.

    With an owner it locks out other writers. A store opened to read (owner None) sees the index as of its opening.
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
        if self._forgotten:
            return None
        query = "SELECT encoder, source, root FROM maskcon_header WHERE name = %s"
        with _server_errors():
            row = self._open.execute(query, (self.name,)).fetchone()
        if row is None:
            return None
        source, root = (os.fsdecode(bytes(value)) for value in row[1:])
        return Header(row[0], source, root)

    def entries(self) -> Sequence[Entry]:
        if self._forgotten:
            return []
        query = "SELECT path, size, mtime_ns, digest FROM maskcon_image WHERE name = %s ORDER BY path"
        with _server_errors():
            return [_entry(values) for values in self._open.execute(query, (self.name,)).fetchall()]

    def known(self) -> set[str]:
        query = "SELECT digest FROM maskcon_vector WHERE name = %s AND encoder = %s"
        with _server_errors():
            found = self._open.execute(query, (self.name, self._owner().encoder)).fetchall()
        return {bytes(digest).hex() for (digest,) in found}

    def stage(self, digests: Sequence[str], vectors: Vectors) -> None:
        key = (self.name, self._owner().encoder)
        query = "INSERT INTO maskcon_vector VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING"
        rows = [
            (*key, bytes.fromhex(digest), vector)
            for digest, vector in zip(digests, unit_rows(vectors), strict=True)
        ]
        with _server_errors(), self._open.transaction(), self._open.cursor() as cursor:
            cursor.executemany(query, rows)

    def commit(self, entries: Sequence[Entry]) -> None:
        """Replace the index in one transaction: a search sees the old one or the new one."""
        owner = self._owner()
        rows = sorted(
            (os.fsencode(entry.path), entry.size, entry.mtime_ns, bytes.fromhex(entry.digest))
            for entry in entries
        )
        if [_entry(row) for row in rows] == self.entries() and self.header() == owner:
            return
        failpoint("index-before-commit")
        with _server_errors(), self._open.transaction(), self._open.cursor() as cursor:
            for table in ("maskcon_image", "maskcon_header"):
                cursor.execute(f"DELETE FROM {table} WHERE name = %s", (self.name,))
            values = (self.name, owner.encoder, os.fsencode(owner.source), os.fsencode(owner.root))
            cursor.execute("INSERT INTO maskcon_header VALUES (%s, %s, %s, %s)", values)
            with cursor.copy("COPY maskcon_image (name, path, size, mtime_ns, digest) FROM STDIN") as copy:
                for row in rows:
                    copy.write_row((self.name, *row))
            cursor.execute(
                "DELETE FROM maskcon_vector v WHERE name = %s AND (encoder <> %s OR NOT EXISTS "
                "(SELECT 1 FROM maskcon_image i WHERE i.name = v.name AND i.digest = v.digest))",
                (self.name, owner.encoder),
            )
            cursor.execute(
                "SELECT count(*), min(vector_dims(embedding)), max(vector_dims(embedding)) "
                "FROM maskcon_image JOIN maskcon_vector USING (name, digest) WHERE name = %s",
                (self.name,),
            )
            stored, low, high = cursor.fetchone() or (0, None, None)
            if stored != len(rows) or low != high:  # rolls back
                raise MaskconError(
                    f"the store holds {stored} of {len(rows)} vectors, of lengths {low} to {high}; use --replace"
                )
        self._forgotten = False

    def forget(self) -> None:
        """Keep the rows until the commit replaces them, so that searches still work."""
        self._forgotten = True

    def search(self, queries: Vectors, k: int) -> Neighbours:
        """Find the k nearest exactly; the server compares all vectors."""
        header = self.header()
        if header is None:
            raise UsageError(f"the store has no index named {self.name!r}; build it with `maskcon index`")
        key = (self.name, header.encoder)
        length = "SELECT vector_dims(embedding) FROM maskcon_vector WHERE name = %s AND encoder = %s LIMIT 1"
        # on unit vectors the negative inner product orders as the cosine does
        query = (
            "SELECT path, size, mtime_ns, digest, -(embedding <#> %s) AS score FROM maskcon_image "
            "JOIN maskcon_vector USING (name, digest) WHERE name = %s AND encoder = %s "
            "ORDER BY score DESC, path LIMIT %s"
        )
        with _server_errors():
            (dimension,) = self._open.execute(length, key).fetchone() or (queries.shape[-1],)
            check_request(queries, k, dimension)
            found = [self._open.execute(query, (vector, *key, k)).fetchall() for vector in queries]
        entries = [[_entry(values[:4]) for values in rows] for rows in found]
        scores = np.array([[float(values[4]) for values in rows] for rows in found], dtype=np.float64)
        return Neighbours(entries, scores.reshape(len(queries), -1))

    def _prepare(self, register: Any) -> None:
        """Take the write lock and create missing tables; a reader checks for tables."""
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
        return self._open.execute("SELECT to_regclass('maskcon_vector')").fetchone() != (None,)

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
        raise MaskconError(f"the server has no pgvector ({first_line(error)}); install it there") from None
    except psycopg.Error as error:
        raise MaskconError(f"the store failed: {first_line(error)}") from None


def _connect(address: str) -> psycopg.Connection[Any]:
    import psycopg

    with _server_errors():
        try:
            return psycopg.connect(address, connect_timeout=CONNECT_SECONDS)
        except psycopg.ProgrammingError:  # a malformed address; libpq's message would quote parts of it
            raise UsageError("--store is not a valid address; write special characters as %XX") from None


def _packages() -> tuple[Any, Any]:
    try:
        import psycopg
        from pgvector.psycopg import register_vector
    except ImportError:
        raise UsageError(
            "a store in PostgreSQL needs two packages: pip install 'maskcon[pgvector]'"
        ) from None
    return psycopg, register_vector
