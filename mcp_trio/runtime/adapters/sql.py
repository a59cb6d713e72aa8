"""Databases: one statement of the view, its parameters bound, in a transaction of its own.

A reading operation runs in a transaction that cannot write. A writing one is committed when
it has succeeded, and rolled back otherwise, also when the call is cancelled. The statement
is read by `sql_statement` when the operation is loaded, and run by `sql_pool`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from typing import cast

import attrs
import msgspec
import trio

from mcp_trio.catalog.operation import Operation, OperationError
from mcp_trio.runtime.adapters.base import INPUT_NAMES, Answer, Call, Plan, Send
from mcp_trio.runtime.adapters.sql_statement import Statement, read_statement
from mcp_trio.runtime.connections import Connection, Connections
from mcp_trio.runtime.mapping import Mapper, MappingError, compile_mapping
from mcp_trio.runtime.policies import Settings
from mcp_trio.runtime.sql_connection import SqlConnection, sql_pool
from mcp_trio.runtime.sql_pool import Order, RefusedError, Rows

MAX_ROWS = 1_000
"""Rows that an operation without `limits.items` gives at most."""
_PLACE = "input_mapping.params"


@attrs.frozen(kw_only=True, eq=False)
class _Query:
    """An operation, compiled."""

    connection: SqlConnection
    settings: Settings
    statement: Statement
    params: Mapping[str, Mapper]
    """By the name in the statement, all of them."""
    write: bool

    @property
    def reads(self) -> frozenset[tuple[str, str | None]]:
        """What the mappings read of the context."""
        names = (mapper.names for mapper in self.params.values())
        return frozenset[tuple[str, str | None]]().union(*names)

    def values(self, context: Mapping[str, object]) -> dict[str, object]:
        """Values of all parameters; NULL where there is none.

        Raises:
            MappingError: one is missing, or they are too large.
        """
        made = {name: mapper(context) for name, mapper in self.params.items()}
        if len(msgspec.json.encode(made)) > self.settings.request_bytes:
            raise MappingError(
                f"the parameters are larger than {self.settings.request_bytes} bytes", path=_PLACE
            )
        return made

    def order(self, values: Mapping[str, object]) -> Order:
        """What to run now."""
        settings = self.settings
        left = trio.current_effective_deadline() - trio.current_time()
        return Order(
            statement=self.statement,
            values=values,
            write=self.write,
            max_rows=MAX_ROWS if settings.items is None else settings.items,
            truncates=settings.truncates,
            max_bytes=settings.response_bytes,
            connect_timeout=settings.timeouts.connect,
            deadline=time.monotonic() + min(left, settings.timeouts.total),
        )


class SqlAdapter:
    """Runs sql operations over the pools of a `Connections`. Implements `Adapter`."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    connection_type = SqlConnection
    output_names = ("rows", "row_count", "columns", "body", "args")

    def compile(
        self, operation: Operation, connection: Connection | None, settings: Settings
    ) -> Plan:
        """Make a plan.

        Raises:
            OperationError, MappingError: statement and mapping cannot work, or do not fit together.
        """
        if not isinstance(connection, SqlConnection):  # pragma: no cover  # the contract
            raise TypeError("a sql operation needs a SQL connection")
        settings.refuse_stream()
        if settings.auth != "connection":
            raise OperationError(
                "a database is asked as the connection says", place="execution_config.auth"
            )
        settings.refuse_stream()
        write = operation.target.get("access", "read") == "write"
        text = cast("str", operation.target["statement"])
        statement = read_statement(text, connection.dialect, write=write)
        query = _Query(
            connection=connection,
            settings=settings,
            statement=statement,
            params=_params(operation.input_mapping, statement.names),
            write=write,
        )
        return Plan(prepare=partial(self._prepare, query), reads=query.reads, idempotent=not write)

    def _prepare(self, query: _Query, context: Mapping[str, object], _call: Call) -> Send:
        return partial(self._send, query, query.values(context))

    async def _send(self, query: _Query, values: Mapping[str, object]) -> Answer:
        try:
            found = await sql_pool(self._connections, query.connection).run(query.order(values))
        except RefusedError as error:
            return Answer(
                ok=False,
                code=error.code,
                message=error.message,
                retryable=error.retryable,
                more=_shown(Rows(columns=(), rows=[], row_count=0, gave_rows=False)),
            )
        body: object = found.rows if found.gave_rows else {"row_count": found.row_count}
        return Answer(ok=True, body=body, more=_shown(found), cut=found.cut)


def _shown(found: Rows) -> dict[str, object]:
    return {"rows": found.rows, "row_count": found.row_count, "columns": list(found.columns)}


def _params(mapping: Mapping[str, object], names: tuple[str, ...]) -> dict[str, Mapper]:
    """The mappings of the parameters; by name if there are none.

    Raises:
        OperationError, MappingError: it does not give exactly the parameters.
    """
    others = sorted(mapping.keys() - {"params"})
    if others:
        raise OperationError("a sql operation has params only", place=f"input_mapping.{others[0]}")
    tree = cast("Mapping[str, object]", mapping.get("params", {}))
    if not mapping:
        tree = {name: f"=args.{name}" for name in names}
    unused, missing = sorted(tree.keys() - {*names}), sorted({*names} - tree.keys())
    if unused:
        raise OperationError(f"the statement has no :{unused[0][:80]}", place=_PLACE)
    if missing:
        raise OperationError(f"misses {missing[0][:80]!r} of the statement", place=_PLACE)
    return {name: compile_mapping(tree[name], f"{_PLACE}.{name}", INPUT_NAMES) for name in names}
