"""SQL operations on a real PostgreSQL: types, transactions, cancellation, lost connections."""

from __future__ import annotations

import threading

import pytest
import trio

from mcp_trio.config import make_connections, parse_settings
from mcp_trio.errors import ConfigurationError
from mcp_trio.postgres import parameters_of, with_defaults
from mcp_trio.runtime.sql_connection import SqlConnection
from mcp_trio.runtime.sql_postgres import PostgresDriver, PostgresSession
from mcp_trio.runtime.stages import WARNING_KEY
from mcp_trio.secrets import Secret
from tests.runtime import conftest as shared
from tests.runtime.sql import SqlBench

failure, make_context = shared.failure, shared.make_context
SLEEP = "SELECT pg_sleep(:n) IS NULL AS slept"


@pytest.fixture
def leads(database):
    database.sql("CREATE TABLE leads (id serial PRIMARY KEY, email text UNIQUE, n int DEFAULT 0)")
    database.sql("INSERT INTO leads (email) VALUES ('ann@x'), ('bob@x')")
    return database


@pytest.fixture
async def db(leads):
    bench = SqlBench.of(leads.admin)
    async with bench.connections:
        yield bench


def emails(leads):
    return [email for (email,) in leads.sql("SELECT email FROM leads ORDER BY id")]


OURS = "application_name = 'mcp-trio' AND datname = current_database()"


def running(leads):
    """What other sessions of the database run at this moment."""
    return leads.sql(f"SELECT state, query FROM pg_stat_activity WHERE {OURS} AND state <> 'idle'")


async def until(condition):
    with trio.fail_after(20):
        while not await trio.to_thread.run_sync(condition):
            await trio.lowlevel.checkpoint()


# -- results ---------------------------------------------------------------------------


async def test_types_become_json(db):
    (row,) = await db.rows(
        """SELECT 1::smallint AS small, 9007199254740993::bigint AS big, 1.10::numeric AS exact,
        0.5::float8 AS real, 'NaN'::float8 AS nan, 'infinity'::float4 AS inf, true AS yes,
        NULL::int AS none, '\\x00ff'::bytea AS raw, 'a'::text AS word,
        '2024-02-29'::date AS day, 'infinity'::date AS ever, '10:30'::time AS hour,
        '2024-02-29 10:30:00.5'::timestamp AS moment,
        '2024-02-29 10:30:00+00'::timestamptz AT TIME ZONE 'UTC' AS zoned,
        '1 day 2 hours'::interval AS span, '{"a":[1,{"b":null}]}'::jsonb AS tree,
        '[1,2]'::json AS list, ARRAY[1,2] AS many, ARRAY[[1.5::numeric],[2]] AS grid,
        '3f2b8f6c-0d3a-4a67-9a51-2d6a7b6f0001'::uuid AS id, '[1,5)'::int4range AS span_of,
        '10.0.0.1/8'::inet AS host, '2024-02-29 10:30:00+00'::timestamptz IS NOT NULL AS tz"""
    )
    assert row == {
        "small": 1,
        "big": 9007199254740993,
        "exact": "1.10",
        "real": 0.5,
        "nan": "NaN",
        "inf": "Infinity",
        "yes": True,
        "none": None,
        "raw": "AP8=",
        "word": "a",
        "day": "2024-02-29",
        "ever": "infinity",
        "hour": "10:30:00",
        "moment": "2024-02-29T10:30:00.500000",
        "zoned": "2024-02-29T10:30:00",
        "span": "P1DT2H",
        "tree": {"a": [1, {"b": None}]},
        "list": [1, 2],
        "many": [1, 2],
        "grid": [["1.5"], ["2"]],
        "id": "3f2b8f6c-0d3a-4a67-9a51-2d6a7b6f0001",
        "span_of": "[1,5)",
        "host": "10.0.0.1/8",
        "tz": True,
    }


@pytest.mark.parametrize("value", ["x' OR 1=1 --", "%", "%s", ":email", "$1", "ü\n'\"\\", None])
async def test_a_value_stays_a_value(db, value):
    statement = "SELECT :email::text AS said, count(*) AS n FROM leads WHERE '%' <> 'a$1'"
    assert await db.rows(statement, given={"email": value}) == [{"said": value, "n": 2}]


