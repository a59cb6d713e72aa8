"""SQL operations on SQLite: parameters, transactions, limits, faults and cancellation."""

from __future__ import annotations

import json
import threading
import tomllib

import apsw
import pytest
import trio

from mcp_trio.catalog.operation import OperationError, parse
from mcp_trio.config import make_connections, parse_settings
from mcp_trio.errors import ConfigurationError
from mcp_trio.runtime.compiler import Compiler
from mcp_trio.runtime.connections import Connections
from mcp_trio.runtime.sql_connection import SqlConnection
from mcp_trio.runtime.stages import WARNING_KEY
from mcp_trio.secrets import Secret
from tests.programs import ROOT
from tests.runtime.conftest import make_context
from tests.runtime.sql import SqlBench

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
FEW = (
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < :most) SELECT i FROM n"
)


@pytest.fixture
def path(tmp_path):
    made = tmp_path / "app.sqlite"
    database = apsw.Connection(str(made))
    database.execute(
        "CREATE TABLE leads (id INTEGER PRIMARY KEY, email TEXT UNIQUE, score REAL, raw BLOB);"
        "INSERT INTO leads VALUES (1, 'ann@x', 1.5, x'00ff'), (2, 'bob@x', NULL, NULL)"
    )
    database.close()
    return made


@pytest.fixture
async def db(path):
    bench = SqlBench.of(str(path))
    async with bench.connections:
        yield bench


def emails(path):
    database = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    found = [email for (email,) in database.execute("SELECT email FROM leads ORDER BY id")]
    database.close()
    return found


# -- results ---------------------------------------------------------------------------


async def test_rows_come_as_objects_and_parameters_by_name(db):
    found = await db.rows(
        "SELECT id, email, score, raw FROM leads WHERE email = :email", given={"email": "ann@x"}
    )
    assert found == [{"id": 1, "email": "ann@x", "score": 1.5, "raw": "AP8="}]


async def test_mappings_see_rows_columns_and_their_number(db):
    shown = {"result": {"n": "=row_count", "names": "=columns", "mail": "=rows[].email"}}
    result = await db.call(
        "SELECT email, id FROM leads WHERE id < :below ORDER BY id",
        input_mapping={"params": {"below": {"expr": "args.n", "as": "integer"}}},
        output_mapping=shown,
        given={"n": "3"},
    )
    assert result.structured_content == {
        "n": 2,
        "names": ["email", "id"],
        "mail": ["ann@x", "bob@x"],
    }


async def test_columns_are_known_where_there_is_no_row(db):
    result = await db.call(
        "SELECT email FROM leads WHERE 0", output_mapping={"result": {"names": "=columns"}}
    )
    assert result.structured_content == {"names": ["email"]}


@pytest.mark.parametrize(
    "value", ["x' OR 1=1 --", "%", ":email", 2**53 + 1, -1.5, None, True, "ü\n'\"\\"]
)
async def test_a_value_stays_a_value(db, value):
    (row,) = await db.rows(
        "SELECT :email AS said, count(*) AS n FROM leads", given={"email": value}
    )
    assert row == {"said": value, "n": 2}
    assert await db.rows("SELECT id FROM leads WHERE email = :email", given={"email": value}) == []


async def test_arrays_and_objects_are_json_and_what_is_absent_is_null(db):
    statement = (
        "SELECT count(*) AS n, :more AS more FROM leads "
        "WHERE id IN (SELECT value FROM json_each(:ids))"
    )
    (row,) = await db.rows(statement, given={"ids": [1, 2, 7]})
    assert row == {"n": 2, "more": None}
    (row,) = await db.rows(statement, given={"ids": [], "more": {"a": [1]}})
    assert row == {"n": 0, "more": '{"a":[1]}'}


async def test_what_json_has_no_number_for_is_text(db):
    assert await db.rows("SELECT 9e999 AS a, -9e999 AS b") == [{"a": "Infinity", "b": "-Infinity"}]


# -- transactions ----------------------------------------------------------------------


async def test_a_change_is_committed_and_tells_how_many(db, path):
    insert = "INSERT INTO leads (email) VALUES (:email)"
    result = await db.call(insert, write=True, given={"email": "cy@x"}, output_mapping={})
    assert result.structured_content == {"row_count": 1}
    assert emails(path) == ["ann@x", "bob@x", "cy@x"]
    returned = await db.rows("UPDATE leads SET score = 3 RETURNING id, score", write=True)
    assert sorted(row["id"] for row in returned) == [1, 2, 3]


