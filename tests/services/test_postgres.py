"""The PostgreSQL registry against real servers: read, held up, cut off, killed, failed over."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import threading
from contextlib import asynccontextmanager, contextmanager, suppress

import psycopg
import pytest
import trio
import trustme

from mcp_trio.abc import RegistryError, Trouble
from mcp_trio.catalog.operation import OperationError
from mcp_trio.catalog.registries.opening import open_registry
from mcp_trio.catalog.registries.options import RegistryOptions
from mcp_trio.catalog.registries.postgres import PostgresRegistry
from mcp_trio.catalog.registries.postgres_schema import create_registry, publish, seed, withdraw
from mcp_trio.catalog.registries.rows import MAX_VIEW_BYTES, VIEW_COLUMNS
from mcp_trio.config import parse_settings
from mcp_trio.errors import ConfigurationError
from mcp_trio.postgres import MAX_SAID, said
from mcp_trio.secrets import FileSecret, Secret
from mcp_trio.testing import cancelled_after, check_registry
from mcp_trio.testing.registries import sample_view as view
from tests.services.servers import Database, Postgres, server

CANARY = "s3cret-canary-73"
PATIENCE = 60
"""Seconds until a test gives up."""


def test_what_the_driver_says_holds_no_half_of_a_password():
    text = said(psycopg.Error(f"{'x' * (MAX_SAID - 6)}{CANARY} and\n more"), Secret(CANARY))
    assert CANARY[:6] not in text
    assert said(psycopg.Error(f"no\n {CANARY}"), Secret(CANARY)) == "no ***"


@pytest.fixture
def published(database):
    create_registry(database.admin)
    database.grant()
    return database


@pytest.fixture
async def registry(published):
    made = PostgresRegistry(published.url)
    yield made
    await made.aclose()


def ids(reading):
    return sorted(entry.operation_id for entry in reading.entries)


async def refused(registry, trouble, says):
    for ask in (registry.change_token, functools.partial(registry.read, None)):
        with pytest.raises(RegistryError, match=says) as caught:
            await ask()
        assert caught.value.trouble is trouble
        assert CANARY not in str(caught.value)
        # The driver's own error may hold the whole address.
        assert not isinstance(caught.value.__cause__, psycopg.Error)


def in_thread(function, *arguments):
    return trio.to_thread.run_sync(function, *arguments)


class PublishedInPostgres:
    def __init__(self, database):
        self.database = database
        self.registry = PostgresRegistry(database.url)

    async def publish(self, *views):
        await in_thread(publish, self.database.admin, *views)

    async def withdraw(self, *operation_ids):
        await in_thread(withdraw, self.database.admin, *operation_ids)

    async def hide(self):
        await in_thread(self.database.sql, "ALTER TABLE operations RENAME TO hidden")
        await in_thread(self.database.sql, "ALTER TABLE registry_state RENAME TO hidden_state")

    async def show(self):
        await in_thread(self.database.sql, "ALTER TABLE hidden RENAME TO operations")
        await in_thread(self.database.sql, "ALTER TABLE hidden_state RENAME TO registry_state")


async def test_it_passes_the_battery(postgres):
    @asynccontextmanager
    async def make():
        database = await in_thread(Database, postgres)
        await in_thread(create_registry, database.admin)
        await in_thread(database.grant)
        yield PublishedInPostgres(database)

    await check_registry(make)


async def test_settings_lead_to_it(published, tmp_path):
    publish(published.admin, view("a"))
    settings = parse_settings({"catalog": {"registry": published.url}})
    registry = settings.catalog.open_registry(tmp_path)
    assert type(registry) is PostgresRegistry
    assert ids(await registry.read(None)) == ["a"]
    await registry.aclose()
    by_socket = f"postgresql://reader@/{published.name}?host={published.place.folder}"
    registry = open_registry(f"{by_socket}&port={published.place.port}")
    assert ids(await registry.read(None)) == ["a"]
    await registry.aclose()


async def test_plain_sql_by_a_role_that_may_only_write_operations_keeps_the_books(
    published, registry
):
    base = (await registry.read(None)).token
    with psycopg.connect(published.place.url(published.name, role="publisher")) as connection:
        # Tables of the same names, in front of ours for whoever looks carelessly.
        connection.execute("CREATE TEMP TABLE registry_state AS SELECT 0 AS counter, '' AS stamp")
        connection.execute("CREATE TEMP TABLE operation_changes (operation_id text, revision int)")
        for name in "abcd":
            connection.execute(
                "INSERT INTO operations (operation_id, name, protocol, status) "
                "VALUES (%s, %s, 'static', 'published')",
                (name, name),
            )
        with pytest.raises(psycopg.errors.InsufficientPrivilege), connection.transaction():
            connection.execute("UPDATE public.registry_state SET counter = 0")
    reading = await registry.read(base)
    assert (ids(reading), reading.complete) == (["a", "b", "c", "d"], False)
    with psycopg.connect(published.place.url(published.name, role="publisher")) as connection:
        connection.execute("UPDATE operations SET tool_description = 'New.' WHERE name = 'a'")
        connection.execute("UPDATE operations SET status = 'withdrawn' WHERE name = 'b'")
        connection.execute("DELETE FROM operations WHERE name = 'c'")
        connection.execute("UPDATE operations SET operation_id = 'moved' WHERE name = 'd'")
    reading = await registry.read(reading.token)
    assert ids(reading) == ["a", "moved"]
    assert sorted(reading.removed) == ["b", "c", "d"]
    published.sql("TRUNCATE operations")
    reading = await registry.read(reading.token)
    assert (sorted(reading.removed), reading.complete) == (["a", "b", "moved"], False)


async def test_what_editors_keep_is_never_read(published, registry):
    seed(published.admin, [view("draft")])
    publish(published.admin, view("a"))
    published.sql("UPDATE operations SET sample_payload='CANARY', import_metadata='CANARY', ui='x'")
    reading = await registry.read(None)
    assert ids(reading) == ["a"]
    assert "CANARY" not in repr(reading)
    assert set(reading.entries[0].view) == set(VIEW_COLUMNS)


async def test_a_row_that_cannot_be_used_is_a_fault_of_that_row(published, registry):
    publish(published.admin, view("a"), view("b"), view("c"))
    published.sql("UPDATE operations SET tool_description = '{' WHERE operation_id = 'a'")
    published.sql(
        "UPDATE operations SET target = to_json(repeat('x', %s)) WHERE operation_id = 'b'",
        MAX_VIEW_BYTES,
    )
    entries = {entry.operation_id: entry for entry in (await registry.read(None)).entries}
    assert "tool_description: is not JSON" in entries["a"].fault
    assert "larger than" in entries["b"].fault
    assert entries["c"].view == view("c")


def test_the_helpers_refuse_a_bad_view_and_write_nothing(published):
    with pytest.raises(OperationError, match="b: unknown key 'ui'"):
        publish(published.admin, view("a"), {**view("b"), "ui": {}})
    assert published.sql("SELECT count(*) FROM operations") == [(0,)]
    with pytest.raises(psycopg.errors.DuplicateTable):
        create_registry(published.admin)
    withdraw(published.admin, "nobody")


async def test_what_is_no_registry_is_told(published, database):
    async def trouble(url, kind, says):
        registry = PostgresRegistry(url)
        await refused(registry, kind, says)
        await registry.aclose()

    registry = PostgresRegistry(published.url)
    published.sql("UPDATE registry_state SET layout = 0")
    await refused(registry, Trouble.SCHEMA, "has layout 0 and is to be migrated to 1")
    published.sql("UPDATE registry_state SET layout = 7")
    # A later one only adds.
    await registry.change_token()
    published.sql("UPDATE registry_state SET format = 'mcp-operations/9'")
    await refused(registry, Trouble.SCHEMA, "is not a registry of the format mcp-operations/1")
    published.sql("REVOKE SELECT ON registry_state FROM reader")
    await refused(registry, Trouble.DENIED, "does not let us read")
    await registry.aclose()
    place = published.place
    await trouble(place.url("postgres"), Trouble.SCHEMA, "is not laid out as a registry")
    await trouble(place.url("nothing"), Trouble.MISSING, "is not there")


async def test_a_slow_catalog_of_rows_comes_in_batches(published, registry):
    published.sql(
        "INSERT INTO operations (operation_id, name, protocol, status) "
        "SELECT 'op' || n, 'op' || n, 'static', 'published' FROM generate_series(1, 5000) n"
    )
    base = await registry.read(None)
    assert len(base.entries) == 5000
    published.sql("UPDATE operations SET tool_description = 'New.' WHERE operation_id = 'op77'")
    reading = await registry.read(base.token)
    assert (ids(reading), reading.complete) == (["op77"], False)


@contextmanager
def holding(database, text):
    """Another session in the middle of a transaction."""
    with psycopg.connect(database.admin) as connection:
        connection.execute(text)
        yield connection
        connection.rollback()


async def test_a_publisher_in_the_middle_is_not_seen_and_not_held_up(published, registry):
    publish(published.admin, view("a"))
    base = await registry.read(None)
    with (
        holding(published, "UPDATE operations SET tool_description = 'Half.'") as publisher,
        trio.fail_after(PATIENCE),
    ):
        assert await registry.change_token() == base.token
        assert (await registry.read(base.token)).entries == ()
        publisher.execute("UPDATE operations SET tool_description = 'Whole.'")
        publisher.commit()
    [entry] = (await registry.read(base.token)).entries
    assert entry.view["tool_description"] == "Whole."


WRITER = """
import psycopg, sys
with psycopg.connect(sys.argv[1], autocommit=True) as connection:
    # Whoever holds it up makes it fail.
    connection.execute("SET lock_timeout = '2s'")
    print("ready", flush=True)
    for number in range(int(sys.argv[2])):
        with connection.transaction():
            for name in ("a", "b"):
                connection.execute(
                    "UPDATE operations SET tool_description = %s WHERE operation_id = %s",
                    (f"v{number}", name),
                )