async def test_parameters_take_the_type_they_are_used_as(db):
    statement = (
        "SELECT count(*) AS n, (:more::jsonb)->'k' AS k, :x + 1 AS next, :b::bool AS yes, "
        "(:a::timestamptz) IS NOT NULL AS moment FROM leads "
        "WHERE id = ANY(:ids) AND email <> ALL(:n)"
    )
    given = {"ids": [1, 2, 9], "n": [], "more": {"k": [1, "%"]}, "x": 2**40, "b": False}
    (row,) = await db.rows(statement, given={**given, "a": "2024-02-29T10:30:00Z"})
    assert row == {"n": 2, "k": [1, "%"], "next": 2**40 + 1, "yes": False, "moment": True}


async def test_columns_are_known_where_there_is_no_row(db):
    names = {"result": {"names": "=columns", "n": "=row_count"}}
    result = await db.call("SELECT email FROM leads WHERE false", output_mapping=names)
    assert result.structured_content == {"names": ["email"], "n": 0}


# -- transactions ----------------------------------------------------------------------


async def test_a_change_is_committed_and_tells_how_many(db, leads):
    insert = "INSERT INTO leads (email) VALUES (:email)"
    result = await db.call(insert, write=True, given={"email": "cy@x"}, output_mapping={})
    assert result.structured_content == {"row_count": 1}
    returned = await db.rows("UPDATE leads SET n = 3 RETURNING id, n", write=True)
    assert len(returned) == 3
    with_cte = "WITH x AS (SELECT 1) UPDATE leads SET n = 4"
    result = await db.call(with_cte, write=True, output_mapping={})
    assert result.structured_content == {"row_count": 3}
    assert emails(leads) == ["ann@x", "bob@x", "cy@x"]
    assert await db.rows("UPDATE leads SET n = 5 WHERE false RETURNING n", write=True) == []


@pytest.mark.parametrize(
    "statement",
    [
        "WITH x AS (DELETE FROM leads RETURNING id) SELECT id FROM x",
        "SELECT nextval('leads_id_seq')",
        "SELECT set_config('transaction_read_only', 'off', false), nextval('leads_id_seq')",
    ],
)
async def test_reading_cannot_write_whatever_the_statement_does(db, leads, failure, statement):
    _, told = failure(await db.call(statement))
    assert told["stage"] == "external_service"
    assert told["code"] in {"25006", "0A000", "25001"}
    assert emails(leads) == ["ann@x", "bob@x"]
    assert leads.sql("SELECT last_value FROM leads_id_seq") == [(2,)]


async def test_a_change_that_fails_is_rolled_back(db, leads, failure):
    twice = "INSERT INTO leads (email) VALUES ('new@x'), ('ann@x')"
    text, told = failure(await db.call(twice, write=True))
    assert (told["stage"], told["code"]) == ("external_service", "23505")
    assert "leads_email_key" in text
    leads.sql("ALTER TABLE leads ADD CHECK (n < 9)")
    _, told = failure(await db.call("UPDATE leads SET n = 9 RETURNING id", write=True))
    assert told["code"] == "23514"
    assert emails(leads) == ["ann@x", "bob@x"]
    assert db.pool.open == 1


async def test_what_fails_only_at_the_commit_is_a_failure_too(db, leads, failure):
    leads.sql(
        "ALTER TABLE leads DROP CONSTRAINT leads_email_key, ADD CONSTRAINT late UNIQUE (email) "
        "DEFERRABLE INITIALLY DEFERRED"
    )
    _, told = failure(await db.call("INSERT INTO leads (email) VALUES ('ann@x')", write=True))
    assert told["code"] == "23505"
    assert emails(leads) == ["ann@x", "bob@x"]


async def test_a_change_that_gives_too_much_is_rolled_back_or_cut(db, leads, failure):
    many = (
        "INSERT INTO leads (email) SELECT 'm' || g FROM generate_series(1, 500) g RETURNING email"
    )
    limits = {"limits": {"items": 2}}
    _, told = failure(await db.call(many, write=True, execution_config=limits))
    assert told["sub"] == "response_items"
    assert len(emails(leads)) == 2
    limits["limits"]["on_exceed"] = "truncate"
    assert len(await db.rows(many, write=True, execution_config=limits)) == 2
    assert len(emails(leads)) == 502


