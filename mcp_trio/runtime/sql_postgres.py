"""PostgreSQL as an upstream, by psycopg in worker threads; needs the extra `postgres`.

A session that was kept and is found lost is made again before the statement is sent, so a
restarted server is not noticed. Giving up asks the server to end the statement; if it does
not answer that either, the socket is cut.
"""

from __future__ import annotations

import base64
import contextlib
import math
from collections.abc import Generator, Iterator, Mapping, Sequence
from datetime import date, time
from typing import cast

import msgspec
import psycopg
import psycopg.types.datetime as moments
from psycopg.adapt import Buffer, Loader
from psycopg.types.json import Jsonb, set_json_loads
from psycopg.types.string import TextLoader

from mcp_trio.postgres import Line, parameters_of, with_defaults
from mcp_trio.runtime.sql_pool import (
    CANCEL_TIMEOUT,
    Driver,
    Gathering,
    InterruptedJobError,
    Job,
    Order,
    RefusedError,
    Rows,
    Session,
)
from mcp_trio.runtime.stages import Stage, StageError
from mcp_trio.secrets import Secret

BATCH = 200
"""Rows fetched at once, so that what is over a limit is not fetched."""
_AS_TEXT = (
    *("numeric", "money", "interval", "inet", "cidr"),
    *("int4range", "int8range", "numrange", "daterange", "tsrange", "tstzrange"),
    *("int4multirange", "int8multirange", "nummultirange"),
    *("datemultirange", "tsmultirange", "tstzmultirange"),
)
"""Types whose values have no exact place in JSON; as the server writes them."""
_PASSING = frozenset({"40001", "40P01", "55P03"})
"""Refusals that may pass by themselves: conflicts with others, and locks."""
_ENDED = "57014"
"""The server ended the statement: its time was over, or somebody asked for it."""


class PostgresDriver(Driver):
    """Opens sessions to one database.

    Args:
        name: of the connection, for errors.
        address: a `postgresql://` URL without a password.
        password: asked for its value anew for each session.
        ca_file: authorities to trust instead of the system's.

    Raises:
        ConfigurationError: such an address cannot be, or has a password in it.
    """

    def __init__(
        self,
        name: str,
        address: str,
        *,
        password: Secret | None = None,
        ca_file: str | None = None,
    ) -> None:
        self._given = parameters_of(f"connection {name}", address)
        self._password = password
        self._ca_file = ca_file

    def open(self, order: Order) -> Session:
        """Open a session."""
        return PostgresSession(self, order)

    def connect(self, order: Order) -> Line:
        """Connect and log in.

        Raises:
            StageError: that cannot be.
        """
        parameters = with_defaults(
            self._given,
            # Whoever waits has a deadline of their own.
            connect_timeout=min(order.connect_timeout, order.left()),
            ca_file=self._ca_file,
        )
        try:
            line = Line(parameters, self._password)
        except (psycopg.Error, OSError, ValueError) as error:
            raise StageError(
                Stage.ADAPTER_EXECUTION,
                "the database cannot be reached, or does not let us in",
                sub="connect",
                retryable=True,
            ) from error
        _set_loaders(line.connection)
        return line


