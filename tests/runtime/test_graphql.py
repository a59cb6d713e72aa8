"""The graphql adapter: documents judged when they are loaded, and every way a call can end."""

from __future__ import annotations

import json
import sys

import pytest
import trio

from mcp_trio.catalog.operation import OperationError, parse
from mcp_trio.runtime.http_connection import Auth
from mcp_trio.secrets import Secret

QUERY = "query Lead($id: ID!, $n: Int = 5) { lead(id: $id) { name notes(first: $n) { text } } }"
MUTATION = "mutation Rename($id: ID!) { rename(id: $id) { id } }"
SDL = """
scalar DateTime
type Query { lead(id: ID!, since: DateTime): Lead }
type Mutation { rename(id: ID!): Lead }
type Subscription { leads: Lead }
type Lead { id: ID! name: String seen: DateTime notes(first: Int): [Note!] }
type Note { text: String }
"""


@pytest.fixture
def gql(view):
    """A view of a graphql operation; keywords change the target, others the view."""

    def make(document: str = QUERY, *, target=None, **changes):
        return {
            "protocol": "graphql",
            "target": {"connection": "crm", "document": document, **(target or {})},
            "input_mapping": {},
            **changes,
        }

    return make


async def test_variables_go_by_name_and_data_is_the_result(bench, upstream, gql):
    upstream.says({"data": {"lead": {"name": "Ada"}}})
    result = await bench.call({"id": "7", "n": 2}, **gql())
    assert result.structured_content == {"lead": {"name": "Ada"}}
    seen = upstream.last
    assert (seen.method, seen.target) == ("POST", "/")
    assert seen.json() == {
        "query": QUERY,
        "operationName": "Lead",
        "variables": {"id": "7", "n": 2},
    }
    assert seen.header("content-type") == "application/json"
    assert seen.header("accept") == ("application/graphql-response+json, application/json;q=0.9")
    assert seen.header("accept-encoding") == "identity"


async def test_path_prefix_headers_and_mapped_variables(upstream, make_bench, gql):
    bench = make_bench(upstream.url + "/api", auth=Auth(kind="bearer", secret=Secret("s3cret")))
    upstream.says({"data": {"a": 1}})
    async with bench.connections:
        await bench.call(
            {"q": "x"},
            **gql(
                target={"path": "/graphql"},
                input_mapping={
                    "variables": {"id": "=args.q", "n": "=args.n"},
                    "headers": {"X-Tag": "=args.q"},
                },
                execution_config={"idempotency_key_header": "Idempotency-Key"},
            ),
        )
    seen = upstream.last
    assert seen.target == "/api/graphql"
    assert seen.json()["variables"] == {"id": "x"}  # an absent value leaves the default alone
    assert (seen.header("x-tag"), seen.header("authorization")) == ("x", "Bearer s3cret")
    assert len(seen.header("idempotency-key")) == 36


async def test_an_argument_cannot_change_what_is_asked_for(bench, upstream, gql):
    upstream.says({"data": {}})
    evil = '") { id } } mutation Drop { drop(all: true) } #'
    await bench.call({"id": evil}, **gql())
    assert upstream.last.json()["query"] == QUERY
    assert upstream.last.json()["variables"]["id"] == evil


async def test_custom_scalars_pass_in_both_directions(bench, upstream, gql):
    document = "query Q($t: DateTime!, $big: Long, $any: JSON) { seen(t: $t, b: $big, j: $any) }"
    huge = 2**63
    upstream.says({"data": {"seen": {"at": "2026-01-01T00:00:00Z", "n": huge}}})
    arguments = {"t": "2026-01-01T00:00:00Z", "big": huge, "any": {"a": [None, 1.5]}}
    schema = {"type": "object", "properties": {key: {} for key in arguments}}
    result = await bench.call(arguments, **gql(document, input_schema=schema))
    assert upstream.last.json()["variables"] == arguments
    assert result.structured_content == {"seen": {"at": "2026-01-01T00:00:00Z", "n": huge}}


async def test_one_operation_of_several_is_chosen_by_name(bench, upstream, gql):
    upstream.says({"data": {"rename": None}})
    await bench.call({"id": "1"}, **gql(QUERY + MUTATION, target={"operation_name": "Rename"}))
    assert upstream.last.json()["operationName"] == "Rename"
    document = "{ me { id } }"
    await bench.call({}, **gql(document))
    assert upstream.last.json() == {"query": document}