"""


async def test_a_busy_publisher_is_never_seen_half_way(published, registry):
    publish(published.admin, view("a"), view("b"))
    known = {e.operation_id: e.view for e in (await registry.read(None)).entries}
    token, readings = None, 0
    command = [sys.executable, "-c", WRITER, published.admin, "200"]
    async with trio.open_nursery() as nursery:
        process = await nursery.start(
            functools.partial(trio.run_process, command, stdout=subprocess.PIPE)
        )
        with trio.fail_after(PATIENCE):
            said = b""
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
    assert known["b"]["tool_description"] == "v199"


def test_publishers_that_cross_do_not_lock_each_other_out(published):
    publish(published.admin, view("a"), view("b"))
    failures = []

    def work(first, second):
        try:
            for number in range(30):
                with psycopg.connect(published.admin) as connection:
                    for name in (first, second):
                        connection.execute(
                            "UPDATE operations SET tool_description = %s WHERE operation_id = %s",
                            (f"{first}{number}", name),
                        )
        except psycopg.Error as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=pair) for pair in (("a", "b"), ("b", "a"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert failures == []
    [(counter, history)] = published.sql(
        "SELECT counter, (SELECT count(*) FROM registry_history) FROM registry_state"
    )
    assert history == counter + 1


LOCK = "LOCK TABLE operations IN ACCESS EXCLUSIVE MODE"
RUNNING = """
SELECT count(*) FROM pg_stat_activity
WHERE application_name = 'mcp-trio' AND datname = current_database() AND state <> 'idle'
"""


async def until(condition):
    """Wait for the server to be in a state that it does not tell by itself."""
    with trio.fail_after(PATIENCE):
        while not await in_thread(condition):  # noqa: ASYNC110  # nobody tells
            await trio.sleep(0.01)


async def test_a_table_that_is_locked_costs_bounded_time(published):
    publish(published.admin, view("a"))
    registry = PostgresRegistry(published.url, RegistryOptions(total_timeout=0.3))
    base = await registry.change_token()
    with holding(published, LOCK):
        # The server's own limit and ours are the same; whichever is first tells.
        with pytest.raises(RegistryError) as caught, trio.fail_after(PATIENCE):
            await registry.read(None)
        assert caught.value.trouble in {Trouble.LOCKED, Trouble.UNREACHABLE}
        # The token needs no more than its own row.
        assert await registry.change_token() == base
    assert ids(await registry.read(None)) == ["a"]
    await registry.aclose()


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("REVOKE CONNECT ON DATABASE {name} FROM PUBLIC", "permission denied for database"),
        ("REVOKE SELECT ON registry_state FROM reader", "permission denied for table"),
        ("CREATE ROLE nobody NOLOGIN", "is not permitted to log in"),
    ],
)
async def test_a_right_that_was_taken_away_is_told_as_that(published, statement, says):
    role = "nobody" if "nobody" in statement else "reader"
    registry = PostgresRegistry(published.place.url(published.name, role=role))
    published.sql(statement.format(name=published.name))
    await refused(registry, Trouble.DENIED, says)
    await registry.aclose()


async def test_a_read_can_be_cancelled_at_any_step_and_leaves_nothing(published, registry):
    publish(published.admin, view("a"))

    async def look():
        await registry.change_token()
        await registry.read(None)
        await registry.aclose()
        await registry.read(None)

    step = 1
    while await cancelled_after(step, look):
        with trio.fail_after(PATIENCE):
            assert ids(await registry.read(None)) == ["a"]
        step += 1
    assert step > 4
    await registry.aclose()
    sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'mcp-trio'"
    await until(lambda: published.sql(f"{sessions} AND datname = current_database()") == [(0,)])


async def test_cancelling_ends_the_query_on_the_server(published, registry):
    publish(published.admin, view("a"))
    await registry.change_token()
    with holding(published, LOCK):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(registry.read, None)
            await until(lambda: published.sql(RUNNING) == [(1,)])
            nursery.cancel_scope.cancel()
        # Not later: the scope is left when the server has been told.
        await until(lambda: published.sql(RUNNING) == [(0,)])
    with trio.fail_after(PATIENCE):
        assert ids(await registry.read(None)) == ["a"]


async def test_a_connection_that_was_lost_between_looks_is_made_again(published, registry):
    publish(published.admin, view("a"))
    base = await registry.change_token()
    published.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE application_name = 'mcp-trio' AND datname = current_database()"
    )
    assert await registry.change_token() == base


async def test_closing_lets_go_of_the_connection(published, registry):
    await registry.change_token()
    count = (
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE application_name = 'mcp-trio' AND datname = current_database()"
    )
    assert published.sql(count) == [(1,)]
    await registry.aclose()
    await until(lambda: published.sql(count) == [(0,)])
    await registry.change_token()


class Gate:
    """Stands between a registry and its server, and lets nothing through on demand."""

    def __init__(self, port):
        self.port = port
        self.frozen = False
        self.thawed = trio.Event()
        self.streams = []
        self.ended = 0
        """Connections that both sides have closed."""
        self.url = ""

    async def serve(self, near):
        if self.port is None:
            # A server that takes the connection and says nothing.
            await trio.sleep_forever()
        far = await trio.open_tcp_stream("127.0.0.1", self.port)
        self.streams += [near, far]
        async with far, trio.open_nursery() as nursery:
            nursery.start_soon(self.pump, near, far)
            nursery.start_soon(self.pump, far, near)
        self.ended += 1

    async def pump(self, source, sink):
        try:
            async for data in source:
                if self.frozen:
                    await self.thawed.wait()
                await sink.send_all(data)
            await sink.aclose()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            await source.aclose()
            await sink.aclose()

    async def cut(self):
        for stream in self.streams:
            await trio.aclose_forcefully(stream)


@asynccontextmanager
async def gate(database):
    made = Gate(None if database is None else database.place.port)
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(
            functools.partial(trio.serve_tcp, made.serve, 0, host="127.0.0.1")
        )
        name = "db" if database is None else database.name
        made.url = f"postgresql://reader@127.0.0.1:{listeners[0].socket.getsockname()[1]}/{name}"
        yield made
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("libpq", ["new", "old"])
async def test_a_network_that_swallows_everything_costs_bounded_time(published, monkeypatch, libpq):
    asked = []
    if libpq == "old":
        # One that asks for the end of a query by waiting, without a bound, for the server.
        monkeypatch.setattr(psycopg.capabilities, "has_cancel_safe", lambda: False)

        def ask(connection):
            asked.append(connection)

        monkeypatch.setattr(psycopg.Connection, "cancel", ask)
    publish(published.admin, view("a"))
    async with gate(published) as between:
        registry = PostgresRegistry(between.url, RegistryOptions(total_timeout=0.5))
        base = await registry.change_token()
        between.frozen = True
        with trio.fail_after(PATIENCE):
            # The request to end the query is swallowed, too: the socket is cut.
            await refused(registry, Trouble.UNREACHABLE, "gave no answer within 0.5 seconds")
        between.frozen = False
        between.thawed.set()
        await between.cut()
        await until_readable(registry)
        assert await registry.change_token() == base
        await registry.aclose()
        assert asked == []


async def until_readable(registry):
    """As a catalog does: try again until it works."""
    with trio.fail_after(PATIENCE):
        while True:
            try:
                return await registry.read(None)
            except RegistryError:
                await trio.sleep(0.05)


async def test_a_server_that_takes_the_call_and_says_nothing_is_unreachable():
    async with gate(None) as silent:
        registry = PostgresRegistry(
            silent.url, RegistryOptions(total_timeout=0.3, connect_timeout=1)
        )
        with trio.fail_after(PATIENCE):
            await refused(registry, Trouble.UNREACHABLE, "gave no answer within 0.3 seconds")
            await registry.aclose()
    patient = PostgresRegistry("postgresql://reader@127.0.0.1:1/db")
    await refused(patient, Trouble.UNREACHABLE, "127.0.0.1:1/db cannot be reached")


async def test_a_connection_that_nobody_waits_for_any_more_is_closed_when_it_is_made(published):
    async with gate(published) as between:
        between.frozen = True
        registry = PostgresRegistry(
            between.url, RegistryOptions(total_timeout=0.2, connect_timeout=PATIENCE)
        )
        await refused(registry, Trouble.UNREACHABLE, "gave no answer within 0.2 seconds")
        await registry.aclose()
        assert (len(between.streams), between.ended) == (2, 0)
        between.frozen = False
        between.thawed.set()
        await until(lambda: between.ended == 1)


async def test_a_database_without_an_encoding_is_read_and_a_bad_text_costs_its_row(postgres):
    with psycopg.connect(postgres.url("postgres", role="admin"), autocommit=True) as connection:
        connection.execute(
            "CREATE DATABASE plain ENCODING 'SQL_ASCII' TEMPLATE template0 "
            "LC_COLLATE 'C' LC_CTYPE 'C'"
        )
    admin = postgres.url("plain", role="admin")
    create_registry(admin)
    sample = {**view("a"), "tool_description": "é"}
    publish(admin, sample, view("b"))
    with psycopg.connect(admin, autocommit=True) as connection:
        connection.execute("UPDATE operations SET name = E'\\xff' WHERE operation_id = 'b'")
    registry = PostgresRegistry(admin)
    found = {e.operation_id: e for e in (await registry.read(None)).entries}
    await registry.aclose()
    assert found["a"].view == sample
    assert found["b"].fault == "name: is not UTF-8"


async def test_a_cut_in_the_middle_of_a_read_is_an_outage_and_the_next_read_works(published):
    publish(published.admin, view("a"))
    async with gate(published) as between:
        registry = PostgresRegistry(between.url)
        await registry.change_token()
        with holding(published, LOCK), trio.fail_after(PATIENCE):
            async with trio.open_nursery() as nursery:
                reads = []

                async def read():
                    reads.append(await registry.read(None))

                nursery.start_soon(read)
                await until(lambda: published.sql(RUNNING) == [(1,)])
                # The read is begun anew on another connection, and waits there.
                await between.cut()
                await until(lambda: published.sql(RUNNING) >= [(1,)])
                nursery.cancel_scope.cancel()
        assert ids(await registry.read(None)) == ["a"]
        await registry.aclose()


@pytest.fixture
def own():
    """A server of one test, to be stopped and started."""
    with server(Postgres.make) as made:
        with psycopg.connect(made.url("postgres", role="admin")) as connection:
            connection.execute("CREATE ROLE reader LOGIN")
            connection.execute("CREATE ROLE publisher LOGIN")
        database = Database(made)
        create_registry(database.admin)
        database.grant()
        publish(database.admin, view("a"), view("b"))
        yield database


async def test_a_server_that_is_killed_in_the_middle_of_a_read_and_comes_back(own):
    registry = PostgresRegistry(own.url)
    base = await registry.read(None)
    failures = []
    # The holder loses its server, too.
    with suppress(psycopg.OperationalError), psycopg.connect(own.admin) as holder:
        holder.execute(LOCK)
        async with trio.open_nursery() as nursery:

            async def read():
                try:
                    await registry.read(None)
                except RegistryError as error:
                    failures.append(error)

            nursery.start_soon(read)
            await until(lambda: own.sql(RUNNING) == [(1,)])
            with trio.fail_after(PATIENCE):
                await in_thread(own.place.stop)
    [error] = failures
    assert error.trouble is Trouble.UNREACHABLE
    await refused(registry, Trouble.UNREACHABLE, "cannot be reached")
    await in_thread(own.place.start)
    # Nothing was lost, and nothing is read twice.
    assert await registry.change_token() == base.token
    publish(own.admin, view("c"))
    reading = await registry.read(base.token)
    assert (ids(reading), reading.complete) == (["c"], False)
    # A restart between two looks is not even noticed.
    await in_thread(own.place.stop, "fast")
    await in_thread(own.place.start)
    assert await registry.change_token() == reading.token
    await registry.aclose()


async def test_a_standby_takes_over_and_a_promotion_that_went_another_way_is_read_whole(own):
    with server(functools.partial(Postgres.follow, primary=own.place)) as standby:
        ports = f"127.0.0.1:{own.place.port},127.0.0.1:{standby.port}"
        url = f"postgresql://reader@{ports}/{own.name}"
        registry = PostgresRegistry(url)
        base = await registry.read(None)
        follower = PostgresRegistry(standby.url(own.name))
        # A standby is read-only, which is all we need.
        await until_same(follower, base.token)
        assert ids(await follower.read(None)) == ["a", "b"]
        # The primary goes on for one change that the standby never gets, and dies.
        await in_thread(standby.stop, "fast")
        publish(own.admin, view("lost"))
        lost = await registry.read(base.token)
        assert ids(lost) == ["lost"]
        await in_thread(own.place.stop)
        await in_thread(standby.start)
        # The next host of the address answers: a state of before, so everything is read.
        reading = await registry.read(lost.token)
        assert (ids(reading), reading.complete) == (["a", "b"], True)
        await in_thread(standby.promote)
        promoted = standby.url(own.name, role="admin")
        # As many changes as there were, but other ones.
        publish(promoted, view("found"))
        reading = await registry.read(lost.token)
        assert (ids(reading), reading.complete) == (["a", "b", "found"], True)
        publish(promoted, view("d"))
        assert ids(await registry.read(reading.token)) == ["d"]
        await registry.aclose()
        await follower.aclose()


async def until_same(registry, token):
    """Wait until a standby has caught up."""
    with trio.fail_after(PATIENCE):
        while await registry.change_token() != token:  # noqa: ASYNC110  # nobody tells
            await trio.sleep(0.02)


async def test_the_password_is_asked_for_again_and_never_shown(own, tmp_path):
    own.sql(f"ALTER ROLE reader PASSWORD '{CANARY}'")
    rules = own.place.data / "pg_hba.conf"
    rules.write_text(
        "host all admin 127.0.0.1/32 trust\nhost all reader 127.0.0.1/32 scram-sha-256\n"
    )
    own.sql("SELECT pg_reload_conf()")
    await until(lambda: own.sql("SELECT count(*) FROM pg_hba_file_rules") == [(2,)])
    password = tmp_path / "password"
    password.write_text(CANARY)
    options = RegistryOptions(secret=FileSecret(password))
    registry = PostgresRegistry(own.url, options)
    await registry.change_token()
    password.write_text(f"wrong-{CANARY}")
    # The connection is still good.
    await registry.change_token()
    await registry.aclose()
    await refused(registry, Trouble.DENIED, "does not let us in: .*authentication failed")
    password.write_text(CANARY)
    await registry.change_token()
    await registry.aclose()
    password.unlink()  # the last one stays
    await registry.change_token()
    await registry.aclose()
    await refused(PostgresRegistry(own.url), Trouble.DENIED, "no password supplied")
    stranger = PostgresRegistry(own.place.url(own.name, role="publisher"))
    await refused(stranger, Trouble.DENIED, "no pg_hba.conf entry")


async def test_over_tls_the_certificate_has_to_be_its_own(own, tmp_path):
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    key = own.place.data / "server.key"
    certificate.private_key_pem.write_to_path(key)
    key.chmod(0o600)
    (own.place.data / "server.crt").write_bytes(certificate.cert_chain_pems[0].bytes())
    owner = own.place.data.stat()
    os.chown(key, owner.st_uid, owner.st_gid)
    plain = own.url
    trusted = RegistryOptions(ca_file=str(tmp_path / "ca.pem"))
    by_name = own.place.url(own.name, host="localhost")
    # A server without TLS is not talked to once authorities are named.
    await refused(PostgresRegistry(by_name, trusted), Trouble.UNREACHABLE, "cannot be reached")
    await in_thread(own.place.stop, "fast")
    own.place.settings["ssl"] = "on"
    await in_thread(own.place.start)
    registry = PostgresRegistry(by_name, trusted)
    assert ids(await registry.read(None)) == ["a", "b"]
    await registry.aclose()
    await refused(PostgresRegistry(plain, trusted), Trouble.UNREACHABLE, "127.0.0.1")
    stranger = RegistryOptions(ca_file=str(own.place.folder / "missing.pem"))
    await refused(PostgresRegistry(by_name, stranger), Trouble.UNREACHABLE, "cannot be reached")


@pytest.mark.parametrize(
    ("url", "says"),
    [
        (f"postgresql://me:{CANARY}@host/db", "a password stands in secret_env"),
        (f"postgresql://me@host/db?password={CANARY}", "a password stands in secret_env"),
        (f"postgresql://me@host/db?nonsense={CANARY}", "is no PostgreSQL URL"),
        ("postgresql://[::1/db", "is no PostgreSQL URL"),
    ],
)
def test_addresses_that_cannot_be_are_refused_at_once(url, says):
    with pytest.raises(ConfigurationError, match=says) as caught:
        PostgresRegistry(url)
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "mode"),
    [
        ("postgresql://db.example/x", "verify-full"),
        ("postgresql://127.0.0.1,db.example/x", "verify-full"),
        ("postgresql://db.example/x?sslmode=disable", "disable"),
        ("postgresql://localhost,127.0.0.1/x", None),
        ("postgresql:///x?host=/run/postgresql", None),
        ("postgresql:///x", None),
    ],
)
def test_beyond_this_machine_a_server_has_to_prove_itself(url, mode):
    assert PostgresRegistry(url)._parameters.get("sslmode") == mode
