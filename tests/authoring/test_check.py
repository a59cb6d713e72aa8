"""Checking: every fault at once, each with its line, its pointer, and what to do."""

from __future__ import annotations

import json

import pytest

from mcp_trio.authoring.checking import check
from mcp_trio.authoring.faults import AuthoringError
from mcp_trio.authoring.findings import path_of
from mcp_trio.authoring.publishing import publish as publish_operations
from mcp_trio.authoring.sources import read_source
from mcp_trio.catalog.operation import OperationError
from mcp_trio.catalog.registries.schema import create_registry, publish
from mcp_trio.runtime.compiler import Compiler
from mcp_trio.runtime.connections import Connections
from tests.authoring.views import FORMAT, make_view, static_view, write

BROKEN = """\
format: mcp-operations/1
operations:
  - operation_id: crm.get
    name: crm get
    protocol: rest
    target: {connection: crm, method: GET, path: "/a/{id}", zz: 1}
    input_schema:
      type: object
      properties: {id: {type: strin}}
    output_schema: {$ref: "http://evil.test/x"}
    input_mapping:
      path: {id: "=args.id"}
      query:
        a: "=args.zap"
        b: "=body.x"
      headers:
        Authorization: "=args.id"
        X.Y: "=foo("
    output_mapping:
      result: {a: {b: "=nope.x", c: "=nope.y"}}
      text: "=nope.z"
    execution_config:
      retry: {max_attempts: 30}
    tool_description: Get.
"""


def checked(path, config=None):
    return check(read_source(str(path)), config)


def faults(path, config=None):
    return [(each.line, each.pointer) for each in checked(path, config).faults]


def warnings(tmp_path, **changes):
    found = checked(write(tmp_path / "w.json", make_view(**changes)))
    assert found.faults == ()
    return {(each.pointer.removeprefix("/operations/0"), each.reason) for each in found.findings}


def test_every_fault_of_an_operation_is_told_in_one_run_with_its_line(tmp_path):
    path = tmp_path / "ops.yaml"
    path.write_text(BROKEN)
    at = "/operations/0"
    assert sorted(faults(path)) == [
        (4, f"{at}/name"),
        (6, f"{at}/target/zz"),
        (7, f"{at}/input_schema"),
        (10, f"{at}/output_schema"),
        (15, f"{at}/input_mapping/query/b"),
        (17, f"{at}/input_mapping/headers/Authorization"),
        (18, f"{at}/input_mapping/headers/X.Y"),
        (20, f"{at}/output_mapping/result/a/b"),
        (20, f"{at}/output_mapping/result/a/c"),
        (21, f"{at}/output_mapping/text"),
        (23, f"{at}/execution_config/retry/max_attempts"),
    ]


def test_every_finding_says_what_to_do_and_shows_no_fault_of_ours(tmp_path):
    path = tmp_path / "ops.yaml"
    path.write_text(BROKEN)
    for finding in checked(path).findings:
        assert finding.advice.endswith(".")
        assert finding.operation_id == "crm.get"
        first, second = finding.as_text().splitlines()
        assert first.startswith(f"{path}:{finding.line}: fault: {finding.pointer}: ")
        assert second.strip() == finding.advice
        assert finding.as_json()["line"] == finding.line


def test_arguments_that_nobody_can_give_are_all_told(tmp_path):
    view = make_view(
        input_mapping={"path": {"id": "=args.id"}, "query": {"a": "=args.a", "b": "=args.b"}}
    )
    reasons = [each.reason for each in checked(write(tmp_path / "x.json", view)).faults]
    assert [reason.split(" is used")[0] for reason in reasons] == ["args.a", "args.b"]


@pytest.mark.parametrize(
    "changes",
    [
        {"input_mapping": {"path": {}}},
        {"input_mapping": {"path": {"id": "=args.id", "other": "x"}}},
        {"input_mapping": {"path": {"id": "=foo("}}},
        {"input_mapping": {"path": {"id": "=args.id"}, "body": "=args.id"}},
        {"target": {"connection": "crm", "method": "GET", "path": "/../{id}"}},
        {"protocol": "soap"},
        {"output_schema": {"type": 5}},
        {"input_schema": {"type": "object", "properties": {"id": {"$ref": "#/nowhere"}}}},
        {"input_mapping": {"path": {"id": {"expr": "args.id", "as": "xml"}}}},
    ],
)
def test_what_the_server_would_refuse_is_a_fault_and_nothing_else_is(tmp_path, changes):
    found = checked(write(tmp_path / "x.json", make_view(**changes)))
    assert len(found.faults) == 1
    assert found.operations == ()