BAD = [
    ("query {", {}, r"target\.document: line 1, column 8: Syntax Error"),
    ("query A { a } query B { b }", {}, "has 2 operations; target.operation_name must choose one"),
    ("fragment F on X { a }", {}, "Fragment 'F' is never used"),
    ("query A { a } { b }", {"operation_name": "A"}, "anonymous operation"),
    ("query A { a } query A { b }", {"operation_name": "A"}, "only one operation named 'A'"),
    ("query A { a }", {"operation_name": "B"}, r"target\.operation_name: is not in the document"),
    ("subscription S { a }", {}, "is a subscription"),
    ("query A { a(x: $x) }", {}, r"Variable '\$x' is not defined"),
    ("query A($x: Int) { a }", {}, r"Variable '\$x' is never used"),
    ("query A { ...F }", {}, "Unknown fragment 'F'"),
    ("query A { ...F } fragment F on X { ...F }", {}, "Cannot spread fragment 'F' within itself"),
    ("query A { a(x: 1, x: 2) }", {}, "only one argument named 'x'"),
    ("type A { a: Int }", {}, "definition is not executable"),
    ("{ a" + " { a" * 5000 + " }" * 5001, {}, r"target\.document"),
    ("{ " + "a " * 30_000 + "}", {}, "more than 20000 tokens"),
    ("#" + "x" * 100_000 + "\n{ a }", {}, "longer than 100000 characters"),
    ("query A { nothing }", {"schema": SDL}, "Cannot query field 'nothing' on type 'Query'"),
    ("query A($i: ID!) { lead(id: $i) { name(x: 1) } }", {"schema": SDL}, "Unknown argument 'x'"),
    ("query A($i: Int!) { lead(id: $i) { id } }", {"schema": SDL}, "used in position expecting"),
    ("query A { lead(id: 1) }", {"schema": SDL}, "must have a selection of subfields"),
    ("subscription S { leads { id } }", {"schema": SDL}, "is a subscription"),
    ("{ a }", {"schema": "type Query {"}, r"target\.schema: line 1"),
    ("{ a }", {"schema": "type Query { a: Missing }"}, r"target\.schema: .*Missing"),
    ("{ a }", {"schema": "type X { a: Int }"}, r"target\.schema: .*[Qq]uery"),
    ("{ a }", {"path": "/{id}"}, r"target\.path: a graphql operation has no"),
]


@pytest.mark.parametrize(("document", "target", "says"), BAD, ids=[says for *_, says in BAD])
def test_a_document_that_cannot_work_is_refused_when_it_is_loaded(
    make_bench, gql, document, target, says
):
    bench = make_bench("http://127.0.0.1:1")
    with pytest.raises(OperationError, match=says):
        bench.compile(**gql(document, target=target))


def test_a_sound_document_with_a_schema_is_taken(make_bench, gql):
    bench = make_bench("http://127.0.0.1:1")
    document = "query A($id: ID!, $t: DateTime) { lead(id: $id, since: $t) { name seen } }"
    bench.compile(**gql(document, target={"schema": SDL}))


MAPPINGS = [
    ({"variables": {"id": "1", "x": "1"}}, r"input_mapping\.variables: 'x' is not declared"),
    ({"variables": {"n": 1}}, r"the required variable 'id' is not mapped"),
    ({"variables": {"expr": "args"}}, "must be an object of names"),
    ({"variables": {"id": "=args.nobody"}}, r"args\.nobody is used but is not in input_schema"),
    ({"variables": {"id": "=status"}}, "there is no 'status' here"),
    ({"query": {"id": "1"}}, r"input_mapping\.query: does not belong to a graphql operation"),
    ({"variables": {"id": "1"}, "headers": {"Host": "x"}}, "not for an operation to set"),
    ({"variables": {"id": "1"}, "headers": {"expr": "args"}}, "must be an object of names"),
]


@pytest.mark.parametrize(("mapping", "says"), MAPPINGS, ids=[says for _, says in MAPPINGS])
def test_variables_and_their_declarations_must_fit(make_bench, gql, mapping, says):
    bench = make_bench("http://127.0.0.1:1")
    with pytest.raises(OperationError, match=says):
        bench.compile(**gql(input_mapping=mapping))


def test_a_required_variable_that_no_argument_gives_is_found_too(make_bench, gql):
    bench = make_bench("http://127.0.0.1:1")
    with pytest.raises(OperationError, match="required variable 'id' is not mapped"):
        bench.compile(**gql(input_schema={"type": "object", "properties": {"n": {}}}))


def test_unknown_keys_of_the_target_are_refused(gql, view):
    with pytest.raises(OperationError, match="unknown key 'endpoint'"):
        parse(view(**gql(target={"endpoint": "/x"})))


