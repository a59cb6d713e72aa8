"""The PostgreSQL registry as a catalog reads it: read-only, in a worker thread.

psycopg knows asyncio and threads, not Trio, so one read is one hop to a thread that does
all the SQL of that read, under a limiter of one. Every read is one read-only transaction of
one moment with a limit on its time, so it never makes a publisher wait, and it works on a
standby. Tables and triggers stand in `postgres_schema`.

A connection is kept between looks. One that was lost meanwhile is made again, by libpq's
rules: an address with several hosts fails over to the next one. A token tells whether a
server is the same registry at a later time, so that a standby that lags, or that was
promoted and went another way, is read completely instead of misunderstood.

Cancelling a read, or running out of time, asks the server to end the query; if it does not
even answer that, the socket is cut. Neither leaves a query behind.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import LiteralString, TypeVar

import psycopg
import trio

from mcp_trio.abc import Reading, RegistryError, Trouble
from mcp_trio.catalog.operation import FORMAT
from mcp_trio.catalog.registries.options import RegistryOptions
from mcp_trio.catalog.registries.postgres_schema import LAYOUT
from mcp_trio.catalog.registries.rows import MAX_ID, MAX_VIEW_BYTES, VIEW_COLUMNS, to_reading
from mcp_trio.catalog.registries.token import Token
from mcp_trio.postgres import Line, parameters_of, said, with_defaults
from mcp_trio.secrets import shown_url

CANCEL_TIMEOUT = 1.0
"""Seconds for telling a server to end a query; then the socket is cut."""
_FETCH: LiteralString = "FETCH FORWARD 500 FROM catalog"

_DENIED = (
    "authentication failed",
    "no password supplied",
    "no pg_hba.conf entry",
    "is not permitted to log in",
    "permission denied for database",
)

T = TypeVar("T")

_TEXT = [f"o.{name}::text" for name in VIEW_COLUMNS]
_SIZE = " + ".join(f"coalesce(octet_length({name}), 0)" for name in _TEXT)
# A row that is too large is selected without its columns, so it never enters memory.
_SHOWN = ", ".join(f"CASE WHEN {_SIZE} <= {MAX_VIEW_BYTES} THEN {name} END" for name in _TEXT)
_STATE: LiteralString = "SELECT format, layout, registry_id, counter, stamp FROM registry_state"
_EVERYTHING = (
    f"SELECT left(o.operation_id, {MAX_ID + 1}), true, {_SIZE}, {_SHOWN} FROM operations o "  # noqa: S608  # constant
    "WHERE o.status = 'published'"
)
_SINCE = (
    f"SELECT left(c.operation_id, {MAX_ID + 1}), o.status IS NOT DISTINCT FROM 'published', "  # noqa: S608  # constant
    f"{_SIZE}, {_SHOWN} FROM operation_changes c "
    "LEFT JOIN operations o ON o.operation_id = c.operation_id WHERE c.revision > %s"
)


class PostgresRegistry:
    """Reads the published operations of a PostgreSQL database. Implements `Registry`.

    Connects on first need. Not for two tasks at once: reads wait for each other.

    Args:
        address: a `postgresql://` URL without a password; several hosts are tried in turn.
            Without an `sslmode` in it, hosts beyond this machine are reached over TLS with
            a certificate that has to be theirs.
        options: the password, the authorities, and the times.

    Raises:
        ConfigurationError: such an address cannot be, or has a password in it.
    """

    def __init__(self, address: str, options: RegistryOptions | None = None) -> None:
        self._options = options or RegistryOptions()
        self._shown = shown_url(address)
        self._parameters = registry_parameters(address, self._options)
        self._limiter = trio.CapacityLimiter(1)
        # What follows belongs to the thread that holds the limiter.
        self._line: Line | None = None

    async def change_token(self) -> str:
        """Tell the state of the registry by reading one row.

        Raises:
            RegistryError: it cannot be read now.
        """
        return str(await self._in_time(self._token))

    async def read(self, since: str | None) -> Reading:
        """Read what was published, changed or withdrawn after `since`, in one transaction.

        Raises:
            RegistryError: it cannot be read now.
        """
        base = Token.read(since)
        return await self._in_time(lambda connection: self._read(connection, base))

    async def aclose(self) -> None:
        """Close the connection, after an abandoned read has ended. It reopens on the next use."""
        # Bounded although shielded: an abandoned read has been told to end.
        with trio.move_on_after(CANCEL_TIMEOUT, shield=True) as scope:
            await trio.to_thread.run_sync(
                self._close, abandon_on_cancel=True, limiter=self._limiter
            )
        if scope.cancelled_caught and self._line is not None:
            self._line.cut()

    async def _in_time(self, work: Callable[[psycopg.Connection], T]) -> T:
        with trio.move_on_after(self._options.total_timeout):
            return await self._in_thread(work)
        raise RegistryError(
            Trouble.UNREACHABLE,
            f"{self._shown} gave no answer within {self._options.total_timeout:g} seconds",
        )

    async def _in_thread(self, work: Callable[[psycopg.Connection], T]) -> T:
        try:
            return await trio.to_thread.run_sync(
                self._work, work, abandon_on_cancel=True, limiter=self._limiter
            )
        except trio.Cancelled:
            line = self._line
            if line is not None:
                await self._end_query(line)
            raise

    async def _end_query(self, line: Line) -> None:
        """Let the thread that was left behind end, and the query on the server with it."""
        with trio.CancelScope(shield=True):
            # Bounded by itself.
            await trio.to_thread.run_sync(line.interrupt, CANCEL_TIMEOUT)

    # What runs in the thread.

    def _work(self, work: Callable[[psycopg.Connection], T]) -> T:
        with self._troubles():
            kept = self._line is not None
            try:
                return self._transact(work)
            except (psycopg.OperationalError, psycopg.InterfaceError):
                line = self._line
                if not kept or line is None or not line.connection.broken:
                    raise
                # It was lost between two looks, which says nothing about the server now.
                self._close()
                # If we cut it ourselves, nobody waits for an answer any more.
                trio.from_thread.check_cancelled()
                return self._transact(work)

    def _transact(self, work: Callable[[psycopg.Connection], T]) -> T:
        if self._line is None:
            self._line = Line(self._parameters, self._options.secret)
            try:
                # Whoever asked may have gone while it was made, and nobody closes it then.
                trio.from_thread.check_cancelled()
            except trio.Cancelled:
                self._close()
                raise
        connection = self._line.connection
        limit = max(1, int(self._options.total_timeout * 1000))
        # One round trip. The limit belongs to the transaction, so it needs no session of
        # its own behind a pooler.
        connection.execute(
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;"
            f"SET LOCAL statement_timeout = {limit};".encode()
        )
        try:
            return work(connection)
        finally:
            if not connection.closed:
                connection.execute("ROLLBACK")

    def _close(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            line.close()

    def _token(self, connection: psycopg.Connection) -> Token:
        # A database without an encoding (SQL_ASCII) gives bytes.
        rows = [
            [v.decode(errors="backslashreplace") if isinstance(v, bytes) else v for v in row]
            for row in connection.execute(_STATE).fetchall()
        ]
        if len(rows) != 1 or rows[0][0] != FORMAT:
            raise RegistryError(
                Trouble.SCHEMA, f"{self._shown} is not a registry of the format {FORMAT}"
            )
        _, layout, registry_id, counter, stamp = rows[0]
        if int(layout) < LAYOUT:
            raise RegistryError(
                Trouble.SCHEMA,
                f"{self._shown} has layout {layout} and is to be migrated to {LAYOUT}: "
                "see mcp_trio.catalog.registries.postgres_schema",
            )
        return Token(str(registry_id), int(counter), str(stamp))

    def _read(self, connection: psycopg.Connection, base: Token | None) -> Reading:
        now = self._token(connection)
        partial = base is not None and self._is_past(connection, base, now)
        query = _SINCE if partial else _EVERYTHING
        # A cursor on the server: rows come in batches, and not all at once. It ends with the
        # transaction. Not the driver's own: that one must be told to close, which fails
        # when the query is cancelled at that moment.
        connection.execute(
            f"DECLARE catalog NO SCROLL CURSOR FOR {query}".encode(),
            (base.counter,) if base is not None and partial else (),
        )
        return to_reading(_fetched(connection), token=str(now), complete=not partial)

    @staticmethod
    def _is_past(connection: psycopg.Connection, base: Token, now: Token) -> bool:
        """Whether this registry was once at the token, and not another that shares its id."""
        if not base.may_precede(now):
            return False
        had = connection.execute(
            "SELECT 1 FROM registry_history WHERE revision = %s AND stamp = %s",
            (base.counter, base.stamp),
        )
        return had.fetchone() is not None

    @contextlib.contextmanager
    def _troubles(self) -> Generator[None]:
        """Turn what the driver says into RegistryError, in one place."""
        try:
            yield
        except (psycopg.Error, OSError) as error:
            # A connection that failed once is not trusted again.
            self._close()
            trouble, what = _meaning(error)
            why = said(error, self._options.secret)
            raise RegistryError(trouble, f"{self._shown} {what}: {why}") from None


def _fetched(connection: psycopg.Connection) -> Iterator[Sequence[object]]:
    while rows := connection.execute(_FETCH).fetchall():
        yield from rows


def _meaning(error: Exception) -> tuple[Trouble, str]:
    match error:
        case psycopg.errors.UndefinedTable() | psycopg.errors.UndefinedColumn():
            return Trouble.SCHEMA, "is not laid out as a registry"
        case psycopg.errors.InsufficientPrivilege():
            return Trouble.DENIED, "does not let us read"
        case psycopg.errors.QueryCanceled() | psycopg.errors.SerializationFailure():
            return Trouble.LOCKED, "is held by somebody, or too slow"
        case psycopg.errors.InvalidCatalogName():
            return Trouble.MISSING, "is not there"
        case psycopg.OperationalError() | psycopg.InterfaceError() | OSError():
            # Of a connection that was refused the driver knows the text alone.
            if any(sign in str(error) for sign in _DENIED):
                return Trouble.DENIED, "does not let us in"
            if 'database "' in str(error) and "does not exist" in str(error):
                return Trouble.MISSING, "is not there"
            return Trouble.UNREACHABLE, "cannot be reached"
        case _:
            return Trouble.UNREADABLE, "cannot be read"


def registry_parameters(address: str, options: RegistryOptions) -> dict[str, str]:
    """The address of a registry taken apart, with what we add to it.

    Raises:
        ConfigurationError: it is none, or has a password in it.
    """
    given = parameters_of(f"registry {shown_url(address)}", address)
    # A peer that is gone without a word is noticed, and not only by our own clock.
    given.setdefault("tcp_user_timeout", str(int(options.total_timeout * 1000)))
    return with_defaults(given, connect_timeout=options.connect_timeout, ca_file=options.ca_file)