async def test_reading_cannot_write_whatever_the_statement_does(db, path, failure):
    sneaky = "WITH x AS (SELECT 1) DELETE FROM leads"
    _, told = failure(await db.call(sneaky))
    assert (told["stage"], told["code"]) == ("external_service", "SQLITE_READONLY")
    assert emails(path) == ["ann@x", "bob@x"]


async def test_a_change_that_fails_half_way_is_rolled_back(db, path, failure):
    twice = "INSERT INTO leads (email) VALUES ('new@x'), ('ann@x')"
    text, told = failure(await db.call(twice, write=True))
    assert (told["stage"], told["code"]) == ("external_service", "SQLITE_CONSTRAINT_UNIQUE")
    assert "UNIQUE constraint failed: leads.email" in text
    assert told["retryable"] is False
    assert emails(path) == ["ann@x", "bob@x"]


async def test_a_change_that_gives_too_much_is_rolled_back_or_cut(db, path, failure):
    many = "INSERT INTO leads (email) VALUES ('c'), ('d'), ('e') RETURNING email"
    limits = {"limits": {"items": 2}}
    _, told = failure(await db.call(many, write=True, execution_config=limits))
    assert told["sub"] == "response_items"
    assert len(emails(path)) == 2
    limits["limits"]["on_exceed"] = "truncate"
    assert len(await db.rows(many, write=True, execution_config=limits)) == 2
    assert len(emails(path)) == 5


async def test_cancelling_a_change_rolls_it_back_before_the_call_returns(db, path):
    slow = f"INSERT INTO leads (email) VALUES ('new@x'), (({ENDLESS}))"
    operation = db.compile(slow, write=True)
    await cancel_when_running(db, operation)
    # The lock is free again, so nothing is left of it.
    assert await db.rows("UPDATE leads SET score = 1 RETURNING id", write=True)
    assert emails(path) == ["ann@x", "bob@x"]


async def cancel_when_running(db, operation, given=None):
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(operation.call, make_context(), given or {})
            await until_running(db)
            nursery.cancel_scope.cancel()
        assert not db.pool._running


async def until_running(db):
    """Wait until a statement is with the driver."""
    while not ("db" in db.connections._resources and any(j._session for j in db.pool._running)):
        await trio.lowlevel.checkpoint()


async def test_two_writers_wait_for_each_other_within_their_time(db, path, failure):
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    short = {"timeout_ms": {"total": 150}}
    insert = "INSERT INTO leads (email) VALUES ('z')"
    _, told = failure(await db.call(insert, write=True, execution_config=short))
    assert (told["stage"], told["retryable"]) in [
        ("external_service", True),
        ("adapter_execution", False),
    ]
    # A reader is not held up.
    assert len(await db.rows("SELECT id FROM leads")) == 2
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: db.call(insert, write=True))
        await until_running(db)
        other.execute("ROLLBACK")
    assert emails(path)[-1] == "z"
    other.close()


# -- time, size ------------------------------------------------------------------------


async def test_a_deadline_ends_the_statement(db, failure):
    _, told = failure(await db.call(ENDLESS, execution_config={"timeout_ms": {"total": 100}}))
    assert (told["stage"], told["sub"], told["code"]) == ("adapter_execution", "timeout", "total")
    assert told["retryable"] is True
    assert not db.pool._running
    assert len(await db.rows("SELECT id FROM leads")) == 2


async def test_cancelling_ends_the_statement_and_the_session_is_good_again(db):
    await cancel_when_running(db, db.compile(ENDLESS))
    assert len(await db.rows("SELECT id FROM leads")) == 2
    assert db.pool.open == 1


async def test_more_rows_than_the_limit_are_an_error_or_cut(db, failure):
    text, told = failure(await db.call(FEW, given={"most": 1001}))
    assert (told["stage"], told["sub"]) == ("adapter_execution", "response_items")
    assert "more than 1000 rows" in text
    assert len(await db.rows(FEW, given={"most": 1000})) == 1000
    cut = {"limits": {"items": 3, "on_exceed": "truncate"}}
    result = await db.call(FEW, given={"most": 10**9}, execution_config=cut)
    assert result.structured_content["rows"] == [{"i": 1}, {"i": 2}, {"i": 3}]
    assert result.meta[WARNING_KEY]["truncated"] == [{"pointer": "", "of": None}]
    assert "Only the first 3 items are given" in result.content[-1].text
    whole = await db.call(FEW, given={"most": 3}, execution_config=cut)
    assert whole.meta is None


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT zeroblob(300000000) AS b",
        "SELECT printf('%*c', 900000, 'x') AS t, printf('%*c', 900000, 'x') AS u",
        FEW.replace("SELECT i FROM", "SELECT printf('%*c', 9000, 'x') AS i FROM"),
    ],
)
async def test_more_bytes_than_the_limit_are_an_error(db, failure, statement):
    _, told = failure(await db.call(statement, given={"most": 900}))
    assert (told["stage"], told["sub"]) == ("adapter_execution", "response_bytes")