def test_queries_may_be_sent_twice_and_mutations_not(make_bench, gql):
    bench = make_bench("http://127.0.0.1:1")
    assert bench.compile(**gql()).plan.idempotent is True
    assert bench.compile(**gql(MUTATION)).plan.idempotent is False


async def test_a_query_is_retried_and_a_mutation_is_not(
    bench, upstream, gql, failure, autojump_clock
):
    upstream.says({}, status=503)
    config = {"retry": {"max_attempts": 2, "backoff_ms": 1}}
    failure(await bench.call({"id": "1"}, **gql(execution_config=config)))
    assert len(upstream.seen) == 2
    failure(await bench.call({"id": "1"}, **gql(MUTATION, execution_config=config)))
    assert len(upstream.seen) == 3


async def test_errors_are_the_service_failing(bench, upstream, gql, failure):
    upstream.says(
        {
            "data": {"lead": None},
            "errors": [
                {
                    "message": "No <b>such</b>\n lead",
                    "path": ["lead"],
                    "extensions": {"code": "NOT_FOUND", "stacktrace": ["at f (/srv/x.js:1:1)"]},
                },
                {"message": "second"},
                {"message": "third"},
                {"message": "fourth"},
            ],
        }
    )
    text, told = failure(await bench.call({"id": "1"}, **gql()))
    assert text == (
        "[external_service] the upstream reported a failure: No such lead; second; third "
        "(and 1 more). Check the arguments against the message before calling again."
    )
    assert (told["sub"], told["code"], told["retryable"]) == ("reported", "NOT_FOUND", False)


async def test_partial_data_is_a_failure_unless_the_operation_says_otherwise(
    bench, upstream, gql, failure
):
    said = {"data": {"a": 1, "b": None}, "errors": [{"message": "b"}], "extensions": {"cost": 3}}
    upstream.says(said)
    assert failure(await bench.call({"id": "1"}, **gql()))[1]["stage"] == "external_service"
    result = await bench.call(
        {"id": "1"}, **gql(output_mapping={"success_when": "=data != `null`"})
    )
    assert result.structured_content == {"a": 1, "b": None}
    result = await bench.call(
        {"id": "1"},
        **gql(
            output_mapping={
                "success_when": "=status == `200`",
                "result": {
                    "a": "=data.a",
                    "missing": "=errors[].message",
                    "cost": "=extensions.cost",
                    "whole": "=body.data.a",
                    "kind": '=headers."content-type"',
                    "id": "=args.id",
                },
            }
        ),
    )
    assert result.structured_content == {
        "a": 1,
        "missing": ["b"],
        "cost": 3,
        "whole": 1,
        "kind": "application/json",
        "id": "1",
    }


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ({"data": None}, "it gave neither data nor errors"),
        ({"data": None, "errors": []}, "it gave neither data nor errors"),
        ({"data": None, "errors": [{"message": "no"}]}, "no"),
        ({"errors": [{"message": "no"}]}, "no"),
        ({"errors": ["plain"]}, "plain"),
    ],
)
async def test_no_data_is_a_failure(bench, upstream, gql, failure, said, text):
    upstream.says(said)
    told, _ = failure(await bench.call({"id": "1"}, **gql()))
    assert told.startswith(f"[external_service] the upstream reported a failure: {text}. ")


async def test_errors_without_a_message_still_say_that_it_failed(bench, upstream, gql, failure):
    upstream.says({"data": None, "errors": [{"extensions": {"code": {"a": 1}}}]})
    text, told = failure(await bench.call({"id": "1"}, **gql()))
    assert text.startswith("[external_service] the upstream reported a failure. ")
    assert told["code"] is None or told["code"] == told["sub"]


async def test_a_status_of_failure_counts_and_its_errors_are_told(bench, upstream, gql, failure):
    said = {"errors": [{"message": "slow down", "extensions": {"code": 17}}]}
    kind = "application/graphql-response+json"
    upstream.says(said, status=429, kind=kind, headers=[("retry-after", "3")])
    text, told = failure(await bench.call({"id": "1"}, **gql()))
    assert text == "[external_service] the upstream answered 429: slow down. Try again later."
    assert (told["code"], told["retryable"], told["retry_after_ms"]) == (17, True, 3000)
    assert told["upstream_status"] == 429
    upstream.says({"message": "bad gateway"}, status=502)
    text, told = failure(await bench.call({"id": "1"}, **gql()))
    assert text == "[external_service] the upstream answered 502: bad gateway. Try again later."


