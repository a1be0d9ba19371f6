"""The server's memory in PostgreSQL, for several machines or a database that others keep.

Each thread borrows a connection of its own. `durable` waits until the write is on disk; other
commits do not, and a power cut may undo the last of them. To serve a model is an advisory lock of a
connection: it is let go of when the process ends, however it ends.
"""

import hashlib
import threading
from typing import Any, Final, final

from privet.errors import FaultyEnvironment, InputError
from privet.federation.server.state import Row, State
from privet.federation.server.state.schema import TABLES

try:
    import psycopg
except ModuleNotFoundError as missing:
    raise FaultyEnvironment(
        "PostgreSQL needs an extra package", got=str(missing), fix="pip install 'privet[postgres]'"
    ) from None

LOCKS: Final = 0x50524956  # so that other users of the database have locks of their own


@final
class PostgresState(State):
    """State in the database at `url`: postgresql://user@host/name."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self._idle: list[psycopg.Connection[Row]] = []
        self._opened: list[psycopg.Connection[Row]] = []
        self._opening = threading.Lock()
        with self.transaction(durable=True):
            self._do("SELECT pg_advisory_xact_lock(?)", LOCKS)  # two servers may begin at once
            for table in TABLES:
                self._do(table)

    def _borrow(self) -> "psycopg.Connection[Row]":
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:
                break
            if not connection.closed:
                return connection
        return self._connected()

    def _connected(self) -> "psycopg.Connection[Row]":
        try:
            connection = psycopg.connect(self._url, autocommit=True, connect_timeout=10)
            connection.execute("SET synchronous_commit = off")
        except psycopg.OperationalError as error:
            raise FaultyEnvironment(
                "cannot reach the database",
                got=str(error).strip().splitlines()[0],
                fix="start PostgreSQL, or check the URL of --database",
            ) from None
        with self._opening:
            self._opened = [known for known in self._opened if not known.closed]
            self._opened.append(connection)
        return connection

    def _give_back(self, connection: Any) -> None:
        if not connection.closed and not connection.broken:
            self._idle.append(connection)

    def _begin(self, connection: Any, *, durable: bool) -> None:
        connection.execute("BEGIN")
        if durable:
            connection.execute("SET LOCAL synchronous_commit = on")

    def _end(self, connection: Any, *, commit: bool) -> None:
        if commit:
            connection.execute("COMMIT")
        elif not connection.closed:
            connection.execute("ROLLBACK")

    def _rows(self, connection: Any, statement: str, values: tuple[Any, ...]) -> list[Row]:
        done = connection.execute(statement.replace("?", "%s"), values)
        return list(done.fetchall()) if done.description is not None else []

    def lease(self, model: str) -> "LockLease":
        """A lock in the database, held by a connection of its own."""
        return LockLease(self._connected(), model)

    def close(self) -> None:
        """Close all connections."""
        with self._opening:
            for connection in self._opened:
                connection.close()
            self._opened, self._idle = [], []


@final
class LockLease:
    """Leave to serve a model, held by an advisory lock."""

    def __init__(self, connection: "psycopg.Connection[Row]", model: str) -> None:
        self._connection = connection
        digest = hashlib.sha256(model.encode()).digest()
        number = int.from_bytes(digest[:4], "big", signed=True)
        query = "SELECT pg_try_advisory_lock(%s, %s)"
        found = connection.execute(query, (LOCKS, number)).fetchone()
        if not found or not found[0]:
            connection.close()
            raise InputError(
                f"'{model}' is served by another process",
                got="a lock in the database",
                fix="stop that one first: two would count updates twice",
            )

    def require(self) -> None:
        """A lock goes with its connection."""
        try:
            self._connection.execute("SELECT 1")
        except psycopg.Error:
            self._connection.close()
            raise FaultyEnvironment(
                "the lock on a model was lost with its connection",
                got="another process may serve the model by now",
                fix="start this one again; what was answered is counted",
            ) from None

    def release(self) -> None:
        """Let go of the lock, with its connection."""
        self._connection.close()
