"""The SQLite registry on real files: plain SQL in, exact readings out, every kind of trouble."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
import sys
import tempfile
import threading
from contextlib import asynccontextmanager
from pathlib import Path

import apsw
import pytest
import trio

from mcp_trio.abc import RegistryError, Trouble
from mcp_trio.catalog.actor import CatalogActor
from mcp_trio.catalog.operation import OperationError
from mcp_trio.catalog.registries.rows import MAX_VIEW_BYTES, VIEW_COLUMNS
from mcp_trio.catalog.registries.schema import (
    HISTORY,
    LAYOUT,
    SCHEMA,
    create_registry,
    layout_of,
    migrate,
    open_for_writing,
    publish,
    seed,
    withdraw,
)
from mcp_trio.catalog.registries.sqlite import SqliteRegistry
from mcp_trio.testing import cancelled_after, check_registry
from tests.descriptors import open_files


@pytest.fixture
def path(tmp_path):
    where = tmp_path / "registry.db"
    create_registry(where)
    return where


@pytest.fixture
def sql(path):
    connection = open_for_writing(path)
    yield lambda text, *values: list(connection.execute(text, values))
    connection.close()


@pytest.fixture
async def registry(path):
    made = SqliteRegistry(path)
    yield made
    await made.aclose()


def ids(reading):
    return sorted(entry.operation_id for entry in reading.entries)


async def test_it_passes_the_battery(tmp_path):
    await check_registry(lambda: published_in_sqlite(tmp_path))


@asynccontextmanager
async def published_in_sqlite(folder):
    with tempfile.TemporaryDirectory(dir=folder) as place:
        yield PublishedInSqlite(Path(place) / "registry.db")


class PublishedInSqlite:
    def __init__(self, path):
        self.path = path
        create_registry(path)
        self.registry = SqliteRegistry(path)

    async def publish(self, *views):
        await trio.to_thread.run_sync(publish, self.path, *views)

    async def withdraw(self, *ids):
        await trio.to_thread.run_sync(withdraw, self.path, *ids)

    async def hide(self):
        self.path.rename(self.path.with_suffix(".hidden"))

    async def show(self):
        self.path.with_suffix(".hidden").rename(self.path)


async def test_what_is_published_is_read_as_it_was_written(registry, path, view):
    rich = view("a", output_schema={"type": "object"}, tool_description={"text": "é", "tags": []})
    publish(path, rich, view("b"))
    reading = await registry.read(None)
    assert reading.complete
    assert {e.operation_id: e.view for e in reading.entries} == {"a": rich, "b": view("b")}


async def test_plain_sql_moves_the_token_once_for_each_row(registry, sql):
    first = await registry.change_token()
    assert await registry.change_token() == first
    sql("INSERT INTO operations (operation_id, name, protocol) VALUES ('a', 'a', 'static')")
    second = await registry.change_token()
    assert second != first
    sql("UPDATE operations SET status = 'published'")
    third = await registry.change_token()
    sql("DELETE FROM operations")
    fourth = await registry.change_token()
    assert [int(t.split(":")[1]) for t in (first, second, third, fourth)] == [0, 1, 2, 3]
    assert (await registry.read(None)).token == fourth


async def test_a_partial_reading_holds_what_changed_and_nothing_else(registry, path, sql, view):
    publish(path, *(view(f"op{i}") for i in range(20)))
    base = (await registry.read(None)).token
    unchanged = await registry.read(base)
    assert (unchanged.entries, unchanged.removed, unchanged.complete) == ((), (), False)
    sql("UPDATE operations SET tool_description = 'New.' WHERE operation_id = 'op3'")
    sql("UPDATE operations SET status = 'withdrawn' WHERE operation_id = 'op4'")
    sql("DELETE FROM operations WHERE operation_id = 'op5'")
    sql("UPDATE operations SET operation_id = 'moved' WHERE operation_id = 'op6'")
    sql("UPDATE operations SET status = 'draft' WHERE operation_id = 'op7'")
    publish(path, view("new"))
    reading = await registry.read(base)
    assert ids(reading) == ["moved", "new", "op3"]
    assert sorted(reading.removed) == ["op4", "op5", "op6", "op7"]
    # Coming back after a deletion is a change like any other.
    publish(path, view("op5"))
    assert ids(await registry.read(reading.token)) == ["op5"]


async def test_replace_is_a_change_too(registry, path, sql, view):
    publish(path, view("a"))
    base = (await registry.read(None)).token
    sql(
        "INSERT OR REPLACE INTO operations (operation_id, name, protocol, status) "
        "VALUES ('a', 'z', 'static', 'published')"
    )
    [entry] = (await registry.read(base)).entries
    assert entry.view["name"] == "z"


async def test_drafts_samples_imports_and_fields_of_a_ui_are_never_read(registry, path, sql, view):
    seed(path, [view("draft")])
    publish(path, view("a"))
    sql(
        "UPDATE operations SET sample_payload = 'CANARY', import_metadata = 'CANARY', ui = 'CANARY'"
    )
    reading = await registry.read(None)
    assert ids(reading) == ["a"]
    assert "CANARY" not in repr(reading)
    assert set(reading.entries[0].view) == set(VIEW_COLUMNS)


async def test_editing_a_sample_changes_no_fingerprint(registry, path, sql, view):
    publish(path, view("a"))
    before = await registry.read(None)
    sql("UPDATE operations SET ui = '{}'")
    after = await registry.read(before.token)
    assert after.entries == before.entries


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ("target = '{'", "target: is not JSON"),
        ("input_schema = 'NaN'", "input_schema: is not JSON"),
        ("output_schema = ''", "output_schema: is not JSON"),
        ("execution_config = x'00ff'", "execution_config: must be TEXT"),
        ("tool_description = '{\"text\"'", "tool_description: is not JSON"),
        ("tool_description = CAST(x'41ff' AS TEXT)", "tool_description: is not UTF-8"),
        ("target = CAST(x'7b22ff223a317d' AS TEXT)", "target: is not UTF-8"),
        ("name = x'61'", "name: must be TEXT"),
        (f"output_mapping = '[' || hex(zeroblob({MAX_VIEW_BYTES})) || ']'", "larger than"),
        (f"input_mapping = '{'[' * 5000}'", "input_mapping: is not JSON"),
    ],
)
async def test_a_half_published_row_is_a_fault_of_that_row(
    registry, path, sql, view, change, fault
):
    publish(path, view("a"), view("b"))
    sql(f"UPDATE operations SET {change} WHERE operation_id = 'a'")
    entries = {e.operation_id: e for e in (await registry.read(None)).entries}
    assert fault in entries["a"].fault
    assert entries["a"].view is None
    assert entries["b"].view == view("b")


async def test_an_identity_that_is_none_is_told_bounded_and_costs_its_own_row(
    registry, path, sql, view
):
    publish(path, view("a"), view("b"), view("c"))
    base = (await registry.read(None)).token
    sql("UPDATE operations SET operation_id = CAST(x'61ff' AS TEXT) WHERE operation_id = 'a'")
    sql("UPDATE operations SET operation_id = printf('%.*c', 3000000, 'x') WHERE name = 'b'")
    reading = await registry.read(base)
    assert {e.operation_id: e.fault for e in reading.entries} == {
        r"a\xff": "operation_id: is not UTF-8",
        "x" * 200 + "…": f"the view is larger than {MAX_VIEW_BYTES} bytes",
    }
    assert sorted(reading.removed) == ["a", "b"]
    assert len((await registry.read(None)).entries) == 3


async def test_books_that_hold_no_text_are_corrupt(registry, sql):
    sql("UPDATE registry_state SET stamp = CAST(x'ff' AS TEXT)")
    with pytest.raises(RegistryError) as caught:
        await registry.read(None)
    assert caught.value.trouble is Trouble.CORRUPT


async def test_a_description_may_be_plain_text(registry, path, sql, view):
    publish(path, view("a"))
    sql("UPDATE operations SET tool_description = 'Plain [text].'")
    [entry] = (await registry.read(None)).entries
    assert entry.view["tool_description"] == "Plain [text]."


def test_the_helpers_refuse_a_bad_view_and_write_nothing(path, sql, view):
    with pytest.raises(OperationError, match="b: unknown key 'ui'"):
        publish(path, view("a"), view("b", ui={}))
    assert sql("SELECT count(*) FROM operations") == [(0,)]
    with pytest.raises(FileExistsError):
        create_registry(path)


def test_the_status_is_one_of_three(sql):
    with pytest.raises(apsw.ConstraintError):
        sql(
            "INSERT INTO operations (operation_id, name, protocol, status) "
            "VALUES ('a', 'a', 'static', 'live')"
        )


async def refuses(registry, trouble, says):
    for ask in (registry.change_token(), registry.read(None)):
        with pytest.raises(RegistryError, match=says) as caught:
            await ask
        assert caught.value.trouble is trouble


async def test_a_missing_file_is_missing_until_it_is_there(tmp_path, view):
    path = tmp_path / "later.db"
    registry = SqliteRegistry(path)
    await refuses(registry, Trouble.MISSING, "there is no registry at")
    create_registry(path)
    publish(path, view("a"))
    assert ids(await registry.read(None)) == ["a"]
    await registry.aclose()


@pytest.mark.parametrize("content", [b"garbage" * 1000, b"SQLite format 3\x00" + b"\xff" * 8000])
async def test_a_corrupt_file_is_corrupt_until_it_is_replaced(tmp_path, view, content):
    path = tmp_path / "bad.db"
    path.write_bytes(content)
    registry = SqliteRegistry(path)
    await refuses(registry, Trouble.CORRUPT, "not a sound SQLite file")
    good = tmp_path / "good.db"
    create_registry(good)
    publish(good, view("a"))
    good.replace(path)
    assert ids(await registry.read(None)) == ["a"]
    await registry.aclose()


async def test_an_empty_or_foreign_file_is_not_a_registry(tmp_path):
    path = tmp_path / "empty.db"
    path.touch()
    registry = SqliteRegistry(path)
    await refuses(registry, Trouble.SCHEMA, "not laid out as a registry")
    other = apsw.Connection(str(path))
    other.execute("CREATE TABLE registry_state (format, registry_id, counter)")
    other.execute("INSERT INTO registry_state VALUES ('mcp-operations/9', 'x', 1)")
    other.close()
    await refuses(registry, Trouble.SCHEMA, "not a registry of the format mcp-operations/1")
    await registry.aclose()


async def test_a_directory_is_unreadable(tmp_path):
    registry = SqliteRegistry(tmp_path)
    await refuses(registry, Trouble.UNREADABLE, "cannot read")


@pytest.mark.parametrize("mode", ["delete", "wal"])
async def test_a_registry_held_exclusively_is_locked_and_then_free(path, view, mode):
    publish(path, view("a"))
    holder = open_for_writing(path)
    holder.pragma("journal_mode", mode)
    holder.pragma("locking_mode", "exclusive")
    holder.execute("BEGIN EXCLUSIVE")
    registry = SqliteRegistry(path, busy_timeout=0.05)
    await refuses(registry, Trouble.LOCKED, "is locked by another process")
    holder.execute("COMMIT")
    holder.close()
    assert ids(await registry.read(None)) == ["a"]
    await registry.aclose()


async def test_a_reader_does_not_see_or_hold_up_a_publisher_in_the_middle(
    registry, path, sql, view
):
    publish(path, view("a"))
    base = await registry.change_token()
    sql("BEGIN IMMEDIATE")
    sql("UPDATE operations SET tool_description = 'Half.'")
    assert await registry.change_token() == base
    assert (await registry.read(base)).entries == ()
    sql("UPDATE operations SET tool_description = 'Whole.'")
    sql("COMMIT")
    [entry] = (await registry.read(base)).entries
    assert entry.view["tool_description"] == "Whole."


async def test_another_file_at_the_same_place_is_read_completely(tmp_path, registry, path, view):
    publish(path, view("a"))
    base = (await registry.read(None)).token
    other = tmp_path / "other.db"
    create_registry(other)
    publish(other, view("b"))
    for suffix in ("-wal", "-shm"):
        (tmp_path / f"registry.db{suffix}").unlink(missing_ok=True)
    other.replace(path)
    assert await registry.change_token() != base
    reading = await registry.read(base)
    assert (ids(reading), reading.complete) == (["b"], True)


@pytest.mark.parametrize("mode", ["wal", "delete"])
async def test_another_file_that_is_copied_over_it_is_read_completely(
    tmp_path, registry, path, sql, view, mode
):
    publish(path, view("a"))
    sql("PRAGMA journal_mode = delete")
    sql(f"PRAGMA journal_mode = {mode}")
    base = await registry.change_token()
    other = tmp_path / "other.db"
    create_registry(other)
    publish(other, view("b"))
    shutil.copyfile(other, path)
    assert await registry.change_token() != base
    reading = await registry.read(base)
    assert (ids(reading), reading.complete) == (["b"], True)


async def test_another_file_beside_the_log_of_the_one_before_is_refused_until_that_is_gone(
    tmp_path, registry, path, view
):
    await registry.change_token()
    # The registry has the file open, so what is published now stays in the log.
    publish(path, view("a"))
    base = await registry.change_token()
    for name in ("one.db", "two.db"):
        create_registry(tmp_path / name)
        publish(tmp_path / name, view("b"))
    (tmp_path / "one.db").replace(path)
    for _ in range(2):
        with pytest.raises(RegistryError, match=r"remove .*registry\.db-wal and ") as caught:
            await registry.change_token()
        assert caught.value.trouble is Trouble.CORRUPT
    for suffix in ("-wal", "-shm"):
        path.with_name(f"registry.db{suffix}").unlink()
    (tmp_path / "two.db").replace(path)
    reading = await registry.read(base)
    assert (ids(reading), reading.complete) == (["b"], True)


async def test_where_sqlite_cannot_keep_its_log_the_way_out_is_told(registry, path, view):
    path.with_name("registry.db-wal").mkdir()
    with pytest.raises(RegistryError, match="journal_mode = DELETE") as caught:
        await registry.read(None)
    assert caught.value.trouble is Trouble.UNREADABLE


def test_a_registry_is_made_whole_or_not_at_all(tmp_path, path, monkeypatch):
    seen = []

    def open_and_look(where, **options):
        seen.append(sorted(p.name for p in tmp_path.iterdir() if p != path))
        return open_for_writing(where, **options)

    monkeypatch.setattr("mcp_trio.catalog.registries.schema.open_for_writing", open_and_look)
    monkeypatch.setattr("mcp_trio.catalog.registries.schema.SCHEMA", SCHEMA + "no SQL")
    with pytest.raises(apsw.SQLError):
        create_registry(tmp_path / "new.db")
    # Whoever stops there leaves a file that nobody takes for a registry.
    ((left,),) = seen
    assert left.startswith(".new.db.")
    assert left.endswith(".new")
    assert [p for p in tmp_path.iterdir() if p.name.startswith(("new", ".new"))] == []
    with pytest.raises(FileExistsError):
        create_registry(path)


@pytest.mark.parametrize("token", ["", "x", "x:y", "no-such-registry:3", "é:٣"])
async def test_a_token_of_somebody_else_gives_a_complete_reading(registry, path, view, token):
    publish(path, view("a"))
    assert (await registry.read(token)).complete


async def test_a_counter_that_went_back_gives_a_complete_reading(registry, path, sql, view):
    publish(path, view("a"), view("b"))
    base = (await registry.read(None)).token
    sql("UPDATE registry_state SET counter = 1")
    assert (await registry.read(base)).complete


async def test_cancelling_a_read_returns_at_once_and_the_next_one_works(path, view):
    publish(path, view("a"))
    holder = open_for_writing(path)
    holder.pragma("journal_mode", "delete")
    holder.execute("BEGIN EXCLUSIVE")
    registry = SqliteRegistry(path, busy_timeout=2.0)
    before = threading.active_count()
    with trio.move_on_after(0.05) as scope:
        await registry.read(None)
    assert scope.cancelled_caught
    holder.execute("COMMIT")
    holder.close()
    with trio.fail_after(5):
        assert ids(await registry.read(None)) == ["a"]
    await registry.aclose()
    assert threading.active_count() <= before + 2


def files_open(path):
    links = [
        descriptor.readlink()
        for descriptor in Path("/proc/self/fd").iterdir()
        if descriptor.is_symlink() and descriptor.exists()
    ]
    return [link for link in links if str(link).startswith(str(path))]


async def test_a_read_can_be_cancelled_at_any_step_and_leaves_nothing(path, view):
    publish(path, view("a"))
    registry = SqliteRegistry(path)

    async def look():
        await registry.change_token()
        await registry.read(None)
        await registry.aclose()
        await registry.read(None)

    step = 1
    while await cancelled_after(step, look):
        with trio.fail_after(5):
            assert ids(await registry.read(None)) == ["a"]
        step += 1
    assert step > 4
    await registry.aclose()
    assert open_files(path) == 0


async def test_closing_lets_go_of_the_file_and_it_opens_again(registry, path, view):
    publish(path, view("a"))
    await registry.read(None)
    assert files_open(path)
    await registry.aclose()
    await registry.aclose()
    assert not files_open(path)
    assert ids(await registry.read(None)) == ["a"]


async def test_plain_sql_shows_up_on_the_timer_with_one_event_for_each_change(
    path, sql, compiler, host, view
):
    actor = CatalogActor(SqliteRegistry(path), compiler, interval=0.02)
    actor.bind(host)

    async def changed(text):
        waiting = host.next
        before = host.changes
        sql(text)
        with trio.fail_after(5):
            await waiting.wait()
        # Several more looks see nothing further.
        for _ in range(3):
            await actor.refresh()
        assert host.changes == before + 1

    async with trio.open_nursery() as nursery:
        await nursery.start(actor.run)
        with trio.fail_after(5):
            await actor.ready.wait()
        await changed(
            "INSERT INTO operations (operation_id, name, protocol, status) VALUES "
            "('a', 'tool_a', 'static', 'published'), ('b', 'tool_b', 'static', 'published'), "
            "('c', 'tool_c', 'static', 'published'), ('d', 'tool_d', 'static', 'draft')"
        )
        assert list(actor.tools.entries) == ["tool_a", "tool_b", "tool_c"]
        await changed("UPDATE operations SET tool_description = 'x' WHERE operation_id = 'a'")
        await changed("UPDATE operations SET status = 'withdrawn' WHERE operation_id = 'b'")
        assert list(actor.tools.entries) == ["tool_a", "tool_c"]
        await changed("UPDATE operations SET status = 'published' WHERE operation_id = 'd'")
        await changed("DELETE FROM operations WHERE operation_id IN ('a', 'c', 'd')")
        assert list(actor.tools.entries) == []
        nursery.cancel_scope.cancel()


async def test_ten_thousand_operations_and_one_change_cost_one_compile(
    path, sql, compiler, host, view
):
    publish(path, *(view(f"op{i}") for i in range(10_000)))
    actor = CatalogActor(SqliteRegistry(path), compiler)
    actor.bind(host)
    async with trio.open_nursery() as nursery:
        await nursery.start(actor.run)
        await actor.ready.wait()
        assert len(compiler.compiled) == 10_000
        compiler.compiled.clear()
        sql("UPDATE operations SET tool_description = 'New.' WHERE operation_id = 'op5000'")
        sql("UPDATE operations SET ui = 'x' WHERE operation_id = 'op5001'")
        status = await actor.refresh()
        assert compiler.compiled == ["op5000"]
        assert (status.operations, status.swaps) == (10_000, 2)
        assert host.changes == 2
        nursery.cancel_scope.cancel()


async def test_a_broken_row_among_many_keeps_its_last_good_version(path, sql, compiler, host, view):
    publish(path, *(view(f"op{i}") for i in range(100)))
    actor = CatalogActor(SqliteRegistry(path), compiler)
    actor.bind(host)
    async with trio.open_nursery() as nursery:
        await nursery.start(actor.run)
        await actor.ready.wait()
        good = actor.tools.entries["op7"]
        sql("UPDATE operations SET target = '{\"half' WHERE operation_id = 'op7'")
        sql("UPDATE operations SET tool_description = 'New.' WHERE operation_id = 'op8'")
        status = await actor.refresh()
        assert actor.tools.entries["op7"] is good
        assert actor.tools.entries["op8"].definition.description == "New."
        [record] = status.quarantine
        assert record.operation_id == "op7"
        assert "target: is not JSON" in record.reason
        assert record.serving == good.operation.revision
        nursery.cancel_scope.cancel()


def test_withdrawing_by_id(path, sql, view):
    publish(path, view("a"), view("b"))
    withdraw(path, "a", "nobody")
    assert sql("SELECT operation_id, status FROM operations ORDER BY 1") == [
        ("a", "withdrawn"),
        ("b", "published"),
    ]


def test_seeding_again_replaces_and_keeps_what_editors_wrote(path, sql, view):
    seed(path, [view("a")])
    sql("UPDATE operations SET ui = 'kept'")
    publish(path, view("a", name="z"))
    assert sql("SELECT name, status, ui FROM operations") == [("z", "published", "kept")]
    assert json.loads(sql("SELECT input_schema FROM operations")[0][0]) == {"type": "object"}


async def test_a_restored_backup_that_was_written_on_is_read_completely(tmp_path, path, sql, view):
    publish(path, view("a"), view("b"))
    backup = sql("PRAGMA wal_checkpoint(TRUNCATE)") and path.read_bytes()
    publish(path, view("c"))
    registry = SqliteRegistry(path)
    base = await registry.read(None)
    await registry.aclose()
    # The same registry by its id, and as many changes as before or more, but other ones.
    restored = tmp_path / "restored.db"
    restored.write_bytes(backup)
    withdraw(restored, "a")
    publish(restored, view("d"))
    for suffix in ("-wal", "-shm"):
        (tmp_path / f"registry.db{suffix}").unlink(missing_ok=True)
    opened = apsw.Connection(str(restored))
    opened.pragma("wal_checkpoint(TRUNCATE)")
    opened.close()
    restored.replace(path)
    assert await registry.change_token() != base.token
    reading = await registry.read(base.token)
    assert (ids(reading), reading.complete) == (["b", "d"], True)
    await registry.aclose()


async def test_only_so_many_stamps_are_kept(registry, path, sql, view):
    publish(path, view("a"))
    first, early = await registry.read(None), await registry.change_token()
    sql(f"UPDATE registry_state SET counter = counter + {HISTORY}")
    sql("UPDATE operations SET ui = 'x'")
    # The first stamp is out of the window, and so its token is no longer known.
    assert sql("SELECT count(*) FROM registry_history") == [(1,)]
    assert (await registry.read(early)).complete
    assert (await registry.read(None)).entries == first.entries


OLD = (Path(__file__).parent / "layout_1.sql").read_text()


@pytest.fixture
def old_path(tmp_path):
    where = tmp_path / "old.db"
    connection = apsw.Connection(str(where))
    connection.pragma("journal_mode", "wal")
    connection.execute(OLD)
    connection.execute(
        "INSERT INTO operations (operation_id, name, protocol, status, ui) VALUES "
        "('a', 'a', 'static', 'published', 'kept'), ('b', 'b', 'static', 'draft', NULL)"
    )
    connection.close()
    return where


async def test_an_old_layout_is_refused_with_what_to_do_and_read_after_migrating(old_path, view):
    registry = SqliteRegistry(old_path)
    await refuses(registry, Trouble.SCHEMA, "has layout 1 and is to be migrated to 2: .*migrate")
    assert migrate(old_path) == 1
    assert migrate(old_path) == LAYOUT
    base = await registry.read(None)
    assert ids(base) == ["a"]
    publish(old_path, view("c"))
    withdraw(old_path, "a")
    reading = await registry.read(base.token)
    assert (ids(reading), reading.removed, reading.complete) == (["c"], ("a",), False)
    await registry.aclose()


async def test_a_migrated_registry_has_the_tables_of_a_new_one(old_path, path, view):
    migrate(old_path)
    shapes = []
    for where in (old_path, path):
        connection = open_for_writing(where)
        columns = {
            table: sorted(
                (name, kind, bool(required))
                for _, name, kind, required, *_ in connection.execute(f"PRAGMA table_info({table})")
            )
            for (table,) in connection.execute("SELECT name FROM sqlite_schema WHERE type='table'")
        }
        triggers = sorted(
            (name, " ".join(text.split()))
            for name, text in connection.execute(
                "SELECT name, sql FROM sqlite_schema WHERE type != 'table' AND sql > ''"
            )
        )
        shapes.append((columns, triggers, layout_of(connection)))
        connection.close()
    assert shapes[0] == shapes[1]


async def test_a_reader_of_the_old_layout_reads_the_new_one(old_path):
    migrate(old_path)
    connection = open_for_writing(old_path)
    # What a service of the time asks for.
    assert list(connection.execute("SELECT format, counter FROM registry_state"))
    assert list(connection.execute("SELECT operation_id FROM operation_changes WHERE revision > 0"))
    connection.close()


def test_migrating_what_is_no_registry_changes_nothing(tmp_path):
    where = tmp_path / "foreign.db"
    connection = apsw.Connection(str(where))
    connection.execute("CREATE TABLE registry_state (format, counter)")
    with pytest.raises(apsw.SQLError):
        migrate(where)
    assert [row[1] for row in connection.execute("PRAGMA table_info(registry_state)")] == [
        "format",
        "counter",
    ]
    connection.close()


WRITER = """
import apsw, sys
connection = apsw.Connection(sys.argv[1])
connection.set_busy_timeout(0)  # whoever holds it up makes it fail
print("ready", flush=True)
for number in range(int(sys.argv[2])):
    connection.execute("BEGIN IMMEDIATE")
    for name in ("a", "b"):
        connection.execute(
            "UPDATE operations SET tool_description = ? WHERE operation_id = ?",
            (f"v{number}", name),
        )
        connection.execute("SELECT count(*) FROM operations").fetchall()
    connection.execute("COMMIT")
    if number % 20 == 0:
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
print("done", flush=True)
"""


async def test_a_busy_publisher_in_another_process_is_never_held_up_and_never_seen_half_way(
    registry, path, view
):
    publish(path, view("a"), view("b"))
    known = {e.operation_id: e.view for e in (await registry.read(None)).entries}
    token = None
    async with trio.open_nursery() as nursery:
        command = [sys.executable, "-c", WRITER, str(path), "300"]
        process = await nursery.start(
            functools.partial(trio.run_process, command, stdout=subprocess.PIPE)
        )
        said = b""
        readings = 0
        with trio.fail_after(60):
            while b"ready" not in said:
                said += await process.stdout.receive_some()
            finished = False
            while not finished:
                finished = process.poll() is not None
                reading = await registry.read(token)
                readings += 1
                token = reading.token
                known.update({e.operation_id: e.view for e in reading.entries})
                assert len({view["tool_description"] for view in known.values()}) == 1
    assert readings > 1
    assert process.returncode == 0
    assert known["a"]["tool_description"] == "v299"


async def test_between_looks_nothing_is_held_so_the_log_can_be_emptied(registry, path, sql, view):
    publish(path, view("a"))
    await registry.read(None)
    await registry.change_token()
    [(busy, _, _)] = sql("PRAGMA wal_checkpoint(TRUNCATE)")
    assert busy == 0
    sql("BEGIN EXCLUSIVE")
    sql("COMMIT")
