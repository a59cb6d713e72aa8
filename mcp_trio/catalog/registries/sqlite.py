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
from mcp_trio.catalog.registries.rows import MAX_ID, MAX_VIEW_BYTES, VIEW_COLUMNS, to_reading
from mcp_trio.catalog.registries.schema import LAYOUT, Database, layout_of, open_database
from mcp_trio.catalog.registries.token import Token

CLOSE_TIMEOUT = 1.0
"""Seconds `aclose` waits for a read that was abandoned."""

T = TypeVar("T")

_SIZE = " + ".join(f"ifnull(length(CAST(o.{name} AS BLOB)), 0)" for name in VIEW_COLUMNS)
# A row that is too large is selected without its columns, so it never enters memory. Texts come
# as bytes: SQLite never looks whether they are UTF-8, and one that is not is a fault of its row.
_COLUMNS = ", ".join(
    f"CASE WHEN {_SIZE} > {MAX_VIEW_BYTES} OR o.{name} IS NULL THEN NULL "
    f"WHEN typeof(o.{name}) = 'text' THEN CAST(o.{name} AS BLOB) ELSE 0 END"
    for name in VIEW_COLUMNS
)
_ID = f"substr(CAST({{row}}.operation_id AS BLOB), 1, {4 * MAX_ID + 4})"
"""Enough of it to tell that it is too long."""
_EVERYTHING = (
    f"SELECT {_ID.format(row='o')}, 1, {_SIZE}, {_COLUMNS} FROM operations o "  # noqa: S608  # constant names
    "WHERE o.status = 'published'"
)
_SINCE = (
    f"SELECT {_ID.format(row='c')}, o.status IS 'published', {_SIZE}, {_COLUMNS} "  # noqa: S608  # constant names
    "FROM operation_changes c LEFT JOIN operations o ON o.operation_id = c.operation_id "
    "WHERE c.revision > ?"
)


@attrs.frozen
class _Stamp:
    """What tells that another file was put in the place of one, or over it."""

    file: tuple[int, int]
    """Device and inode."""
    content: tuple[int, int, int]
    """Size, and the times of the last changes."""

    @classmethod
    def of(cls, path: str) -> _Stamp:
        found = os.stat(path)  # noqa: PTH116  # in a thread, and the path is a string
        content = (found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        return cls((found.st_dev, found.st_ino), content)


@attrs.define
class _Link:
    """An open connection and the file it belongs to."""

    connection: Database
    stamp: _Stamp
    log: tuple[int, int] | None = None
    """The file of its write-ahead log; SQLite keeps it for as long as we have the other open."""


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
        stamp, log = _Stamp.of(self._path), self._log()
        link = self._link
        if link is not None and link.stamp == stamp:
            return link.connection
        # Another file stands there now: the open one is unlinked and would never change. Or
        # it was written over, or the log was moved into it; SQLite tells neither, and what
        # it remembers of the file may be of before.
        if (
            link is not None
            and link.stamp.file != stamp.file
            and log is not None
            and log.content[0]
            and log.file == link.log
        ):
            raise RegistryError(
                Trouble.CORRUPT,
                f"{self._path} was replaced while the log of the file before stands beside it: "
                f"remove {self._path}-wal and {self._path}-shm, and put the new file there again",
            )
        self._close()
        connection = open_database(self._path, apsw.SQLITE_OPEN_READONLY, self._busy_timeout)
        connection.pragma("query_only", True)
        connection.pragma("trusted_schema", False)
        self._link = _Link(connection, stamp)
        return connection

    def _log(self) -> _Stamp | None:
        try:
            return _Stamp.of(f"{self._path}-wal")
        except FileNotFoundError:
            return None

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
        log = self._log()
        if self._link is not None and log is not None:
            # SQLite opened it just now, if not before.
            self._link.log = log.file
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
    except (
        apsw.NotADBError,
        apsw.CorruptError,
        apsw.FormatError,
        UnicodeDecodeError,
    ) as error:
        raise RegistryError(Trouble.CORRUPT, f"{path} is not a sound SQLite file") from error
    except apsw.SQLError as error:
        raise RegistryError(
            Trouble.SCHEMA, f"{path} is not laid out as a registry: {error}"
        ) from error
    except (apsw.CantOpenError, apsw.ReadOnlyError) as error:
        raise RegistryError(
            Trouble.UNREADABLE,
            f"cannot open {path}: a file in WAL mode needs a folder that can be written; "
            "elsewhere put it in order with PRAGMA journal_mode = DELETE first",
        ) from error
    except apsw.Error as error:
        raise RegistryError(Trouble.UNREADABLE, f"cannot read {path}: {error}") from error
