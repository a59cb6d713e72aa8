-- The registry as it was before layout 2.
CREATE TABLE operations (
    operation_id     TEXT PRIMARY KEY NOT NULL,
    name             TEXT NOT NULL,
    protocol         TEXT NOT NULL,
    target           TEXT NOT NULL DEFAULT '{}',
    input_schema     TEXT NOT NULL DEFAULT '{"type":"object","additionalProperties":false}',
    output_schema    TEXT,
    input_mapping    TEXT NOT NULL DEFAULT '{}',
    output_mapping   TEXT NOT NULL DEFAULT '{}',
    execution_config TEXT NOT NULL DEFAULT '{}',
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
    counter     INTEGER NOT NULL
);
CREATE TABLE operation_changes (
    operation_id TEXT PRIMARY KEY NOT NULL,
    revision     INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX operation_changes_by_revision ON operation_changes (revision);

CREATE TRIGGER operations_inserted AFTER INSERT ON operations BEGIN

    UPDATE registry_state SET counter = counter + 1;
    DELETE FROM operation_changes WHERE operation_id = NEW.operation_id;
    INSERT INTO operation_changes (operation_id, revision)
        SELECT NEW.operation_id, counter FROM registry_state;

END;
CREATE TRIGGER operations_updated AFTER UPDATE ON operations BEGIN

    UPDATE registry_state SET counter = counter + 1;
    DELETE FROM operation_changes WHERE operation_id = NEW.operation_id;
    INSERT INTO operation_changes (operation_id, revision)
        SELECT NEW.operation_id, counter FROM registry_state;

END;
CREATE TRIGGER operations_renamed AFTER UPDATE OF operation_id ON operations
WHEN OLD.operation_id <> NEW.operation_id BEGIN

    UPDATE registry_state SET counter = counter + 1;
    DELETE FROM operation_changes WHERE operation_id = OLD.operation_id;
    INSERT INTO operation_changes (operation_id, revision)
        SELECT OLD.operation_id, counter FROM registry_state;

END;
CREATE TRIGGER operations_deleted AFTER DELETE ON operations BEGIN

    UPDATE registry_state SET counter = counter + 1;
    DELETE FROM operation_changes WHERE operation_id = OLD.operation_id;
    INSERT INTO operation_changes (operation_id, revision)
        SELECT OLD.operation_id, counter FROM registry_state;

END;

INSERT INTO registry_state (only, format, registry_id, counter)
    VALUES (1, 'mcp-operations/1', lower(hex(randomblob(16))), 0);
