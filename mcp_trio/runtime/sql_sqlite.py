"""SQLite as an upstream: a file, opened read-only for what reads."""

from __future__ import annotations

import base64
import contextlib
import math
import os
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any, Protocol, cast

import apsw
import msgspec

from mcp_trio.runtime.sql_pool import (
    Driver,
    Gathering,
    InterruptedJobError,
    Job,
    Order,
    RefusedError,
    Rows,
    Session,
    too_large,
)
from mcp_trio.runtime.stages import Stage, StageError

STEPS = 5_000
"""Steps of SQLite's machine between two looks whether a statement was given up."""
NAP = 0.01
"""Seconds between two tries to get a lock."""
_LEAST_LENGTH = 1 << 16
"""SQLite needs some room for itself."""


class _Cursor(Protocol):
    """The part of an apsw cursor that is used here; its own stubs are not fully typed."""

    def execute(self, statements: str, bindings: Mapping[str, object], /) -> Iterator[Any]: ...
    def get_description(self) -> tuple[tuple[str, str], ...]: ...
    def close(self, force: bool = False, /) -> None: ...  # noqa: FBT001, FBT002  # its signature


class _Database(Protocol):
    """The part of an apsw connection that is used here."""

    def execute(self, statements: str, /) -> object: ...
    def cursor(self) -> _Cursor: ...
    def changes(self) -> int: ...
    def pragma(self, name: str, value: object, /) -> object: ...
    def limit(self, kind: int, value: int, /) -> int: ...
    @property
    def in_transaction(self) -> bool: ...
    def config(self, name: int, value: int, /) -> int: ...
    def interrupt(self) -> None: ...
    def set_busy_handler(self, handler: Callable[[int], bool] | None, /) -> None: ...
    def set_progress_handler(self, handler: Callable[[], bool] | None, steps: int, /) -> None: ...
    def close(self, force: bool = False, /) -> None: ...  # noqa: FBT001, FBT002  # its signature


class SqliteDriver(Driver):
    """Opens one file.

    Args:
        path: absolute; the file has to exist when it is first used.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def open(self, order: Order) -> Session:
        """Open the file, read-only for an order that reads."""
        with _troubles(order):
            return SqliteSession(self._path, write=order.write)


class SqliteSession(Session):
    """One open file."""

    def __init__(self, path: str, *, write: bool) -> None:
        self._path = path
        self._write = write
        flags = apsw.SQLITE_OPEN_READWRITE if write else apsw.SQLITE_OPEN_READONLY
        self._inode = _inode(path)
        self._database = cast("_Database", apsw.Connection(path, flags=flags))
        self._lock = threading.Lock()
        self._closed = self._broken = False
        database = self._database
        # What a file says of itself is not trusted to run.
        database.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        database.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
        database.pragma("foreign_keys", True)
        if not write:
            database.pragma("query_only", True)
        self._longest = database.limit(apsw.SQLITE_LIMIT_LENGTH, -1)

    def serves(self, order: Order) -> bool:
        """Whether it was opened for that, and its file is still the one that stands there."""
        return order.write is self._write and _inode(self._path) == self._inode

    @property
    def usable(self) -> bool:
        """Whether the last transaction ended as it should."""
        return not self._broken

    def run(self, job: Job) -> Rows:
        """Run the job's order; see `Session`."""
        order, database = job.order, self._database
        given_up = job.given_up.is_set
        database.set_progress_handler(given_up, STEPS)
        # Waits for a lock, but not for one moment longer than somebody waits for it.
        database.set_busy_handler(lambda _tries: not job.given_up.wait(NAP) and order.left() > NAP)
        if not self._write:
            longest = max(order.max_bytes, _LEAST_LENGTH)
            database.limit(apsw.SQLITE_LIMIT_LENGTH, min(longest, self._longest))
        try:
            with _troubles(order):
                return self._transact(job)
        except InterruptedJobError:
            raise
        except BaseException as error:
            # A file that failed once is opened anew, in case another one stands there.
            if isinstance(error, StageError) and error.sub in {"connect", "malformed_reply"}:
                self._broken = True
            if given_up():
                # Whatever it ended with: it was told to.
                raise InterruptedJobError from None
            raise

    def _transact(self, job: Job) -> Rows:
        database, cursor = self._database, self._database.cursor()
        try:
            database.execute("BEGIN IMMEDIATE" if self._write else "BEGIN")
            rows = self._rows(job.order, cursor)
            cursor.close(True)
            if self._write:
                job.begin_commit()
                database.execute("COMMIT")
            return rows
        finally:
            # Nothing may be left of it, whatever happened.
            with contextlib.suppress(apsw.Error):
                cursor.close(True)
            self._roll_back()

    def _roll_back(self) -> None:
        database = self._database
        database.set_progress_handler(None, 0)
        try:
            if database.in_transaction:
                database.execute("ROLLBACK")
        except apsw.Error:
            self._broken = True

    def _rows(self, order: Order, cursor: _Cursor) -> Rows:
        values = {name: _bound(order.values[name]) for name in order.statement.names}
        described: list[tuple[str, ...]] = []

        def note(running: _Cursor, _statement: str, _values: object) -> bool:
            # Told before the first row, and also where there is none.
            described.append(tuple(name for name, _ in running.get_description()))
            return True

        cast("Any", cursor).exec_trace = note
        found = cursor.execute(order.statement.text, values)
        columns = described[-1] if described else ()
        if not columns:
            return Rows(columns=(), rows=[], row_count=self._database.changes(), gave_rows=False)
        gathering = Gathering(order, columns, to_json)
        wanted = True
        for row in found:
            # A change is made by stepping through: its rows are all taken, if not all kept.
            wanted = wanted and gathering.add(row)
            if not wanted and not order.write:
                break
        return gathering.done()

    def interrupt(self) -> None:
        """Stop what is running; it also looks for itself."""
        with self._lock:
            if not self._closed:
                self._database.interrupt()

    def cut(self) -> None:
        """The same again: a thread that is inside of SQLite cannot be pulled out of it."""
        self.interrupt()

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._closed = True
            with contextlib.suppress(apsw.Error):
                self._database.close(True)


