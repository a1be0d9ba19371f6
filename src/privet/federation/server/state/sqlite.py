"""The server's memory in one SQLite file, for one machine.

The file is in WAL mode: a killed process loses nothing, and `durable` waits for the disk. Writers
of this process take turns at a lock of their own, which wakes the next at once; SQLite's own would
let it sleep.
"""

import fcntl
import os
import sqlite3
import threading
from pathlib import Path
from typing import Any, final

from privet.errors import FaultyEnvironment, InputError
from privet.federation.server.state import Row, State
from privet.federation.server.state.schema import TABLES
from privet.files import make_folder


@final
class SqliteState(State):
    """State in the file at `path`."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__()
        self.path = Path(path)
        make_folder(self.path.parent)
        self._idle: list[sqlite3.Connection] = []
        self._all_connections: list[sqlite3.Connection] = []
        self._writing = threading.Lock()
        with self.transaction():
            for table in TABLES:
                self._do(table)

    def _borrow(self) -> sqlite3.Connection:
        try:
            return self._idle.pop()
        except IndexError:
            return self._opened()

    def _opened(self) -> sqlite3.Connection:
        try:
            connection = sqlite3.connect(
                self.path, timeout=60, isolation_level=None, check_same_thread=False
            )
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
        except sqlite3.OperationalError as error:
            raise FaultyEnvironment(
                "cannot open the server's state", got=f"{self.path} ({error})"
            ) from None
        except sqlite3.DatabaseError as error:
            raise InputError(
                "corrupt state", got=f"{self.path} ({error})", fix="restore it from a backup"
            ) from None
        self._all_connections.append(connection)
        return connection

    def _give_back(self, connection: sqlite3.Connection) -> None:
        self._idle.append(connection)

    def _begin(self, connection: sqlite3.Connection, *, durable: bool) -> None:
        self._writing.acquire()
        try:
            connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            connection.execute("BEGIN IMMEDIATE")
        except BaseException:
            self._writing.release()
            raise

    def _end(self, connection: sqlite3.Connection, *, commit: bool) -> None:
        try:
            connection.execute("COMMIT" if commit else "ROLLBACK")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        finally:
            self._writing.release()

    def _rows(
        self, connection: sqlite3.Connection, statement: str, values: tuple[Any, ...]
    ) -> list[Row]:
        return connection.execute(statement, values).fetchall()

    def lease(self, model: str) -> "FileLease":
        """A lock on a file beside the database; the system lets go of it when the process ends."""
        folder = self.path.with_name(f"{self.path.name}.locks")
        make_folder(folder)
        return FileLease(folder / f"{model}.lock", model)

    def close(self) -> None:
        """Close all connections."""
        for connection in self._all_connections:
            connection.close()
        self._all_connections, self._idle = [], []


@final
class FileLease:
    """Leave to serve a model, held by a lock on a file."""

    def __init__(self, path: Path, model: str) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._file)
            raise InputError(
                f"'{model}' is served by another process",
                got=path,
                fix="stop that one first: two would count updates twice",
            ) from None

    def require(self) -> None:
        """A lock on a file is not lost."""
        assert self._file >= 0, "the lease was given back"

    def release(self) -> None:
        """Let go of the lock."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