async def test_cancelling_a_change_rolls_it_back_before_the_call_returns(db, leads):
    slow = "INSERT INTO leads (email) SELECT 'new@x' FROM pg_sleep(600)"
    operation = db.compile(slow, write=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(operation.call, make_context(), {})
        await until(lambda: any("pg_sleep" in query for _, query in running(leads)))
        nursery.cancel_scope.cancel()
    assert running(leads) == []
    assert emails(leads) == ["ann@x", "bob@x"]
    assert await db.rows("SELECT 1 AS a") == [{"a": 1}]
    assert db.pool.open == 1


# -- time, size ------------------------------------------------------------------------


async def test_cancelling_ends_the_query_on_the_server(db, leads):
    operation = db.compile(SLEEP)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(operation.call, make_context(), {"n": 600})
        # The server's cursor does its work when it is fetched from.
        await until(lambda: any("FETCH" in query for _, query in running(leads)))
        nursery.cancel_scope.cancel()
    assert running(leads) == []


async def test_a_deadline_ends_the_query_on_the_server(db, leads, failure):
    short = {"timeout_ms": {"total": 300}}
    _, told = failure(await db.call(SLEEP, given={"n": 600}, execution_config=short))
    assert (told["stage"], told["sub"]) == ("adapter_execution", "timeout")
    assert told["code"] in {"total", "57014"}
    assert running(leads) == []


async def test_the_server_knows_the_deadline_too(db):
    config = {"timeout_ms": {"total": 40_000}}
    statement = (
        "SELECT current_setting('statement_timeout') AS t, "
        "current_setting('transaction_read_only') AS r"
    )
    (row,) = await db.rows(statement, execution_config=config)
    assert row["r"] == "on"
    assert row["t"] == "40s" or 39_000 < int(row["t"].removesuffix("ms")) <= 40_000
    # Of the transaction, not of the session.
    (row,) = await db.rows("SELECT current_setting('statement_timeout') AS t", write=True)
    assert row["t"] == "30s" or int(row["t"].removesuffix("ms")) <= 30_000


async def test_more_rows_than_the_limit_are_not_even_made(db, failure):
    endless = "SELECT generate_series(1, 100000000000) AS g"
    text, told = failure(await db.call(endless))
    assert (told["sub"], "more than 1000 rows" in text) == ("response_items", True)
    cut = {"limits": {"items": 3, "on_exceed": "truncate"}}
    result = await db.call(endless, execution_config=cut)
    assert result.structured_content["rows"] == [{"g": 1}, {"g": 2}, {"g": 3}]
    assert result.meta[WARNING_KEY]["truncated"] == [{"pointer": "", "of": None}]


async def test_more_bytes_than_the_limit_are_an_error(db, failure):
    _, told = failure(await db.call("SELECT repeat('x', 3000000) AS t"))
    assert (told["stage"], told["sub"]) == ("adapter_execution", "response_bytes")


async def test_impossible_parameters_are_the_mappings(db, failure):
    for value in ([1, "a"], "\x00", "\ud800"):
        _, told = failure(await db.call("SELECT :a::text AS a", given={"a": value}))
        assert told["stage"] in {"mapping", "external_service"}
    assert db.pool.open == 1


# -- connections -----------------------------------------------------------------------


async def test_a_connection_that_was_lost_is_made_again(db, leads, failure):
    assert await db.rows("SELECT 1 AS a") == [{"a": 1}]
    leads.sql(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {OURS}")
    assert await db.rows("SELECT 2 AS a") == [{"a": 2}]
    statement = "SELECT pg_terminate_backend(pg_backend_pid())"
    _, told = failure(await db.call(statement))
    assert (told["stage"], told["sub"]) == ("adapter_execution", "disconnected")
    assert told["retryable"] is True
    _, told = failure(await db.call(statement, write=True))
    assert told["retryable"] is False
    assert await db.rows("SELECT 3 AS a") == [{"a": 3}]
    assert db.pool.open == 1


async def test_what_is_given_up_while_the_session_is_made_again_is_never_begun(
    db, leads, monkeypatch
):
    assert await db.rows("SELECT 1 AS a") == [{"a": 1}]
    leads.sql(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {OURS}")
    connect, interrupt = PostgresDriver.connect, PostgresSession.interrupt
    scope, told = trio.CancelScope(), threading.Event()

    def connect_and_be_given_up(driver, order):
        line = connect(driver, order)
        trio.from_thread.run_sync(scope.cancel)
        assert told.wait(10)
        return line

    def interrupt_and_tell(session):
        interrupt(session)
        told.set()

    monkeypatch.setattr(PostgresDriver, "connect", connect_and_be_given_up)
    monkeypatch.setattr(PostgresSession, "interrupt", interrupt_and_tell)
    with scope:
        await db.call("UPDATE leads SET n = 5", write=True)
    assert scope.cancelled_caught
    assert leads.sql(f"SELECT query FROM pg_stat_activity WHERE {OURS}") == [("",)]


async def test_never_more_sessions_than_the_limit(leads):
    bench = SqlBench.of(leads.admin, max_connections=3)
    count = f"SELECT count(*) AS n FROM pg_stat_activity WHERE {OURS}"
    async with bench.connections:
        seen = []

        async def look():
            ((row),) = await bench.rows(count)
            seen.append(row["n"])

        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(look)
        assert max(seen) <= 3
    await until(lambda: leads.sql(count) == [(0,)])


async def test_a_server_that_is_not_there_is_the_adapters(failure, leads):
    bench = SqlBench.of("postgresql://nobody@127.0.0.1:1/x", password=Secret("canary-secret"))
    async with bench.connections:
        text, told = failure(await bench.call("SELECT 1 AS a"))
        assert (told["stage"], told["sub"]) == ("adapter_execution", "connect")
        assert "canary" not in text
        assert "nobody" not in text
        assert bench.pool.open == 0


async def test_a_secret_in_a_message_of_the_server_is_masked(leads, failure):
    bench = SqlBench.of(leads.admin, password=Secret("canary-secret"))
    async with bench.connections:
        text, told = failure(await bench.call("SELECT canary-secret, nowhere"))
        assert told["code"] == "42703"
        text, _ = failure(await bench.call('SELECT "canary-secret"'))
        assert "canary" not in text
        assert "***" in text


async def _silent(_stream):
    await trio.sleep_forever()


async def test_a_server_that_does_not_answer_is_given_up(nursery, failure):
    listeners = await nursery.start(trio.serve_tcp, _silent, 0)
    port = listeners[0].socket.getsockname()[1]
    bench = SqlBench.of(f"postgresql://a@127.0.0.1:{port}/x")
    async with bench.connections:
        short = {"timeout_ms": {"total": 100}}
        _, told = failure(await bench.call("SELECT 1 AS a", execution_config=short))
        assert (told["stage"], told["sub"]) == ("adapter_execution", "timeout")


# -- settings --------------------------------------------------------------------------


def test_the_settings_make_a_connection(tmp_path):
    (tmp_path / "password").write_text("canary-secret\n")
    section = {
        "kind": "sql",
        "address": "postgresql://app@db.example/crm",
        "secret_file": "password",
        "ca_file": "ca.pem",
    }
    values = {"catalog": {"registry": "r"}, "connections": {"db": section}}
    (made,) = make_connections(parse_settings(values).connections, tmp_path)
    assert made.password.reveal() == "canary-secret"
    assert made.ca_file == str(tmp_path / "ca.pem")
    assert "canary" not in repr(made)
    assert made.mask("canary-secret") == "***"


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("postgresql://a:canary@h/x", "a password stands in secret_env or secret_file"),
        ("postgresql://h/x?password=canary", "a password stands in"),
        ("postgresql://h/x?nonsense=canary", "is no PostgreSQL URL"),
    ],
)
def test_an_address_that_cannot_be_is_refused_without_repeating_it(address, told):
    with pytest.raises(ConfigurationError, match=told) as caught:
        SqlConnection(name="db", address=address)
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "mode"),
    [
        ("postgresql://db.example/x", "verify-full"),
        ("postgresql://db.example/x?sslmode=require", "require"),
        ("postgresql://127.0.0.1/x", None),
        ("postgresql:///x?host=/run/pg", None),
    ],
)
def test_beyond_this_machine_the_certificate_is_checked(address, mode):
    parameters = with_defaults(parameters_of("r", address), connect_timeout=1)
    assert parameters.get("sslmode") == mode