@pytest.mark.parametrize(
    ("body", "options"),
    [
        (b"[]", {}),
        (b"{}", {}),
        (b'{"errors": {}}', {}),
        (b'{"data": 3}', {}),
        (b'{"errors": "x", "data": {}}', {}),
        (b"{}", {"kind": "application/graphql-response+json", "status": 400}),
        (b"{", {}),
        (b"<html></html>", {"kind": "text/html"}),
        (b"ok", {"kind": "text/plain"}),
        (b"", {}),
    ],
)
async def test_what_is_no_answer_of_graphql_is_a_malformed_reply(
    bench, upstream, gql, failure, body, options
):
    upstream.says(body, **options)
    _, told = failure(await bench.call({"id": "1"}, **gql()))
    assert (told["stage"], told["sub"]) == ("adapter_execution", "malformed_reply")


async def test_each_stage_breaks_by_itself(bench, upstream, gql, failure):
    schema = {"type": "object", "properties": {"id": {"type": "string"}, "n": {}}}
    _, told = failure(await bench.call({"id": 1}, **gql(input_schema=schema)))
    assert (told["stage"], told["sub"]) == ("schema_validation", "input")
    for arguments in ({}, {"id": "\ud800"}):
        text, told = failure(await bench.call(arguments, **gql(input_schema=schema)))
        assert told["stage"] == "mapping"
        assert "input_mapping.variables" in text
    mapping = {"variables": {"id": "=args.id"}, "headers": {"x-tag": "=args.id"}}
    _, told = failure(await bench.call({"id": "a\r\nb: c"}, **gql(input_mapping=mapping)))
    assert told["stage"] == "mapping"
    small = {"limits": {"request_bytes": 10}}
    _, told = failure(await bench.call({"id": "1"}, **gql(execution_config=small)))
    assert told["stage"] == "mapping"
    assert upstream.seen == []
    upstream.says({"data": {"lead": {"name": None}}})
    answer = {"type": "object", "properties": {"lead": {"type": "string"}}}
    _, told = failure(await bench.call({"id": "1"}, **gql(output_schema=answer)))
    assert (told["stage"], told["sub"]) == ("schema_validation", "output")
    upstream.says({"data": {"x": "y" * 200}})
    small = {"limits": {"response_bytes": 100}}
    _, told = failure(await bench.call({"id": "1"}, **gql(execution_config=small)))
    assert (told["stage"], told["sub"]) == ("adapter_execution", "response_bytes")
    upstream.says(b"\x1f\x8b", headers=[("content-encoding", "gzip")])
    _, told = failure(await bench.call({"id": "1"}, **gql()))
    assert told["sub"] == "malformed_reply"


async def test_shutdown_is_told_as_our_own(make_bench, upstream, gql, failure):
    bench = make_bench(upstream.url)
    _, told = failure(await bench.call({"id": "1"}, **gql()))
    assert (told["stage"], told["sub"]) == ("internal_runtime", "shutdown")


async def test_deadline_and_cancel_close_the_socket(bench, upstream, gql, failure):
    upstream.handler = upstream.hang
    config = {"timeout_ms": {"total": 100}}
    _, told = failure(await bench.call({"id": "1"}, **gql(execution_config=config)))
    assert (told["sub"], told["code"], told["retryable"]) == ("timeout", "total", True)
    with trio.fail_after(5):
        await upstream.hung_up.wait()
    upstream.hung_up = trio.Event()
    upstream.asked = trio.Event()
    async with trio.open_nursery() as nursery:

        async def caller():
            await bench.call({"id": "1"}, **gql())

        nursery.start_soon(caller)
        await upstream.asked.wait()
        nursery.cancel_scope.cancel()
    with trio.fail_after(5):
        await upstream.hung_up.wait()


async def test_secrets_in_errors_are_masked(make_bench, upstream, gql, failure):
    bench = make_bench(upstream.url, auth=Auth(kind="bearer", secret=Secret("canary-77")))
    upstream.says({"errors": [{"message": "bad canary-77", "extensions": {"code": "canary-77"}}]})
    async with bench.connections:
        result = await bench.call({"id": "1"}, **gql())
    text, told = failure(result)
    assert "bad ***" in text
    assert "canary" not in json.dumps(told) + repr(result)


def test_without_the_extra_the_operation_says_what_to_install(make_bench, gql, monkeypatch):
    for name in [
        name for name in sys.modules if name.startswith("mcp_trio.runtime.adapters.graph")
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "graphql", None)
    bench = make_bench("http://127.0.0.1:1")
    with pytest.raises(OperationError, match=r"pip install 'mcp-trio\[graphql\]'"):
        bench.compile(**gql())
