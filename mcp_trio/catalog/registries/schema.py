"""The SQLite registry as its publishers see it: tables, triggers, and helpers to write.

Everything here runs in the caller's thread and blocks: it serves command lines, demos and
tests. Anybody may publish with plain SQL instead; the triggers keep the books.

`operations` holds one row per operation, with columns as `rows` has them. `registry_state`
holds one row: the format, an id that tells two files apart, a counter that grows with every
change of `operations`, and a stamp that is drawn anew each time. `operation_changes` says at
which count each operation was last inserted, changed or deleted; a change without a row in
`operations` is a deletion. `registry_history` has the stamp of each count: after a backup was
restored and written on, the counts of before come again with other stamps.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol, Self, cast

import apsw

from mcp_trio.catalog.operation import FORMAT
from mcp_trio.catalog.registries.rows import VIEW_COLUMNS, to_row

LAYOUT = 2
"""Of the tables, told by `PRAGMA user_version`; 1 had no history and told 0.

A later layout only adds to an earlier one, so a reader of an earlier one reads it as well:
registries are migrated first, then the services that read them are renewed.
"""
HISTORY = 100_000
"""Counts whose stamps are kept; a reader that comes back from before reads everything."""

_CHANGED = f"""
    UPDATE registry_state SET counter = counter + 1, stamp = lower(hex(randomblob(8)));
    DELETE FROM operation_changes WHERE operation_id = {{row}}.operation_id;
    INSERT INTO operation_changes (operation_id, revision)
        SELECT {{row}}.operation_id, counter FROM registry_state;
    DELETE FROM registry_history WHERE revision >= (SELECT counter FROM registry_state);
    INSERT INTO registry_history (revision, stamp) SELECT counter, stamp FROM registry_state;
    DELETE FROM registry_history
        WHERE revision <= (SELECT counter - {HISTORY} FROM registry_state);
"""  # noqa: S608  # constant text
# Delete and insert instead of an upsert: a conflict clause of the statement that fires a
# trigger overrides those inside it.

_TRIGGERS = f"""
CREATE TRIGGER operations_inserted AFTER INSERT ON operations BEGIN
    {_CHANGED.format(row="NEW")}
END;
CREATE TRIGGER operations_updated AFTER UPDATE ON operations BEGIN
    {_CHANGED.format(row="NEW")}
END;
CREATE TRIGGER operations_renamed AFTER UPDATE OF operation_id ON operations
WHEN OLD.operation_id <> NEW.operation_id BEGIN
    {_CHANGED.format(row="OLD")}
END;
CREATE TRIGGER operations_deleted AFTER DELETE ON operations BEGIN
    {_CHANGED.format(row="OLD")}
