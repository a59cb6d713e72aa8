"""The PostgreSQL registry as its publishers see it: tables, triggers, and helpers to write.

The tables are those of the SQLite registry (`schema`), with the same meaning; see there.
Everything here runs in the caller's thread and blocks: it serves command lines, demos and
tests. Anybody may publish with plain SQL instead; the triggers keep the books, and whoever
may write `operations` needs no right to anything else. A reader needs SELECT on all four.

Needs PostgreSQL 13 or newer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import LiteralString

import psycopg

from mcp_trio.catalog.registries.rows import VIEW_COLUMNS, to_row

LAYOUT = 1
"""Of the tables, told by `registry_state.layout`: the first one.

A later one only adds to it, so that a reader of this one reads it as well.
"""

SCHEMA: LiteralString = """
CREATE TABLE operations (
    operation_id     text PRIMARY KEY,
    name             text NOT NULL,
    protocol         text NOT NULL,
    -- json and not jsonb: it keeps the order of keys, which a model sees, and every digit.
    target           json NOT NULL DEFAULT '{}',
    input_schema     json NOT NULL DEFAULT '{"type":"object","additionalProperties":false}',
    output_schema    json,
    input_mapping    json NOT NULL DEFAULT '{}',
    output_mapping   json NOT NULL DEFAULT '{}',
    execution_config json NOT NULL DEFAULT '{}',
    tool_description text NOT NULL DEFAULT '',
    -- Life cycle. Only 'published' rows exist for a catalog.
    status           text NOT NULL DEFAULT 'draft'
                     CHECK (status IN ('draft', 'published', 'withdrawn')),
    updated_at       timestamptz NOT NULL DEFAULT now(),
    -- For people and tools that edit. Never selected by a catalog.
    sample_payload   text,
    import_metadata  text,
    ui               text
);
CREATE TABLE registry_state (
    "only"      integer PRIMARY KEY DEFAULT 1 CHECK ("only" = 1),
    format      text NOT NULL,
    layout      integer NOT NULL,
    registry_id text NOT NULL,
    counter     bigint NOT NULL,
    stamp       text NOT NULL
);
CREATE TABLE operation_changes (
    operation_id text PRIMARY KEY,
    revision     bigint NOT NULL
);
CREATE INDEX operation_changes_by_revision ON operation_changes (revision);
CREATE TABLE registry_history (
    revision bigint PRIMARY KEY,
    stamp    text NOT NULL
);

-- Before a statement takes its first row. Publishers queue here, one transaction after the
-- other: so counts become visible in their order, and no two wait for each other's rows.
CREATE FUNCTION registry_count() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    reached bigint;
BEGIN
    UPDATE registry_state SET counter = counter + 1, stamp = gen_random_uuid()
        RETURNING counter INTO reached;
    DELETE FROM registry_history WHERE revision >= reached;
    DELETE FROM registry_history WHERE revision <= reached - 100000;
    INSERT INTO registry_history (revision, stamp) SELECT counter, stamp FROM registry_state;
    RETURN NULL;
END $$;

CREATE FUNCTION registry_note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        INSERT INTO operation_changes (operation_id, revision)
            SELECT OLD.operation_id, counter FROM registry_state
            ON CONFLICT (operation_id) DO UPDATE SET revision = excluded.revision;
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO operation_changes (operation_id, revision)
            SELECT NEW.operation_id, counter FROM registry_state
            ON CONFLICT (operation_id) DO UPDATE SET revision = excluded.revision;
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION registry_note_all() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    INSERT INTO operation_changes (operation_id, revision)
        SELECT operation_id, counter FROM operations, registry_state
        ON CONFLICT (operation_id) DO UPDATE SET revision = excluded.revision;
    RETURN NULL;
END $$;

-- The functions act for whoever writes, so they look nowhere but here.
DO $$
DECLARE
    named text;
BEGIN
    FOREACH named IN ARRAY ARRAY['registry_count', 'registry_note', 'registry_note_all'] LOOP
        EXECUTE format(
            'ALTER FUNCTION %I() SET search_path = %I, pg_temp', named, current_schema()
        );
    END LOOP;
END $$;

-- One trigger for each event: the names put counting before noting.
CREATE TRIGGER registry_1_count BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON operations
    FOR EACH STATEMENT EXECUTE FUNCTION registry_count();
CREATE TRIGGER registry_2_note AFTER INSERT OR UPDATE OR DELETE ON operations
    FOR EACH ROW EXECUTE FUNCTION registry_note();
CREATE TRIGGER registry_2_note_all BEFORE TRUNCATE ON operations
    FOR EACH STATEMENT EXECUTE FUNCTION registry_note_all();

INSERT INTO registry_state (format, layout, registry_id, counter, stamp)
    VALUES ('mcp-operations/1', 1, gen_random_uuid(), 0, gen_random_uuid());
INSERT INTO registry_history (revision, stamp) SELECT counter, stamp FROM registry_state;
"""
# No UNIQUE on name: two operations that claim one name are for the catalog to report.

_COLUMNS = ", ".join(VIEW_COLUMNS)
_UPDATES = ", ".join(f"{name} = excluded.{name}" for name in (*VIEW_COLUMNS, "status"))


def create_registry(conninfo: str) -> None:
    """Make a new, empty registry in the first schema of the search path, in one transaction.

    Args:
        conninfo: as libpq takes it; of a role that may create tables.

    Raises:
        psycopg.Error: it exists, or cannot be made; nothing is changed then.
    """
    with psycopg.connect(conninfo) as connection:
        connection.execute(SCHEMA)


def publish(conninfo: str, *views: Mapping[str, object]) -> None:
    """Insert or replace operations and publish them, in one transaction.

    Raises:
        OperationError: a view does not fit the format; nothing is written then.
        psycopg.Error: the database refuses; nothing is written then.
    """
    seed(conninfo, views, status="published")


def seed(conninfo: str, views: Iterable[Mapping[str, object]], *, status: str = "draft") -> None:
    """Insert or replace operations with a given status, in one transaction.

    Raises:
        OperationError: a view does not fit the format; nothing is written then.
        psycopg.Error: the database refuses; nothing is written then.
    """
    rows = [(*to_row(view), status) for view in views]
    marks = ", ".join(["%s"] * (len(VIEW_COLUMNS) + 1))
    statement = (
        f"INSERT INTO operations ({_COLUMNS}, status) VALUES ({marks}) "  # noqa: S608  # constant
        f"ON CONFLICT (operation_id) DO UPDATE SET {_UPDATES}, updated_at = now()"
    )
    with psycopg.connect(conninfo) as connection, connection.cursor() as cursor:
        cursor.executemany(statement.encode(), rows)


def withdraw(conninfo: str, *operation_ids: str) -> None:
    """Withdraw operations; the rows stay, with status 'withdrawn'. Unknown ids are ignored.

    Raises:
        psycopg.Error: the database refuses; nothing is written then.
    """
    with psycopg.connect(conninfo) as connection:
        connection.execute(
            "UPDATE operations SET status = 'withdrawn' WHERE operation_id = ANY(%s)",
            (list(operation_ids),),
        )
