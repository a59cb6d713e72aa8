"""Publishing in PostgreSQL: one transaction, under a lock that other publishers wait for.

The tables have to be there: making them is for a role that may, see `postgres_schema`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import psycopg

from mcp_trio.authoring.faults import AuthoringError
from mcp_trio.authoring.publishing_plan import Outcome, Plan, Row, plan
from mcp_trio.catalog.operation import Operation
from mcp_trio.catalog.registries.opening import shown
from mcp_trio.catalog.registries.options import RegistryOptions
from mcp_trio.catalog.registries.postgres import registry_parameters
from mcp_trio.catalog.registries.rows import JSON_COLUMNS, VIEW_COLUMNS
from mcp_trio.errors import ConfigurationError
from mcp_trio.postgres import Line, said
from mcp_trio.secrets import Secret

LOCK_TIMEOUT = 5.0
"""Seconds to wait for other publishers."""

_COLUMNS = ", ".join(VIEW_COLUMNS)
_TEXTS = ", ".join(f"{name}::text" for name in VIEW_COLUMNS)
_ARRAYS = ", ".join(["%s::text[]"] * len(VIEW_COLUMNS))
_CASTS = ", ".join(
    f"{name}::json" if name in JSON_COLUMNS and name != "tool_description" else name
    for name in VIEW_COLUMNS
)
_UPDATES = ", ".join(f"{name} = excluded.{name}" for name in (*VIEW_COLUMNS, "status"))
# One statement for all rows is one count of the registry.
_WRITE = (
    f"INSERT INTO operations ({_COLUMNS}, status) SELECT {_CASTS}, 'published' "  # noqa: S608  # constant
    f"FROM unnest({_ARRAYS}) AS given({_COLUMNS}) "
    f"ON CONFLICT (operation_id) DO UPDATE SET {_UPDATES}, updated_at = now()"
)


def publish_in_postgres(
    operations: Sequence[Operation],
    address: str,
    secret: Secret | None,
    *,
    prune: bool,
    dry_run: bool,
) -> Outcome:
    """Publish in the registry of a database.

    Raises:
        AuthoringError: it cannot be written, or a name would belong to two.
    """
    try:
        line = Line(registry_parameters(address, RegistryOptions()), secret)
        with contextlib.closing(line), line.connection.transaction(force_rollback=dry_run):
            return _publish(line.connection, operations, prune=prune).outcome
    except ConfigurationError as error:
        raise AuthoringError(str(error)) from error
    except psycopg.errors.LockNotAvailable as error:
        raise AuthoringError(
            f"{shown(address)}: another publisher is at work; try again"
        ) from error
    except psycopg.errors.UndefinedTable as error:
        raise AuthoringError(
            f"{shown(address)}: is not laid out as a registry; "
            "create_registry of mcp_trio.catalog.registries.postgres_schema does that"
        ) from error
    except psycopg.Error as error:
        raise AuthoringError(f"cannot write {shown(address)}: {said(error, secret)}") from None


def _publish(
    connection: psycopg.Connection, operations: Sequence[Operation], *, prune: bool
) -> Plan:
    connection.execute(f"SET LOCAL lock_timeout = {int(LOCK_TIMEOUT * 1000)}".encode())
    # The lock comes first, so that nobody writes between the look and the change. Readers
    # are not held up.
    connection.execute("LOCK TABLE operations IN SHARE ROW EXCLUSIVE MODE")
    rows = connection.execute(
        f"SELECT {_TEXTS} FROM operations WHERE status = 'published'".encode()  # noqa: S608  # constant
    ).fetchall()
    held: dict[str, Row | None] = {str(row[0]): tuple(row) for row in rows}
    made = plan(held, operations, prune=prune, created=False)
    if made.write:
        columns = [list(column) for column in zip(*made.write, strict=True)]
        connection.execute(_WRITE.encode(), columns)
    if made.outcome.withdrawn:
        connection.execute(
            "UPDATE operations SET status = 'withdrawn' WHERE operation_id = ANY(%s)",
            (list(made.outcome.withdrawn),),
        )
    return made