async def test_parameters_that_are_too_large_or_impossible_never_reach_the_database(db, failure):
    statement = "SELECT :a AS a"
    limits = {"limits": {"request_bytes": 100}}
    text, told = failure(await db.call(statement, given={"a": "x" * 100}, execution_config=limits))
    assert told["stage"] == "mapping"
    assert "larger than 100 bytes" in text
    assert not db.connections._resources
    for value in (2**63, "\ud800"):
        _, told = failure(await db.call(statement, given={"a": value}))
        assert told["stage"] == "mapping"


# -- the five stages -------------------------------------------------------------------


async def test_schema_validation_on_both_sides(db, failure):
    schema = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
    statement = "SELECT email FROM leads WHERE id = :id"
    _, told = failure(await db.call(statement, input_schema=schema, given={"id": "1"}))
    assert (told["stage"], told["sub"]) == ("schema_validation", "input")
    result = {"type": "object", "properties": {"rows": {"maxItems": 0}}}
    _, told = failure(await db.call(statement, output_schema=result, given={"id": 1}))
    assert (told["stage"], told["sub"]) == ("schema_validation", "output")


async def test_mapping_on_both_sides(db, failure):
    needed = {"params": {"a": {"expr": "args.a", "required": True}}}
    _, told = failure(await db.call("SELECT :a AS a", input_mapping=needed))
    assert told["stage"] == "mapping"
    wrong = {"success_when": "=row_count"}
    _, told = failure(await db.call("SELECT 1 AS a", output_mapping=wrong))
    assert told["stage"] == "mapping"


async def test_a_statement_that_the_database_refuses_is_its_failure(db, failure):
    text, told = failure(await db.call("SELECT nowhere FROM leads"))
    assert (told["stage"], told["code"]) == ("external_service", "SQLITE_ERROR")
    assert "no such column: nowhere" in text
    said = {"error": {"message": "=join(' ', ['rows:', to_string(row_count)])", "code": "none"}}
    text, told = failure(await db.call("SELECT nowhere FROM leads", output_mapping=said))
    assert (told["code"], "rows: 0" in text) == ("none", True)


async def test_a_file_that_is_missing_or_no_database_is_the_adapters(tmp_path, failure):
    bench = SqlBench.of(str(tmp_path / "later.sqlite"))
    async with bench.connections:
        _, told = failure(await bench.call("SELECT 1 AS a"))
        assert (told["stage"], told["sub"]) == ("adapter_execution", "connect")
        assert told["code"] == "SQLITE_CANTOPEN"
        assert not (tmp_path / "later.sqlite").exists()
        (tmp_path / "later.sqlite").write_bytes(b"not a database, but long enough" * 100)
        _, told = failure(await bench.call("SELECT * FROM x"))
        assert (told["stage"], told["sub"]) == ("adapter_execution", "malformed_reply")
        (tmp_path / "later.sqlite").unlink()
        apsw.Connection(str(tmp_path / "later.sqlite")).execute("CREATE TABLE x (a)").close()
        assert await bench.rows("SELECT a FROM x") == []
        assert bench.pool.open == 1


async def test_text_that_is_no_utf_8_and_columns_that_are_one_are_told(db, failure):
    for statement in ("SELECT CAST(x'ff41' AS TEXT) AS t", "SELECT 1 AS a, 2 AS a"):
        _, told = failure(await db.call(statement))
        assert (told["stage"], told["sub"]) == ("adapter_execution", "malformed_reply")


async def test_after_the_connections_are_closed_it_is_shutdown(path, failure):
    bench = SqlBench.of(str(path))
    async with bench.connections:
        operation = bench.compile("SELECT 1 AS a")
    _, told = failure(await operation.call(make_context(), {}))
    assert (told["stage"], told["sub"]) == ("internal_runtime", "shutdown")