class PostgresSession(Session):
    """One session; its connection is made again when it was lost between two orders."""

    def __init__(self, driver: PostgresDriver, order: Order) -> None:
        self._driver = driver
        self._line = driver.connect(order)
        self._fresh = True

    @property
    def _connection(self) -> psycopg.Connection:
        return self._line.connection

    def serves(self, order: Order) -> bool:  # noqa: ARG002  # any
        """Always."""
        return True

    @property
    def usable(self) -> bool:
        """Whether it stands, between two transactions."""
        idle = psycopg.pq.TransactionStatus.IDLE
        return not self._connection.closed and self._connection.info.transaction_status is idle

    def run(self, job: Job) -> Rows:
        """Run the job's order; see `Session`."""
        try:
            self._begin(job)
            return self._transact(job)
        except InterruptedJobError:
            raise
        except psycopg.Error as error:
            if job.given_up.is_set():
                # Whatever it ended with: it was told to.
                raise InterruptedJobError from None
            raise self._meaning(error, job.order) from error

    def _begin(self, job: Job) -> None:
        order = job.order
        kind = "READ WRITE" if order.write else "READ ONLY"
        # One round trip. The settings belong to the transaction, so they need no session of
        # their own behind a pooler; quotes and intervals mean what they should.
        opening = (
            f"BEGIN {kind};"
            f"SET LOCAL statement_timeout = {math.ceil(order.left() * 1000)};"
            "SET LOCAL standard_conforming_strings = on;"
            "SET LOCAL datestyle = 'ISO'; SET LOCAL intervalstyle = 'iso_8601'"
        ).encode()
        fresh, self._fresh = self._fresh, False
        try:
            self._connection.execute(opening)
        except psycopg.Error:
            if fresh or not self._connection.closed or job.given_up.is_set():
                raise
            # It was lost while nobody used it, which says nothing about the server now.
            lost, self._line = self._line, self._driver.connect(order)
            lost.close()
            # Whoever gave up before now has told the lost one to end.
            job.check()
            self._connection.execute(opening)

    def _transact(self, job: Job) -> Rows:
        done = False
        try:
            rows = self._rows(job.order)
            if job.order.write:
                job.begin_commit()
                self._connection.execute("COMMIT")
                done = True
            return rows
        finally:
            if not done and not self._connection.closed:
                with contextlib.suppress(psycopg.Error):
                    self._connection.execute("ROLLBACK")

    def _rows(self, order: Order) -> Rows:
        values = [_bound(order.values[name]) for name in order.statement.names]
        text = order.statement.text.encode()
        if not order.write:
            return self._fetched(order, text, values)
        cursor = psycopg.RawCursor(self._connection)
        if order.statement.gives_rows:
            return self._streamed(order, cursor, text, values)
        cursor.execute(text, values)
        if cursor.description is None:
            return Rows(columns=(), rows=[], row_count=max(0, cursor.rowcount), gave_rows=False)
        gathering = Gathering(order, _columns(cursor), to_json)
        for row in cursor:
            if not gathering.add(row):
                break
        return gathering.done()

    def _fetched(self, order: Order, text: bytes, values: Sequence[object]) -> Rows:
        """By a cursor on the server, which makes no more than is fetched."""
        with psycopg.RawServerCursor(self._connection, "operation") as cursor:
            cursor.itersize = min(BATCH, order.max_rows + 1)
            cursor.execute(text, values)
            gathering = Gathering(order, _columns(cursor), to_json)
            for row in cast("Iterator[tuple[object, ...]]", cursor):
                if not gathering.add(row):
                    break
            return gathering.done()

    @staticmethod
    def _streamed(
        order: Order, cursor: psycopg.RawCursor, text: bytes, values: Sequence[object]
    ) -> Rows:
        """Row by row, to the end, so that the change is made whole."""
        gathering: Gathering | None = None
        wanted = True
        stream = cast("Generator[tuple[object, ...]]", cursor.stream(text, values))
        with contextlib.closing(stream) as rows:
            for row in rows:
                if gathering is None:
                    gathering = Gathering(order, _columns(cursor), to_json)
                wanted = wanted and gathering.add(row)
        if gathering is None:
            return Rows(columns=(), rows=[], row_count=0, gave_rows=True)
        return gathering.done()

    def _meaning(self, error: psycopg.Error, order: Order) -> Exception:
        """What the driver says, as a stage, in one place."""
        state = error.sqlstate
        if state == _ENDED:
            return StageError(
                Stage.ADAPTER_EXECUTION,
                "the database ended the statement before it was done",
                sub="timeout",
                code=_ENDED,
                retryable=not order.write,
            )
        if self._connection.closed or self._connection.broken:
            return StageError(
                Stage.ADAPTER_EXECUTION,
                "the database hung up; whether it made the change is not known"
                if order.write
                else "the database hung up before it had answered",
                sub="disconnected",
                code=state,
                retryable=not order.write,
            )
        if state is None:
            # The driver's own refusal of a value; its text repeats it.
            return StageError(
                Stage.MAPPING, "a parameter is no value that PostgreSQL has", sub="mapping"
            )
        said = error.diag.message_primary or "the statement failed"
        return RefusedError(said, code=state, retryable=state in _PASSING or state.startswith("53"))

    def interrupt(self) -> None:
        """Ask the server to end what is running; see `Session`."""
        self._line.interrupt(CANCEL_TIMEOUT)

    def cut(self) -> None:
        """End the connection as a broken network would."""
        self._line.cut()

    def close(self) -> None:
        """Say goodbye and close it."""
        self._line.close()


def _columns(cursor: psycopg.Cursor) -> list[str]:
    return [column.name for column in cursor.description or ()]


def _bound(value: object) -> object:
    """A JSON value as PostgreSQL takes it: scalars, arrays of them, and JSON for the rest."""
    if isinstance(value, dict):
        return Jsonb(value, dumps=msgspec.json.encode)
    if isinstance(value, list):
        items = cast("list[object]", value)
        return Jsonb(items, dumps=msgspec.json.encode) if any(map(_is_tree, items)) else items
    return value


def _is_tree(value: object) -> bool:
    return isinstance(value, list | dict)


class _OrText(Loader):
    """Loads a moment as ISO 8601 says it, or, like `infinity`, as the server does."""

    inner: type[Loader]

    def load(self, data: Buffer) -> str:
        """Load one."""
        try:
            found = cast("date | time", self.inner(self.oid, self.connection).load(data))
        except psycopg.DataError:
            return bytes(data).decode()
        return found.isoformat()


class _Date(_OrText):
    inner = moments.DateLoader


class _Time(_OrText):
    inner = moments.TimeLoader


class _Timetz(_OrText):
    inner = moments.TimetzLoader


class _Timestamp(_OrText):
    inner = moments.TimestampLoader


class _Timestamptz(_OrText):
    inner = moments.TimestamptzLoader


_MOMENTS: Mapping[str, type[Loader]] = {
    "date": _Date,
    "time": _Time,
    "timetz": _Timetz,
    "timestamp": _Timestamp,
    "timestamptz": _Timestamptz,
}


def _set_loaders(connection: psycopg.Connection) -> None:
    adapters = connection.adapters
    for name in _AS_TEXT:
        adapters.register_loader(name, TextLoader)
    for name, loader in _MOMENTS.items():
        adapters.register_loader(name, loader)
    set_json_loads(msgspec.json.decode, connection)


def to_json(value: object) -> object:
    """A value of the driver as JSON."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else _unbounded(value)
        case bytes():
            return base64.b64encode(value).decode()
        case list():
            return [to_json(item) for item in cast("list[object]", value)]
        case dict():
            return cast("object", value)  # JSON already
        case _:
            return str(value)


def _unbounded(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
