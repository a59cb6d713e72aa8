"""Statements: parameters by name, exactly one of them, and none that leaves its transaction."""

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_trio.catalog.operation import OperationError
from mcp_trio.runtime.adapters.sql_statement import POSTGRES, SQLITE, read_statement


@pytest.mark.parametrize(
    ("dialect", "text", "made", "names"),
    [
        (SQLITE, "SELECT :a, :b, :a", "SELECT :a, :b, :a", ("a", "b")),
        (POSTGRES, "SELECT :a, :b, :a", "SELECT $1, $2, $1", ("a", "b")),
        (POSTGRES, "SELECT :a::text", "SELECT $1::text", ("a",)),
        (POSTGRES, "SELECT x[1:2], '%' LIKE :p", "SELECT x[1:2], '%' LIKE $1", ("p",)),
        (POSTGRES, "SELECT d ? 'k', d @> :j", "SELECT d ? 'k', d @> $1", ("j",)),
        (POSTGRES, "SELECT f(x := :x)", "SELECT f(x := $1)", ("x",)),
        (SQLITE, "SELECT ':no', \":no\", `:no`, [:no], :yes", None, ("yes",)),
        (SQLITE, "SELECT 'it''s :no' -- :no; DROP\n, :yes", None, ("yes",)),
        (SQLITE, "SELECT 1 /* :no /* ; */ + :yes", None, ("yes",)),
        (POSTGRES, "SELECT 1 /* :no /* ; */ :no */ + :yes", None, ("yes",)),
        (POSTGRES, r"SELECT E'\':no', '\', :yes", None, ("yes",)),
        (POSTGRES, "SELECT $$:no ; $x$$, $t$ $$ :no $t$, :yes", None, ("yes",)),
        (POSTGRES, "SELECT a$b, :yes", None, ("yes",)),
        (SQLITE, "SELECT 1;\n -- the end\n ; ", None, ()),
        (SQLITE, "/* why */ with x AS (SELECT 1) SELECT * FROM x", None, ()),
        (POSTGRES, "(SELECT 1) UNION (SELECT :n)", None, ("n",)),
    ],
)
def test_parameters_are_found_where_they_are_and_nowhere_else(dialect, text, made, names):
    found = read_statement(text, dialect, write=False)
    assert found.names == names
    if made is not None:
        assert found.text == made


@pytest.mark.parametrize("dialect", [SQLITE, POSTGRES])
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is empty"),
        (" -- only this", "is empty"),
        ("SELECT 1; SELECT 2", "exactly one statement"),
        ("SELECT 1;;SELECT 2", "exactly one statement"),
        ("SELECT $1", "written as :name"),
        ("SELECT 'open", "is not closed"),
        ('SELECT "open', "is not closed"),
        ("SELECT 1 /* open", "is not closed"),
        ("SELECT '\x00'", "none of them NUL"),
        ("SELECT " + "1," * 60_000 + "1", "at most"),
        ("SELECT " + ",".join(f":p{n}" for n in range(1001)), "more than 1000 parameters"),
        ("'SELECT 1'", "must begin with a word"),
        (":name", "must begin with a word"),
        ("COMMIT", "must begin with one of"),
        ("BEGIN", "must begin with one of"),
        ("PRAGMA query_only = 0", "must begin with one of"),
        ("SET TRANSACTION READ WRITE", "must begin with one of"),
        ("ATTACH 'x' AS y", "must begin with one of"),
        ("COPY t TO PROGRAM 'sh'", "must begin with one of"),
        ("DO 'BEGIN END'", "must begin with one of"),
        ("DROP TABLE t", "must begin with one of"),
        ("DELETE FROM t", "needs access 'write'"),
        ("/* */ insert INTO t VALUES (1)", "needs access 'write'"),
    ],
)
def test_what_is_not_one_plain_statement_is_refused(dialect, text, told):
    with pytest.raises(OperationError, match=told):
        read_statement(text, dialect, write=False)


@pytest.mark.parametrize("text", ["SELECT ?", "SELECT ?1", "SELECT @a", "SELECT $a", "SELECT :1"])
def test_sqlite_has_many_ways_to_write_a_parameter_and_one_is_taken(text):
    with pytest.raises(OperationError, match="written as :name"):
        read_statement(text, SQLITE, write=False)


@pytest.mark.parametrize(
    ("text", "gives"),
    [
        ("SELECT 1", True),
        ("INSERT INTO t VALUES (1) RETURNING id", True),
        ("INSERT INTO t VALUES ('RETURNING')", False),
        ("UPDATE t SET a = 1 -- RETURNING", False),
    ],
)
def test_a_statement_that_surely_gives_rows_is_known(text, gives):
    assert read_statement(text, POSTGRES, write=True).gives_rows is gives


PIECES = st.sampled_from(
    [
        " ",
        "\n",
        "'",
        '"',
        "`",
        "[",
        "]",
        "$",
        "$$",
        ":a",
        ":b",
        ";",
        "--",
        "/*",
        "*/",
        "1",
        ",",
        "x",
    ]
)


@given(st.lists(PIECES, max_size=30).map("".join))
def test_sqlite_itself_sees_the_same_parameters_and_no_second_statement(text):
    try:
        found = read_statement("SELECT " + text, SQLITE, write=False)
    except OperationError:
        return
    seen = []

    def note(cursor, statement, _values):
        seen.append((statement, cursor.bindings_names))
        return True

    cursor = apsw.Connection(":memory:").cursor()
    cursor.exec_trace = note
    try:
        cursor.execute(found.text, dict.fromkeys(found.names))
    except apsw.SQLError:
        return
    ((_, names),) = seen
    assert names == found.names


@given(st.lists(PIECES, max_size=30).map("".join))
def test_reading_fails_in_no_other_way(text):
    try:
        found = read_statement("SELECT " + text, POSTGRES, write=False)
    except OperationError:
        return
    assert all(f":{name}" in text for name in found.names)