def test_check_and_the_server_judge_by_the_same_compiler(tmp_path):
    view = make_view(input_mapping={"path": {"id": "=foo("}})
    fault = checked(write(tmp_path / "x.json", view)).faults[0]
    from mcp_trio.catalog.operation import parse
    from mcp_trio.runtime.http_connection import HttpConnection

    connections = Connections([HttpConnection(name="crm", base_url="http://crm.test")])
    with pytest.raises(OperationError) as caught:
        Compiler(connections).compile(parse(view))
    assert fault.reason == caught.value.reason


def test_names_and_ids_that_two_claim_are_told_of_both_across_files(tmp_path):
    write(tmp_path / "a.json", make_view("one", name="same"), make_view("two"))
    write(tmp_path / "b.json", make_view("three", name="same"), make_view("two", name="other"))
    found = checked(tmp_path)
    told = {(each.source.rpartition("/")[2], each.pointer) for each in found.faults}
    assert told == {
        ("a.json", "/operations/0/name"),
        ("b.json", "/operations/0/name"),
        ("a.json", "/operations/1/operation_id"),
        ("b.json", "/operations/1/operation_id"),
    }
    assert found.operations == ()


@pytest.mark.parametrize(
    ("text", "pointers"),
    [
        ("[]", [""]),
        ("5", [""]),
        ('{"format": "other/1", "operations": []}', ["/format"]),
        ('{"operations": []}', ["/format"]),
        (json.dumps({"format": FORMAT}), ["/operations"]),
        (json.dumps({"format": FORMAT, "operations": {}, "draft": 1}), ["/draft", "/operations"]),
        (
            json.dumps({"format": FORMAT, "operations": [5, None]}),
            ["/operations/0", "/operations/1"],
        ),
    ],
)
def test_a_document_that_is_none_is_a_fault_too(tmp_path, text, pointers):
    path = tmp_path / "x.json"
    path.write_text(text)
    assert [pointer for _, pointer in faults(path)] == pointers


def test_yaml_that_is_called_json_is_refused_for_no_service_reads_it(tmp_path):
    path = tmp_path / "x.json"
    path.write_text(f"format: {FORMAT}\noperations: []\n")
    with pytest.raises(AuthoringError, match=r"x\.json: is not JSON"):
        checked(path)
    with pytest.raises(AuthoringError, match=r"x\.json: is not JSON"):
        publish_operations([], str(path))


def test_a_document_may_be_a_single_operation(tmp_path):
    path = tmp_path / "x.json"
    path.write_text(json.dumps(make_view()))
    assert [each.name for each in checked(path).operations] == ["crm_leads_get"]


def test_a_registry_is_checked_as_it_stands_there(tmp_path):
    path = tmp_path / "r.sqlite"
    create_registry(path)
    publish(path, make_view("good"), make_view("bad", input_mapping={"path": {"id": "=foo("}}))
    found = checked(path)
    assert [each.operation_id for each in found.operations] == ["good"]
    (fault,) = found.faults
    assert (fault.operation_id, fault.line, fault.pointer) == (
        "bad",
        None,
        "/input_mapping/path/id",
    )


def test_what_is_not_there_is_explained(tmp_path):
    for place in ("none.yaml", "none.sqlite"):
        with pytest.raises(AuthoringError, match="cannot read"):
            checked(tmp_path / place)
    with pytest.raises(AuthoringError, match=r"there is no \.json"):
        checked(tmp_path)


CONFIG = """
[catalog]
registry = "r.sqlite"
[connections.crm]
base_url = "https://crm.test"
[connections.crm.auth]
kind = "header"
header = "X-Key"
secret_env = "NOT_SET_ANYWHERE"
"""


def test_with_settings_their_connections_are_the_only_ones_and_no_secret_is_needed(tmp_path):
    config = tmp_path / "service.toml"
    config.write_text(CONFIG)
    good, bad = (
        make_view(),
        make_view("b", target={"connection": "cmr", "method": "GET", "path": "/{id}"}),
    )
    bad["input_mapping"]["query"] = {"q": "=foo("}
    own = make_view(
        "c", input_mapping={"path": {"id": "=args.id"}, "headers": {"x-key": "=args.id"}}
    )
    path = write(tmp_path / "x.json", good, bad, own)
    assert [pointer for _, pointer in faults(path, config)] == [
        "/operations/1/target/connection",
        "/operations/1/input_mapping/query/q",
        "/operations/2/input_mapping/headers/x-key",
    ]
    assert len(faults(path)) == 1
    config.write_text("[catalog")
    with pytest.raises(AuthoringError, match="is not TOML"):
        checked(path, config)