async def test_closing_the_connections_ends_what_is_running(path, failure):
    bench = SqlBench.of(str(path))
    told = []

    async def endless():
        told.append(failure(await bench.call(ENDLESS))[1])

    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            async with bench.connections:
                nursery.start_soon(endless)
                await until_running(bench)
                pool = bench.pool
    assert (told[0]["stage"], told[0]["sub"]) == ("internal_runtime", "shutdown")
    assert pool.open == 0


# -- the pool --------------------------------------------------------------------------


async def test_never_more_sessions_than_the_limit(path):
    bench = SqlBench.of(str(path), max_connections=2)
    threads = threading.active_count()
    async with bench.connections:
        async with trio.open_nursery() as nursery:
            for number in range(30):
                write = number % 3 == 0
                sql = "UPDATE leads SET score = 1" if write else "SELECT id FROM leads"
                nursery.start_soon(lambda s=sql, w=write: bench.call(s, write=w))
        assert bench.pool.open <= 2
        assert len(bench.pool._idle) == bench.pool.open
    assert bench.connections._resources == {}
    assert threading.active_count() <= threads + 4


async def test_a_call_that_waits_for_a_session_can_be_cancelled(path):
    bench = SqlBench.of(str(path), max_connections=1)
    with trio.fail_after(20):
        async with bench.connections, trio.open_nursery() as nursery:
            nursery.start_soon(bench.call, ENDLESS)
            await until_running(bench)
            with trio.move_on_after(0.05) as scope:
                await bench.call("SELECT 1 AS a")
            assert scope.cancelled_caught
            nursery.cancel_scope.cancel()
        assert bench.connections._resources == {}


async def test_the_example_of_the_documentation_runs(path):
    page = (ROOT / "docs" / "operations.md").read_text().split("## SQL")[1]
    view = json.loads(page.split("```json")[1].split("```")[0])
    settings = parse_settings(tomllib.loads(page.split("```toml")[1].split("```")[0]))
    connections = Connections(make_connections(settings.connections, path.parent))
    async with connections:
        operation = Compiler(connections).compile(parse(view))
        result = await operation.call(make_context(), {"domain": "x", "most": 1})
    assert result.structured_content == {"found": 1, "leads": [{"id": 1, "email": "ann@x"}]}


# -- at load ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"input_mapping": {"params": {"a": 1}}}, "misses 'b' of the statement"),
        ({"input_mapping": {"params": {"a": 1, "b": 2, "c": 3}}}, "the statement has no :c"),
        (
            {"input_mapping": {"query": {}}},
            r"input_mapping\.query: a sql operation has params only",
        ),
        ({"input_mapping": {"params": {"a": "=nowhere", "b": 1}}}, "there is no 'nowhere' here"),
        ({"input_schema": {"type": "object", "properties": {"a": {}}}}, r"args\.b is used but"),
        ({"execution_config": {"auth": "on_behalf_of"}}, "as the connection says"),
        ({"output_mapping": {"result": "=status"}}, "there is no 'status' here"),
    ],
)
def test_what_cannot_work_is_found_at_load(changes, told):
    bench = SqlBench.of("/nowhere.sqlite")
    with pytest.raises(OperationError, match=told):
        bench.compile("SELECT :a AS a, :b AS b", **changes)


def test_a_parameter_may_be_called_anything():
    bench = SqlBench.of("/nowhere.sqlite")
    plan = bench.compile("SELECT :expr AS a", input_mapping={"params": {"expr": "=args.x"}}).plan
    assert plan.reads == {("args", "x")}
    assert plan.idempotent
    assert not bench.compile("DELETE FROM leads", write=True).plan.idempotent


def test_the_settings_make_a_connection(tmp_path):
    section = {"kind": "sql", "address": "data/app.sqlite", "max_connections": 2}
    values = {"catalog": {"registry": "r"}, "connections": {"db": section}}
    (made,) = make_connections(parse_settings(values).connections, tmp_path)
    assert made == SqlConnection(
        name="db", address=str(tmp_path / "data/app.sqlite"), max_connections=2
    )


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"address": "mysql://h/db"}, "neither a file nor"),
        ({"address": "a.sqlite", "password": Secret("x")}, "neither password nor ca_file"),
        ({"address": "a.sqlite", "max_connections": 0}, "max_connections: must be"),
    ],
)
def test_a_connection_that_cannot_be_is_refused(options, told):
    with pytest.raises(ConfigurationError, match=told):
        SqlConnection(name="db", **options)