END;
"""
_HISTORY = """
CREATE TABLE registry_history (
    revision INTEGER PRIMARY KEY NOT NULL,
    stamp    TEXT NOT NULL
);
INSERT INTO registry_history (revision, stamp) SELECT counter, stamp FROM registry_state;
"""
SCHEMA = f"""
CREATE TABLE operations (
    operation_id     TEXT PRIMARY KEY NOT NULL,
    name             TEXT NOT NULL,
    protocol         TEXT NOT NULL,
    target           TEXT NOT NULL DEFAULT '{{}}',
    input_schema     TEXT NOT NULL DEFAULT '{{"type":"object","additionalProperties":false}}',
    output_schema    TEXT,
    input_mapping    TEXT NOT NULL DEFAULT '{{}}',
    output_mapping   TEXT NOT NULL DEFAULT '{{}}',
    execution_config TEXT NOT NULL DEFAULT '{{}}',
    tool_description TEXT NOT NULL DEFAULT '',
    -- Life cycle. Only 'published' rows exist for a catalog.
    status           TEXT NOT NULL DEFAULT 'draft'
                     CHECK (status IN ('draft', 'published', 'withdrawn')),
    updated_at       TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    -- For people and tools that edit. Never selected by a catalog.
    sample_payload   TEXT,
    import_metadata  TEXT,
    ui               TEXT
);
CREATE TABLE registry_state (
    only        INTEGER PRIMARY KEY CHECK (only = 1),
    format      TEXT NOT NULL,
    registry_id TEXT NOT NULL,
    counter     INTEGER NOT NULL,
    stamp       TEXT NOT NULL
);
CREATE TABLE operation_changes (
    operation_id TEXT PRIMARY KEY NOT NULL,
    revision     INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX operation_changes_by_revision ON operation_changes (revision);

{_TRIGGERS}
INSERT INTO registry_state (only, format, registry_id, counter, stamp)
    VALUES (1, '{FORMAT}', lower(hex(randomblob(16))), 0, lower(hex(randomblob(8))));
{_HISTORY}
PRAGMA user_version = {LAYOUT};
"""  # noqa: S608  # constant text
# No UNIQUE on name: REPLACE would then delete a row without firing a trigger, and two
# operations that claim one name are for the catalog to report.

MIGRATIONS = {
    1: f"""
ALTER TABLE registry_state ADD COLUMN stamp TEXT NOT NULL DEFAULT '';
UPDATE registry_state SET stamp = lower(hex(randomblob(8)));
{_HISTORY}
DROP TRIGGER operations_inserted;
DROP TRIGGER operations_updated;
DROP TRIGGER operations_renamed;
DROP TRIGGER operations_deleted;
{_TRIGGERS}
PRAGMA user_version = 2;
"""  # noqa: S608  # constant text
}
"""What leads from each earlier layout to the next one."""


class Database(Protocol):
    """The part of an apsw connection that is used here; its own stubs are not fully typed."""

    def execute(
        self, statements: str, bindings: Sequence[object] = (), /
    ) -> Iterator[tuple[object, ...]]:
        """Run statements and iterate the rows."""
        ...

    def executemany(self, statements: str, rows: Iterable[Sequence[object]], /) -> object:
        """Run statements once for each row of bindings."""
        ...

    def pragma(self, name: str, value: object = None, /) -> object:
        """Get or set a pragma."""
        ...

    def set_busy_timeout(self, milliseconds: int, /) -> None:
        """Set how long a lock is waited for."""
        ...

    def interrupt(self) -> None:
        """Stop what is running; from any thread."""
        ...

    def close(self, force: bool = False, /) -> None:  # noqa: FBT001, FBT002  # its signature
        """Close."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: object, error: object, trace: object, /) -> bool | None: ...


def open_database(path: str | os.PathLike[str], flags: int, busy_timeout: float) -> Database:
    """Open an existing file; `busy_timeout` is in seconds."""
    connection = cast("Database", apsw.Connection(os.fspath(path), flags=flags))
    connection.set_busy_timeout(int(busy_timeout * 1000))
    return connection


def open_for_writing(path: str | os.PathLike[str], *, busy_timeout: float = 5.0) -> Database:
    """Open an existing registry as a publisher; the caller closes the connection.

    Args:
        path: the database file.
        busy_timeout: seconds to wait for other publishers.
    """
    return open_database(path, apsw.SQLITE_OPEN_READWRITE, busy_timeout)


def create_registry(path: str | os.PathLike[str]) -> None:
    """Make a new, empty registry in WAL mode, so that readers never hold up a publisher.

    It is made under another name in the same folder, so it is whole whenever it is there: who
    is stopped on the way leaves nothing that anybody takes for a registry.

    Raises:
        FileExistsError: the file exists; it is left as it is.
    """
    place = Path(path)
    if os.path.lexists(place):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(place))
    beside = place.with_name(f".{place.name}.{secrets.token_hex(8)}.new")
    os.close(os.open(beside, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    try:
        connection = open_for_writing(beside)
        try:
            connection.pragma("journal_mode", "wal")
            with connection:
                connection.execute(SCHEMA)
        finally:
            connection.close()
        # A second name, because it is never given in place of a file that is there.
        place.hardlink_to(beside)
    finally:
        beside.unlink()


def layout_of(connection: Database) -> int:
    """The layout of the tables of a registry."""
    told = connection.pragma("user_version")
    return told if isinstance(told, int) and told > 0 else 1


def migrate(path: str | os.PathLike[str], *, busy_timeout: float = 5.0) -> int:
    """Bring a registry to this layout, in one transaction; tell which one it had.

    Readers go on with what they see until it is done, and publishers wait.

    Args:
        path: the database file.
        busy_timeout: seconds to wait for publishers.

    Raises:
        apsw.Error: the file is no registry, or stays locked; it is left as it is.
    """
    connection = open_for_writing(path, busy_timeout=busy_timeout)
    try:
        # Before the layout is looked at: two migrations must not both begin.
        connection.execute("BEGIN IMMEDIATE")
        before = layout_of(connection)
        for layout in range(before, LAYOUT):
            connection.execute(MIGRATIONS[layout])
        connection.execute("COMMIT")
    finally:
        # What was not committed is undone.
        connection.close()
    return before


def publish(path: str | os.PathLike[str], *views: Mapping[str, object]) -> None:
    """Insert or replace operations and publish them, in one transaction.

    Raises:
        OperationError: a view does not fit the format; nothing is written then.
    """
    seed(path, views, status="published")


def seed(
    path: str | os.PathLike[str], views: Iterable[Mapping[str, object]], *, status: str = "draft"
) -> None:
    """Insert or replace operations with a given status, in one transaction.

    Raises:
        OperationError: a view does not fit the format; nothing is written then.
    """
    rows = [to_row(view) for view in views]
    updates = ", ".join(f"{name} = excluded.{name}" for name in (*VIEW_COLUMNS, "status"))
    statement = (
        f"INSERT INTO operations ({', '.join(VIEW_COLUMNS)}, status) "  # noqa: S608  # constant names
        f"VALUES ({', '.join('?' * (len(VIEW_COLUMNS) + 1))}) "
        f"ON CONFLICT (operation_id) DO UPDATE SET {updates}, "
        "updated_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')"
    )
    connection = open_for_writing(path)
    try:
        with connection:
            connection.executemany(statement, [(*row, status) for row in rows])
    finally:
        connection.close()


def withdraw(path: str | os.PathLike[str], *operation_ids: str) -> None:
    """Withdraw operations; the rows stay, with status 'withdrawn'. Unknown ids are ignored."""
    connection = open_for_writing(path)
    try:
        with connection:
            connection.executemany(
                "UPDATE operations SET status = 'withdrawn' WHERE operation_id = ?",
                [(operation_id,) for operation_id in operation_ids],
            )
    finally:
        connection.close()
