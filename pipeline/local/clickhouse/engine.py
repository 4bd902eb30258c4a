"""ClickHouse's engine in this process: one connection for each request, kept ones for sessions."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NamedTuple

from chdb.state.sqlitelike import Connection

from pipeline.clickhouse.literals import quoted
from pipeline.local.clickhouse.errors import (
    ACCESS_DENIED,
    NOT_ENOUGH_SPACE,
    READONLY,
    SESSION_IS_LOCKED,
    SESSION_NOT_FOUND,
    SYNTAX_ERROR,
    StoreError,
    from_engine,
)
from pipeline.local.clickhouse.outside import may_reach_outside, outside_part

_RIGHTS = Path(__file__).with_name("rights.xml")
_DEFAULT, _HOME = "default", "scratch"
"""A statement that names no database looks in _HOME. The engine's own `default` looks for files as well, and
so refuses every unknown name for lack of rights to files."""


class Answer(NamedTuple):
    """A finished statement: result bytes in the asked format, and counts for the summary."""

    data: bytes
    read_rows: int
    read_bytes: int
    result_rows: int


class EngineConnection:
    """One engine connection; settings, parameters, current database and temporary tables are its own.

    All methods block and raise StoreError; never call two at a time.
    """

    def __init__(self, connection: Any, version: str) -> None:
        self._connection = connection
        self._version = version

    def prepare(self, database: str, settings: Mapping[str, str], readonly: bool) -> None:
        """Apply what came with a request: database, settings and `param_x` values, then read-only mode."""
        if database and database != _DEFAULT:
            self.query(f"USE {quoted_name(database)}")
        if settings:
            self.query(
                "SET " + ", ".join(f"{_plain(name)}={quoted(value)}" for name, value in settings.items())
            )
        if readonly:
            self.query("SET readonly=2")

    def reset(self, settings: Mapping[str, str]) -> None:
        """Set settings back to their defaults, for a connection that is kept."""
        names = [_plain(name) for name in settings if not name.startswith("param_")]
        if names:
            self.query("SET " + ", ".join(f"{name}=DEFAULT" for name in names))

    def check(self, statement: str, only_reading: bool) -> bool:
        """Refuse what reaches outside the store, several statements in one, and writing where not allowed.

        Return True for a statement that only reads, and so has a result, even if it is empty.
        """
        verdict = self._connection._conn.classify_query(statement)
        if verdict["statement_count"] > 1:
            raise StoreError(SYNTAX_ERROR, "Syntax error (Multi-statements are not allowed). (SYNTAX_ERROR)")
        reads = bool(verdict["query_class"].name == "READ_ONLY")
        if only_reading and not reads:
            raise StoreError(READONLY, "Cannot execute query in readonly mode. (READONLY)")
        if may_reach_outside(statement):
            self._stay_inside(statement)
        return reads

    def _stay_inside(self, statement: str) -> None:
        # The engine's own spelling of what it understood: no comments, one form of quotes.
        spelled = self.query(f"SELECT formatQuerySingleLine({quoted(statement)})", "TabSeparatedRaw").data
        if outside := outside_part(spelled):
            raise StoreError(
                ACCESS_DENIED, f"{outside} reaches outside the embedded store and is refused. (ACCESS_DENIED)"
            )

    def query(self, statement: str, output_format: str = "TabSeparated") -> Answer:
        try:
            result = self._connection.query(statement, output_format)
        except Exception as error:
            raise from_engine(error, self._version) from error
        return Answer(
            bytes(result.bytes() or b""),
            int(result.storage_rows_read() or 0),
            int(result.storage_bytes_read() or 0),
            int(result.rows_read() or 0),
        )

    def stream(self, statement: str, output_format: str) -> Generator[bytes, None, None]:
        """Result blocks one by one; closing the iterator cancels the query."""
        try:
            with self._connection.send_query(statement, output_format) as blocks:
                for block in blocks:
                    yield bytes(block.bytes())
        except StoreError:
            raise
        except Exception as error:
            raise from_engine(error, self._version) from error

    def insert(self, head: str, input_format: str, data: bytes | bytearray) -> tuple[int, int]:
        """Write the data of an INSERT, all or none of them; return the rows and bytes written.

        However large, they are in memory: the engine's own streaming insert is of no use, as it reports rows
        as written when the disk refused them.
        """
        with _file_with(data) as path:
            answer = self.query(f"{head} FROM INFILE {quoted(path)} FORMAT {input_format}")
        return answer.result_rows, len(data)

    def close(self) -> None:
        self._connection.close()


class _Session:
    def __init__(self, connection: EngineConnection) -> None:
        self.connection = connection
        self.busy = False
        self.idle_until = 0.0


class Engine:
    """The open store. Only one process can open a path, with one engine; a second one is refused.

    SQL has the rights of `rights.xml`: no grant reaches beyond the store's own tables.
    """

    def __init__(self, path: Path) -> None:
        """`path` must be absolute: the engine looks for its rights in the process's working directory."""
        os.chdir(_RIGHTS.parent)
        opened = f"{path}?config-file={_RIGHTS}"
        # The engine stops with its last connection: this one keeps it up.
        self._keeper = Connection(opened)
        self._keeper.query(f"CREATE DATABASE IF NOT EXISTS {_HOME}")
        self._path = f"{opened}&database={_HOME}"
        self.version, self.timezone = (
            bytes(self._keeper.query(f"SELECT {name}()", "TabSeparatedRaw").bytes()).decode().strip()
            for name in ("version", "timezone")
        )
        self._sessions: dict[tuple[str, str], _Session] = {}
        self._lock = threading.Lock()

    def connect(self) -> EngineConnection:
        return EngineConnection(Connection(self._path), self.version)

    def enter_session(self, user: str, name: str, must_exist: bool, readonly: bool) -> EngineConnection:
        """Return the session's connection, for this request alone.

        Raises StoreError 372 (unknown session), 373 (busy).
        """
        with self._lock:
            self._expire()
            session = self._sessions.get((user, name))
            if session is None:
                if must_exist:
                    raise StoreError(SESSION_NOT_FOUND, f"Session {name} not found. (SESSION_NOT_FOUND)")
                connection = self.connect()
                connection.prepare("", {}, readonly)
                session = self._sessions[user, name] = _Session(connection)
            if session.busy:
                raise StoreError(
                    SESSION_IS_LOCKED, f"Session {name} is locked by a concurrent client. (SESSION_IS_LOCKED)"
                )
            session.busy = True
            return session.connection

    def leave_session(self, user: str, name: str, keep_seconds: float) -> None:
        with self._lock:
            session = self._sessions[user, name]
            session.busy = False
            session.idle_until = time.monotonic() + keep_seconds
            self._expire()

    def _expire(self) -> None:
        now = time.monotonic()
        for key, session in list(self._sessions.items()):
            if not session.busy and session.idle_until <= now:
                del self._sessions[key]
                session.connection.close()

    def close(self) -> None:
        for session in self._sessions.values():
            session.connection.close()
        self._sessions.clear()
        self._keeper.close()


@contextmanager
def _file_with(data: bytes | bytearray) -> Iterator[str]:
    """Yield the path of an unnamed file with the data, in memory on Linux."""
    with open(os.memfd_create("insert"), "w+b") if sys.platform == "linux" else TemporaryFile() as file:
        try:
            file.write(data)
            file.seek(0)
        except OSError as error:
            raise StoreError(NOT_ENOUGH_SPACE, f"{error}. (NOT_ENOUGH_SPACE)") from error
        yield f"/dev/fd/{file.fileno()}"


def quoted_name(name: str) -> str:
    """Return the name as an identifier."""
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def _plain(name: str) -> str:
    if not name.replace("_", "a").replace(".", "a").isalnum():
        raise StoreError(SYNTAX_ERROR, f"Not a setting's name: {name!r}")
    return name