def test_a_view_too_deep_is_one_fault(tmp_path):
    deep = {}
    for _ in range(100):
        deep = {"a": deep}
    path = write(tmp_path / "x.json", make_view(output_mapping={"result": deep}))
    assert faults(path) == [(4, "/operations/0")]


# -- warnings ----------------------------------------------------------------------


def test_a_good_operation_has_no_warnings(tmp_path):
    assert warnings(tmp_path) == set()


@pytest.mark.parametrize(
    ("changes", "place", "reason"),
    [
        ({"name": "getLead"}, "/name", "is not in snake_case"),
        ({"name": "a" * 65}, "/name", "has 65 characters; some clients take 64"),
        ({"tool_description": " "}, "/tool_description", "is empty"),
        ({"tool_description": "x" * 2000}, "/tool_description", "has 2000 characters"),
        ({"input_mapping": {}}, "/input_mapping", "is empty, so arguments go where"),
        (
            {
                "input_schema": {
                    "type": "object",
                    "properties": {"id": {}, "n": {"enum": ["x" * 40_000]}},
                }
            },
            "/input_schema",
            "the schemas weigh",
        ),
        (
            {
                "input_schema": {
                    "type": "object",
                    "properties": {"id": {}, "u": {}},
                    "required": ["u"],
                }
            },
            "/input_schema/properties/u",
            "is required and never used by a mapping",
        ),
        (
            {"input_schema": {"type": "object", "properties": {"id": {}, "a[b]": {}}}},
            "/input_schema/properties/a[b]",
            "some clients take only letters",
        ),
        (
            {"input_schema": {"type": "object", "properties": {"id": {}}, "oneOf": [{}]}},
            "/input_schema/oneOf",
            "some clients refuse oneOf",
        ),
        (
            {
                "output_schema": {"type": "object", "properties": {"a": {}}, "required": ["a"]},
                "output_mapping": {"result": {"b": "=body"}},
            },
            "/output_mapping/result/b",
            "makes 'b', which output_schema does not name",
        ),
        (
            {
                "output_schema": {"type": "object", "properties": {"a": {}}, "required": ["a"]},
                "output_mapping": {"result": {}},
            },
            "/output_mapping/result",
            "never makes 'a', which output_schema requires",
        ),
        (
            {
                "target": {"connection": "crm", "method": "POST", "path": "/{id}"},
                "execution_config": {"retry": {"max_attempts": 3}},
            },
            "/execution_config/retry",
            "has no effect",
        ),
        (
            {
                "target": {"connection": "crm", "method": "DELETE", "path": "/{id}"},
                "tool_description": {"text": "x", "annotations": {"readOnlyHint": True}},
            },
            "/tool_description/annotations/readOnlyHint",
            "says read-only, and the method is DELETE",
        ),
        (
            {
                "target": {"connection": "crm", "method": "DELETE", "path": "/{id}"},
                "tool_description": {"text": "x", "annotations": {"destructiveHint": False}},
            },
            "/tool_description/annotations/destructiveHint",
            "says that nothing is destroyed",
        ),
        (
            {
                "input_mapping": {
                    "path": {"id": "=args.id"},
                    "query": {"t": "sk_live_0123456789abc"},
                }
            },
            "/input_mapping/query/t",
            "looks like a secret",
        ),
    ],
)
def test_what_looks_unwise_is_a_warning_at_its_place(tmp_path, changes, place, reason):
    found = warnings(tmp_path, **changes)
    assert any(where == place and said.startswith(reason) for where, said in found), found


def test_a_secret_that_is_found_is_not_repeated(tmp_path):
    secret = "ghp_0123456789abcdefghijABCDEFGHIJ"
    view = make_view(input_mapping={"path": {"id": "=args.id"}, "query": {"t": secret}})
    for finding in checked(write(tmp_path / "x.json", view)).findings:
        assert secret not in finding.as_text()


