"""The SQLite registry as a catalog reads it: read-only, in a worker thread, never blocking.

One read is one hop to a thread that does all the SQL of that read. apsw's own Trio support
hops once per statement, queues without a bound and keeps a non-daemon thread, so plain
calls in `trio.to_thread` under a limiter of one serve better here. Tables and triggers
stand in `schema`.

Cancelling a read returns at once; SQLite is told to stop, and the limiter keeps the next
read away from the connection until the thread has.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator
from typing import TypeVar, cast

import apsw
import attrs
import trio

from mcp_trio.abc import Reading, RegistryError, Trouble
from mcp_trio.catalog.operation import FORMAT
from mcp_trio.catalog.registries.rows import MAX_VIEW_BYTES, VIEW_COLUMNS, to_reading
from mcp_trio.catalog.registries.schema import LAYOUT, Database, layout_of, open_database
from mcp_trio.catalog.registries.token import Token

CLOSE_TIMEOUT = 1.0
"""Seconds `aclose` waits for a read that was abandoned."""

T = TypeVar("T")

_SIZE = " + ".join(f"ifnull(length(CAST(o.{name} AS BLOB)), 0)" for name in VIEW_COLUMNS)
# A row that is too large is selected without its columns, so it never enters memory.
_COLUMNS = ", ".join(f"iif({_SIZE} <= {MAX_VIEW_BYTES}, o.{name}, NULL)" for name in VIEW_COLUMNS)
_EVERYTHING = (
    f"SELECT o.operation_id, 1, {_SIZE}, {_COLUMNS} FROM operations o "  # noqa: S608  # constant names
    "WHERE o.status = 'published'"
)
_SINCE = (
    f"SELECT c.operation_id, o.status IS 'published', {_SIZE}, {_COLUMNS} "  # noqa: S608  # constant names
    "FROM operation_changes c LEFT JOIN operations o ON o.operation_id = c.operation_id "
    "WHERE c.revision > ?"
)


@attrs.frozen
class _Link:
    """An open connection and the file it belongs to."""

    connection: Database
    inode: tuple[int, int]


class SqliteRegistry:
    """Reads the published operations of a SQLite file. Implements `Registry`.

    The file may be missing, appear later, or be replaced by another one while in use; it
    is opened read-only on first need. Not for two tasks at once: reads wait for each other.

    Args:
        path: the database file, made by `schema.create_registry`.
        busy_timeout: seconds to wait for a lock; at most 10.
    """

    def __init__(self, path: str | os.PathLike[str], *, busy_timeout: float = 0.25) -> None:
        self._path: str = os.path.abspath(os.fspath(path))  # noqa: PTH100  # no file access
        self._busy_timeout = min(max(busy_timeout, 0.0), 10.0)
        self._limiter = trio.CapacityLimiter(1)
        # Both belong to the thread that holds the limiter.
        self._link: _Link | None = None
        self._seen: tuple[object, Token] | None = None
        """`data_version` of the link, and the token that was current at that version."""

    @property
    def path(self) -> str:
        """The absolute path."""
        return self._path

    async def change_token(self) -> str:
        """Tell the state of the registry; one PRAGMA while nothing has been written.

        Raises:
            RegistryError: it cannot be read now.
        """
        return str(await self._in_thread(self._current_token))

    async def read(self, since: str | None) -> Reading:
        """Read what was published, changed or withdrawn after `since`, in one transaction.

        Raises:
            RegistryError: it cannot be read now.
        """
        base = Token.read(since)
        return await self._in_thread(lambda: self._read(base))

    async def aclose(self) -> None:
        """Close the file, after an abandoned read has stopped. It reopens on the next use."""
        self._interrupt()
        # Bounded although shielded: an abandoned read ends within the busy timeout.
        with trio.move_on_after(CLOSE_TIMEOUT, shield=True):
            await trio.to_thread.run_sync(
                self._close, abandon_on_cancel=True, limiter=self._limiter
            )

    async def _in_thread(self, work: Callable[[], T]) -> T:
        def guarded() -> T:
            with _troubles(self._path):
                try:
                    return work()
                except apsw.Error:
                    # A connection that failed once is not trusted again.
                    self._close()
                    raise

        try:
            return await trio.to_thread.run_sync(
                guarded, abandon_on_cancel=True, limiter=self._limiter
            )
        except trio.Cancelled:
            self._interrupt()
            raise

    def _interrupt(self) -> None:
        link = self._link
        if link is not None:
            # The thread may close the connection this very moment; then all is well too.
            with contextlib.suppress(apsw.ConnectionClosedError):
                link.connection.interrupt()

    def _close(self) -> None:
        link, self._link, self._seen = self._link, None, None
        if link is not None:
            link.connection.close()

    def _open(self) -> Database:
        found = os.stat(self._path)  # noqa: PTH116  # in a thread, and the path is a string
        inode = (found.st_dev, found.st_ino)
        if self._link is not None and self._link.inode == inode:
            return self._link.connection
        # Another file stands there now: the open one is unlinked and would never change.
        self._close()
        connection = open_database(self._path, apsw.SQLITE_OPEN_READONLY, self._busy_timeout)
        connection.pragma("query_only", True)
        connection.pragma("trusted_schema", False)
        self._link = _Link(connection, inode)
        return connection

    def _current_token(self) -> Token:
        connection = self._open()
        version = connection.pragma("data_version")
        if self._seen is not None and self._seen[0] == version:
            return self._seen[1]
        token = self._token(connection)
        # The version was read first: a write in between is newer than what is remembered,
        # and the next look will see it.
        self._seen = (version, token)
        return token

    def _token(self, connection: Database) -> Token:
        rows = list(connection.execute("SELECT format, registry_id, counter FROM registry_state"))
        if len(rows) != 1 or rows[0][0] != FORMAT or not isinstance(rows[0][2], int):
            raise RegistryError(
                Trouble.SCHEMA, f"{self._path} is not a registry of the format {FORMAT}"
            )
        layout = layout_of(connection)
        if layout < LAYOUT:
            raise RegistryError(
                Trouble.SCHEMA,
                f"{self._path} has layout {layout} and is to be migrated to {LAYOUT}: "
                "mcp_trio.catalog.registries.schema.migrate does it",
            )
        ((registry_id, counter, stamp),) = connection.execute(
            "SELECT registry_id, counter, stamp FROM registry_state"
        )
        return Token(str(registry_id), cast("int", counter), str(stamp))

    def _read(self, base: Token | None) -> Reading:
        connection = self._open()
        # One transaction: the token and the rows are of the same moment.
        connection.execute("BEGIN")
        try:
            return self._read_all(connection, base)
        finally:
            connection.execute("ROLLBACK")

    @staticmethod
    def _is_past(connection: Database, base: Token, now: Token) -> bool:
        """Whether this registry was once at the token, and not another that shares its id."""
        if not base.may_precede(now):
            return False
        had = connection.execute(
            "SELECT 1 FROM registry_history WHERE revision = ? AND stamp = ?",
            (base.counter, base.stamp),
        )
        return bool(list(had))

    def _read_all(self, connection: Database, base: Token | None) -> Reading:
        now = self._token(connection)
        partial = base is not None and self._is_past(connection, base, now)
        rows = (
            connection.execute(_SINCE, (base.counter,))
            if base is not None and partial
            else connection.execute(_EVERYTHING)
        )
        return to_reading(rows, token=str(now), complete=not partial)


@contextlib.contextmanager
def _troubles(path: str) -> Generator[None]:
    """Turn what SQLite and the system say into RegistryError, in one place."""
    try:
        yield
    except FileNotFoundError as error:
        raise RegistryError(Trouble.MISSING, f"there is no registry at {path}") from error
    except OSError as error:
        raise RegistryError(Trouble.UNREADABLE, f"cannot read {path}: {error.strerror}") from error
    except (apsw.BusyError, apsw.LockedError) as error:
        raise RegistryError(
            Trouble.LOCKED, f"{path} is locked by another process for longer than the wait"
        ) from error
    except (apsw.NotADBError, apsw.CorruptError, apsw.FormatError) as error:
        raise RegistryError(Trouble.CORRUPT, f"{path} is not a sound SQLite file") from error
    except apsw.SQLError as error:
        raise RegistryError(
            Trouble.SCHEMA, f"{path} is not laid out as a registry: {error}"
        ) from error
    except apsw.Error as error:
        raise RegistryError(Trouble.UNREADABLE, f"cannot read {path}: {error}") from error
