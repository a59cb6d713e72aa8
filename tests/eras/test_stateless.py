"""The era without sessions: the ladder of refusals, in its order, and what a result carries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import pytest

from mcp_trio.eras.stateless import admit, era_for
from mcp_trio.errors import (
    HeaderMismatchError,
    InvalidParamsError,
    MCPError,
    MethodNotFoundError,
    VersionMismatchError,
)
from mcp_trio.jsonrpc.messages import Request
from mcp_trio.wire import (
    METHODS,
    REVISIONS,
    CallToolParams,
    CallToolResult,
    DiscoverResult,
    EmptyResult,
    ListToolsResult,
    ServerCapabilities,
)
from mcp_trio.wire.notices import LOG_LEVELS
from mcp_trio.wire.revisions import BY_DATE, HANDSHAKE
from tests.eras.facts import CURRENT, facts, meta, mirrored, modern

VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
INFO = "io.modelcontextprotocol/clientInfo"
LEVEL = "io.modelcontextprotocol/logLevel"
CALL = modern("tools/call", name="plain", arguments={})


def refused(request: Request, headers: Mapping[str, str] | None) -> MCPError:
    with pytest.raises(MCPError) as caught:
        admit(request, headers, facts())
    return caught.value


def without(*keys: str, method: str = "server/discover", **changes: Any) -> Request:
    kept = {key: value for key, value in meta(**changes).items() if key not in keys}
    return Request(1, method, {"_meta": kept})


# -- what is accepted ---------------------------------------------------------------------


@pytest.mark.parametrize("method", ["server/discover", "tools/list"])
def test_a_complete_request_is_admitted_with_and_without_headers(method: str) -> None:
    request = modern(method)
    for headers in (mirrored(request), None):
        admitted = admit(request, headers, facts())
        assert admitted.method.name == method
        assert admitted.era.revision.date == CURRENT


def test_a_call_arrives_typed() -> None:
    request = modern("tools/call", name="plain", arguments={"a": 1})
    admitted = admit(request, mirrored(request), facts())
    assert isinstance(admitted.params, CallToolParams)
    assert admitted.params.arguments == {"a": 1}
    assert admitted.client_info == {"name": "c", "version": "1"}
    assert admitted.client_capabilities == {}
    assert admitted.log_level() is None


@pytest.mark.parametrize("info", ["absent", None, "x", 5, []])
def test_a_client_that_does_not_say_who_it_is_is_served(info: object) -> None:
    request = without(INFO) if info == "absent" else without(**{INFO: info})
    assert admit(request, mirrored(request), facts()).client_info is None  # B10


def test_nothing_is_remembered_between_requests() -> None:
    first = without(**{CAPABILITIES: {"sampling": {}}, LEVEL: "debug"})
    admit(first, mirrored(first), facts())
    second = modern("server/discover")
    admitted = admit(second, mirrored(second), facts())
    assert admitted.client_capabilities == {}  # B9, V12
    assert admitted.log_level() is None
    assert era_for(REVISIONS[0]) is era_for(REVISIONS[0])


# -- the ladder, rung by rung -------------------------------------------------------------


def test_a_missing_version_header_is_a_mismatch() -> None:
    request = modern("server/discover")
    error = refused(request, mirrored(request, mcp_protocol_version=None))
    assert isinstance(error, HeaderMismatchError)  # N8


@pytest.mark.parametrize("header", ["2025-11-25", "", "2026-07-28, 2026-07-28", "v1"])
def test_a_version_header_that_differs_is_a_mismatch(header: str) -> None:
    request = modern("server/discover")
    error = refused(request, mirrored(request, mcp_protocol_version=header))
    assert isinstance(error, HeaderMismatchError)


def test_a_header_that_is_known_beside_a_body_that_is_not_is_a_mismatch() -> None:
    request = without(**{VERSION: "v999.0.0"})
    assert isinstance(refused(request, mirrored(request)), HeaderMismatchError)  # N8, check 11


@pytest.mark.parametrize("version", ["v999.0.0", "2099-01-01", "", *(r.date for r in HANDSHAKE)])
def test_an_unsupported_version_is_refused_with_the_list_of_ours(version: str) -> None:
    request = without(**{VERSION: version})
    for headers in (mirrored(request, mcp_protocol_version=version), None):
        error = refused(request, headers)
        assert isinstance(error, VersionMismatchError)  # V2
        assert error.data == {
            "supported": [revision.date for revision in REVISIONS],
            "requested": version,
        }


def test_a_known_version_that_is_switched_off_is_refused_too() -> None:
    request = modern("server/discover")
    with pytest.raises(VersionMismatchError):
        admit(request, mirrored(request), facts(revisions=HANDSHAKE))


@pytest.mark.parametrize(
    "params",
    [None, {}, {"_meta": None}, {"_meta": []}, {"_meta": "x"}, {"_meta": {}}],
    ids=str,
)
def test_a_missing_meta_is_invalid_params(params: dict[str, Any] | None) -> None:
    request = Request(1, "server/discover", params)
    for headers in (mirrored(request), None):
        assert isinstance(refused(request, headers), InvalidParamsError)  # B10


@pytest.mark.parametrize("key", [VERSION, CAPABILITIES])
@pytest.mark.parametrize("value", ["absent", None, 5, [], True])
def test_each_required_field_of_meta_is_required_and_named(key: str, value: object) -> None:
    request = without(key) if value == "absent" else without(**{key: value})
    error = refused(request, mirrored(request))
    assert isinstance(error, InvalidParamsError)
    assert key in error.message


@pytest.mark.parametrize(
    "method",
    ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe",
     "unknown/method", "notifications/cancelled", "notifications/message", "tools/List"],
)  # fmt: skip
def test_methods_of_the_other_era_and_unknown_ones_do_not_exist(method: str) -> None:
    request = modern(method)
    for headers in (mirrored(request), None):
        assert isinstance(refused(request, headers), MethodNotFoundError)  # N11, V6


def test_a_method_of_an_undeclared_capability_does_not_exist() -> None:
    bare = facts(capabilities=ServerCapabilities(logging={}))
    for method in ("tools/list", "tools/call"):
        request = modern(method)
        with pytest.raises(MethodNotFoundError):  # V4
            admit(request, mirrored(request), bare)


@pytest.mark.parametrize("header", [None, "", "tools/list", "TOOLS/CALL", "tools/call, tools/call"])
def test_the_method_header_has_to_be_the_method(header: str | None) -> None:
    error = refused(CALL, mirrored(CALL, mcp_method=header))
    assert isinstance(error, HeaderMismatchError)  # N9, N10
    assert "Mcp-Method" in error.message


@pytest.mark.parametrize(
    "header",
    [None, "", "other", "PLAIN", "=?base64?cGxhaW4?=", "=?base64?eA==?=", "pla\x00in", "é"],
)
def test_the_name_header_has_to_be_the_name(header: str | None) -> None:
    error = refused(CALL, mirrored(CALL, mcp_name=header))
    assert isinstance(error, HeaderMismatchError)
    assert "Mcp-Name" in error.message


@pytest.mark.parametrize("header", ["plain", "  plain", "plain\t ", "=?base64?cGxhaW4=?="])
def test_a_name_may_be_padded_or_encoded(header: str) -> None:
    admit(CALL, mirrored(CALL, mcp_name=header), facts())  # N15


def test_the_other_headers_may_be_padded_too() -> None:
    padded = mirrored(CALL, mcp_method=" tools/call ", mcp_protocol_version=f"\t{CURRENT} ")
    admit(CALL, padded, facts())


@pytest.mark.parametrize("name", ["werkzeug-ü", " edge ", "=?base64?x?=", "a\nb", ""])
def test_a_name_no_header_can_carry_comes_encoded(name: str) -> None:
    request = modern("tools/call", name=f"plain{name}")
    encoded = mirrored(request, mcp_name=None)
    assert isinstance(refused(request, encoded), HeaderMismatchError)


def test_a_name_that_is_no_string_is_a_fault_of_the_params() -> None:
    for name in (5, None, ["plain"], {}):
        request = modern("tools/call", name=name)
        assert isinstance(refused(request, mirrored(request)), InvalidParamsError)


def test_methods_without_a_name_need_no_name_header() -> None:
    request = modern("tools/list")
    admit(request, mirrored(request, mcp_name="anything"), facts())


@pytest.mark.parametrize(
    ("arguments", "headers", "fits"),
    [
        ({"region": "us"}, {"mcp-param-region": "us"}, True),
        ({"region": "us"}, {}, False),
        ({"region": "us"}, {"mcp-param-region": "eu"}, False),
        ({"region": None}, {}, True),
        ({}, {}, True),
        ({}, {"mcp-param-region": "us"}, False),
        ({"count": 42}, {"mcp-param-count": "42.0"}, True),
        ({"count": 42}, {"mcp-param-count": "43"}, False),
        ({"deep": {"flag": True}}, {"mcp-param-flag": "true"}, True),
        ({"deep": {"flag": True}}, {}, False),
        ({"region": "Hello"}, {"mcp-param-region": "=?base64?SGVsbG8=?="}, True),
        ({"region": "Hello"}, {"mcp-param-region": "=?base64?SGVsbG8?="}, False),
    ],
)
def test_mirrored_arguments_have_to_match(
    arguments: dict[str, Any], headers: dict[str, str], fits: bool
) -> None:
    request = modern("tools/call", name="annotated", arguments=arguments)
    sent = {**mirrored(request), **headers}
    if fits:
        admit(request, sent, facts())  # N16
    else:
        assert isinstance(refused(request, sent), HeaderMismatchError)
    admit(request, None, facts())  # a line has no headers


def test_arguments_that_are_no_object_are_a_fault_of_the_params() -> None:
    request = modern("tools/call", name="annotated", arguments=[1])
    assert isinstance(refused(request, mirrored(request)), InvalidParamsError)


@pytest.mark.parametrize("level", [*LOG_LEVELS, None])
def test_the_log_level_holds_for_its_own_request(level: str | None) -> None:
    request = without(**{LEVEL: level})
    assert admit(request, mirrored(request), facts()).log_level() == level  # X5


@pytest.mark.parametrize("level", ["verbose", "", 5, [], {}, True])
def test_a_bad_log_level_is_invalid_params(level: object) -> None:
    request = without(**{LEVEL: level})
    assert isinstance(refused(request, mirrored(request)), InvalidParamsError)  # G1


# -- the order of the rungs: every fault beside all later ones -----------------------------


Spoil = Callable[[dict[str, Any], dict[str, str]], None]


def spoil_header(_: dict[str, Any], headers: dict[str, str]) -> None:
    headers["mcp-protocol-version"] = "2025-06-18"


def spoil_meta(body: dict[str, Any], _: dict[str, str]) -> None:
    body["meta"].pop(CAPABILITIES)


def spoil_version(body: dict[str, Any], headers: dict[str, str]) -> None:
    body["meta"][VERSION] = headers["mcp-protocol-version"] = "v999"


def spoil_method(body: dict[str, Any], headers: dict[str, str]) -> None:
    body["method"] = headers["mcp-method"] = "unknown/method"


def spoil_mirror(_: dict[str, Any], headers: dict[str, str]) -> None:
    headers["mcp-method"] = "tools/list"


def spoil_params(body: dict[str, Any], _: dict[str, str]) -> None:
    body["arguments"] = 5


LADDER: list[tuple[Spoil, type[MCPError]]] = [
    (spoil_header, HeaderMismatchError),
    (spoil_meta, InvalidParamsError),
    (spoil_version, VersionMismatchError),
    (spoil_method, MethodNotFoundError),
    (spoil_mirror, HeaderMismatchError),
    (spoil_params, InvalidParamsError),
]


@pytest.mark.parametrize("rung", range(len(LADDER)))
def test_the_first_rung_that_breaks_decides(rung: int) -> None:
    body: dict[str, Any] = {"method": "tools/call", "meta": meta(), "arguments": {}}
    headers = {
        "mcp-protocol-version": CURRENT,
        "mcp-method": "tools/call",
        "mcp-name": "plain",
    }
    for spoil, _ in reversed(LADDER[rung:]):
        spoil(body, headers)
    request = Request(
        1,
        body["method"],
        {"_meta": body["meta"], "name": "plain", "arguments": body["arguments"]},
    )
    assert type(refused(request, headers)) is LADDER[rung][1]


# -- what a result carries (B6, K2, ME3) ---------------------------------------------------


ERA = era_for(BY_DATE[CURRENT])
SERVER = {"io.modelcontextprotocol/serverInfo": {"name": "s", "version": "1", "title": "S"}}


@pytest.mark.parametrize(
    ("method", "result", "fields"),
    [
        ("tools/call", CallToolResult(), {"content": []}),
        ("tools/list", ListToolsResult(tools=[]),
         {"tools": [], "ttlMs": 0, "cacheScope": "private"}),
        ("subscriptions/listen", EmptyResult(), {}),
    ],
)  # fmt: skip
def test_every_result_says_its_type_and_who_answers(
    method: str, result: object, fields: dict[str, Any]
) -> None:
    sealed = ERA.seal(METHODS[method], result, facts())
    assert sealed == {**fields, "resultType": "complete", "_meta": SERVER}


def test_the_meta_of_a_result_stays_beside_the_servers_name() -> None:
    sealed = ERA.seal(METHODS["tools/call"], CallToolResult(meta={"a": 1}), facts())
    assert sealed["_meta"] == {"a": 1, **SERVER}


def test_two_servers_in_one_process_keep_their_names() -> None:
    first = facts()
    second = attrs.evolve(first, info=attrs.evolve(first.info, name="other"))
    for known, name in ((first, "s"), (second, "other"), (first, "s")):
        sealed: Any = ERA.seal(METHODS["tools/call"], CallToolResult(), known)
        assert sealed["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == name


@pytest.mark.parametrize("value", [None, 0, [1], "x", {"a": 1}])
def test_structured_content_may_be_any_value(value: object) -> None:
    sealed = ERA.seal(METHODS["tools/call"], CallToolResult(structured_content=value), facts())
    assert sealed["structuredContent"] == value


def test_discover_says_what_the_refusal_of_a_version_says() -> None:
    answer = ERA.own("server/discover", facts())
    assert isinstance(answer, DiscoverResult)
    refusal: Any = refused(without(**{VERSION: "x"}), None).data
    assert answer.supported_versions == refusal["supported"]  # V3
    sealed = ERA.seal(METHODS["server/discover"], answer, facts())
    assert sealed["capabilities"] == {"tools": {}, "logging": {}}
    assert sealed["instructions"] == "Be kind."
    assert sealed["cacheScope"] == "public"
    assert isinstance(sealed["ttlMs"], int)
    assert sealed["ttlMs"] >= 0


def test_the_era_answers_nothing_else_by_itself() -> None:
    for method in ("tools/list", "initialize", "ping"):
        assert ERA.own(method, facts()) is None