def test_arguments_that_are_handed_over_whole_count_as_used(tmp_path):
    assert (
        warnings(
            tmp_path,
            target={"connection": "crm", "method": "POST", "path": "/x"},
            input_mapping={"body": "=args"},
        )
        == set()
    )


def test_arguments_that_only_the_output_reads_count_as_used(tmp_path):
    path = write(
        tmp_path / "x.json",
        make_view(
            input_schema={"type": "object", "properties": {"id": {}, "lang": {}}},
            output_mapping={"text": {"expr": "args.lang"}},
        ),
    )
    assert checked(path).findings == ()


def test_static_operations_are_checked_like_any_other(tmp_path):
    path = write(tmp_path / "x.json", static_view(), static_view("b", None))
    assert [each.pointer for each in checked(path).faults] == [
        "/operations/1/output_mapping/result"
    ]


@pytest.mark.parametrize(
    ("place", "path"),
    [
        ("", ()),
        ("a", ("a",)),
        ("a.b", ("a.b",)),
        ("c.d[1].e.f", ("c", "d", 1, "e.f")),
        ("c.d[9]", ("c", "d", 9)),
        ("c.zz", ("c",)),
        ("zz.y", ()),
    ],
)
def test_places_are_found_although_keys_may_hold_dots(place, path):
    view = {"a": 1, "a.b": 2, "c": {"d": [0, {"e": {}, "e.f": 5}]}}
    assert path_of(view, place) == path


def test_operations_of_every_kind_can_be_checked_without_settings(tmp_path):
    path = write(
        tmp_path / "x.json",
        make_view(
            "m",
            protocol="mcp",
            target={"connection": "other", "tool": "t"},
            input_schema={"type": "object"},
            input_mapping={},
        ),
        make_view(
            "g",
            protocol="graphql",
            target={"connection": "api", "document": "query A($id: ID!) { a(id: $id) }"},
            input_mapping={"variables": {"id": "=args.id"}},
        ),
        sql_view("s", "SELECT 1 WHERE :id = 1"),
        static_view("st"),
    )
    assert checked(path).faults == ()


def sql_view(operation_id, statement):
    return make_view(
        operation_id,
        protocol="sql",
        target={"connection": "db", "statement": statement, "access": "read"},
        input_mapping={"params": {"id": "=args.id"}},
    )


def test_without_settings_a_statement_may_be_for_either_database(tmp_path):
    path = write(
        tmp_path / "x.json",
        sql_view("a", "SELECT [odd name] FROM t WHERE id = :id"),
        sql_view("b", "SELECT $$:no$$, id::text FROM t WHERE id = :id"),
        sql_view("c", "SELECT [odd name] FROM t WHERE id = :id"),
    )
    assert checked(path).faults == ()
    path = write(tmp_path / "y.json", sql_view("a", "SELECT 1; DROP TABLE t"))
    assert [pointer for _, pointer in faults(path)][:1] == ["/operations/0/target/statement"]


def test_a_text_that_lacks_the_sign_of_an_expression_is_warned_of(tmp_path):
    found = warnings(
        tmp_path,
        input_mapping={
            "path": {"id": "=args.id"},
            "query": {"q": "args.id", "s": "args", "t": "a body.x"},
        },
        output_mapping={
            "result": {"n": "body.items[0].name", "w": "body.", "x": {"expr": "body.x"}},
            "content": [{"kind": "text", "text": "body.text"}],
        },
    )
    assert {place for place, reason in found if "reads like an expression" in reason} == {
        "/input_mapping/query/q",
        "/output_mapping/result/n",
        "/output_mapping/content/0/text",
    }


@pytest.mark.parametrize(
    ("changes", "place", "reason", "advice"),
    [
        ({"protocol": "soap"}, "/protocol", "soap is not available", "Mend the name"),
        (
            {"output_mapping": {"success_when": "=status == 200"}},
            "/output_mapping/success_when",
            "not a JMESPath expression",
            "status == `200`",
        ),
        (
            {"protocol": "static", "target": {"path": "/"}, "output_mapping": {"result": 1}},
            "/target/path",
            "there are none here",
            "Remove the key",
        ),
    ],
)
def test_a_common_mistake_is_told_where_it_is_and_with_what_to_do(
    tmp_path, changes, place, reason, advice
):
    first = checked(write(tmp_path / "w.json", make_view(**changes))).faults[0]
    assert first.pointer == f"/operations/0{place}"
    assert reason in first.reason
    assert advice in first.advice