def _inode(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116  # in a thread, and the path is a string
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _bound(value: object) -> object:
    """A JSON value as SQLite takes it; arrays and objects as JSON text."""
    if isinstance(value, list | dict):
        return msgspec.json.encode(value).decode()
    return value


def to_json(value: object) -> object:
    """A value of SQLite as JSON."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


_BUSY = (apsw.BusyError, apsw.LockedError, apsw.SchemaChangeError)
_REACH = (apsw.CantOpenError, apsw.AuthError, apsw.PermissionsError, apsw.NoMemError, apsw.IOError)


@contextlib.contextmanager
def _troubles(order: Order) -> Generator[None]:
    """Turn what SQLite says into stages, in one place."""
    try:
        yield
    except (apsw.InterruptError, apsw.AbortError) as error:
        raise InterruptedJobError from error
    except apsw.TooBigError as error:
        raise too_large(order.max_bytes) from error
    except _REACH as error:
        raise StageError(
            Stage.ADAPTER_EXECUTION,
            "the database file cannot be opened or read",
            sub="connect",
            code=_code(error),
            retryable=True,
            step="operator",
        ) from error
    except (apsw.NotADBError, apsw.CorruptError, apsw.FormatError, UnicodeDecodeError) as error:
        raise StageError(
            Stage.ADAPTER_EXECUTION,
            "the database file is not sound",
            sub="malformed_reply",
            code=_code(error),
            step="operator",
        ) from error
    except (OverflowError, UnicodeEncodeError) as error:
        raise StageError(
            Stage.MAPPING, "a parameter is no value that SQLite has", sub="mapping"
        ) from error
    except apsw.Error as error:
        raise RefusedError(
            str(error), code=_code(error), retryable=isinstance(error, _BUSY)
        ) from error


def _code(error: Exception) -> str:
    """SQLite's own name of a result."""
    extended = getattr(error, "extendedresult", None)
    names = cast("Mapping[int, str]", apsw.mapping_extended_result_codes)
    plain = cast("Mapping[int, str]", apsw.mapping_result_codes)
    if type(extended) is not int:
        return "SQLITE_ERROR" if isinstance(error, apsw.Error) else "malformed"
    return names.get(extended) or plain.get(extended & 0xFF) or "SQLITE_ERROR"
