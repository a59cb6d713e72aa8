"""The era of sessions (LC): negotiation, order, gating, and what a result looks like."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_trio.engine.lifecycle import Stage
from mcp_trio.eras.handshake import HandshakeEra
from mcp_trio.errors import (
    InvalidParamsError,
    MCPError,
    MethodNotFoundError,
    NotInitializedError,
    ProtocolError,
    VersionMismatchError,
)
from mcp_trio.jsonrpc.messages import Notification, Request
from mcp_trio.wire import (
    METHODS,
    CallToolParams,
    CallToolResult,
    EmptyResult,
    InitializeResult,
    ListToolsResult,
    ServerCapabilities,
)
from mcp_trio.wire.notices import LOG_LEVELS
from mcp_trio.wire.revisions import BY_DATE, HANDSHAKE, STATELESS
from tests.eras.facts import facts, initialize, modern

LIST = Request(2, "tools/list")
READY = Notification("notifications/initialized")


def opened(version: str = "2025-11-25") -> HandshakeEra:
    era = HandshakeEra()
    era.admit(initialize(version), facts())
    return era


# -- negotiation (V1) ---------------------------------------------------------------------


@pytest.mark.parametrize("revision", HANDSHAKE, ids=str)
def test_a_known_version_is_answered_with_itself(revision: Any) -> None:
    era = opened(revision.date)
    assert era.revision is revision
    answer = era.own("initialize", facts())
    assert isinstance(answer, InitializeResult)
    assert answer.protocol_version == revision.date


@pytest.mark.parametrize(
    "version", ["2099-01-01", "1.0", "", "2025-11-25 ", "latest", "2026-07-28", "9" * 1000]
)
def test_any_other_version_is_answered_with_the_newest_that_has_a_handshake(version: str) -> None:
    era = opened(version)
    assert era.revision is HANDSHAKE[0]
    assert era.stage is Stage.OPENED


def test_a_version_the_server_was_told_not_to_speak_is_not_spoken() -> None:
    era = HandshakeEra()
    era.admit(initialize("2025-03-26"), facts(revisions=(BY_DATE["2025-06-18"],)))
    assert era.revision.date == "2025-06-18"


def test_a_server_without_a_handshake_names_what_it_speaks_instead() -> None:
    era = HandshakeEra()
    with pytest.raises(VersionMismatchError) as caught:
        era.admit(initialize(), facts(revisions=STATELESS))
    assert caught.value.data == {"supported": ["2026-07-28"], "requested": "2025-11-25"}  # V7
    assert era.stage is Stage.NEW


def test_what_the_client_says_of_itself_is_kept_as_it_came() -> None:
    era = HandshakeEra()
    said = {"name": "c", "version": "1", "vendor": [1]}
    can = {"roots": {"listChanged": True}, "vendor": {}}
    admitted = era.admit(initialize(clientInfo=said, capabilities=can), facts())
    assert (era.client_info, era.client_capabilities) == (said, can)
    assert (admitted.client_info, admitted.client_capabilities) == (said, can)


def test_the_answer_describes_the_server() -> None:
    era = opened()
    sealed = era.seal(METHODS["initialize"], era.own("initialize", facts()), facts())
    assert sealed == {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}, "logging": {}},
        "serverInfo": {"name": "s", "version": "1", "title": "S"},
        "instructions": "Be kind.",
    }


@pytest.mark.parametrize("revision", HANDSHAKE, ids=str)
def test_instructions_are_part_of_every_revision(revision: Any) -> None:
    era = opened(revision.date)
    sealed = era.seal(METHODS["initialize"], era.own("initialize", facts()), facts())
    assert sealed["instructions"] == "Be kind."


# -- order (LC1, LC2) ---------------------------------------------------------------------


@pytest.mark.parametrize("method", ["tools/list", "tools/call", "logging/setLevel", "unknown"])
def test_nothing_but_ping_comes_before_initialize(method: str) -> None:
    era = HandshakeEra()
    with pytest.raises(NotInitializedError):
        era.admit(Request(1, method, {}), facts())
    era.admit(Request(1, "ping"), facts())  # LC6
    assert era.stage is Stage.NEW


def test_a_call_right_behind_initialize_is_served() -> None:
    era = opened()
    assert era.admit(LIST, facts()).method.name == "tools/list"  # py#1675
    assert era.stage is Stage.OPENED
    era.notified(READY)
    assert era.stage is Stage.READY
    era.admit(LIST, facts())


def test_a_second_initialize_is_refused_and_changes_nothing() -> None:
    era = opened("2025-06-18")
    for _ in range(2):
        with pytest.raises(ProtocolError, match="already"):
            era.admit(initialize("2025-03-26"), facts())
        era.notified(READY)
    assert era.revision.date == "2025-06-18"


def test_initialized_too_early_is_ignored() -> None:
    era = HandshakeEra()
    era.notified(READY)
    assert era.stage is Stage.NEW


def test_initialized_twice_and_other_notifications_are_harmless() -> None:
    era = opened()
    for _ in range(2):
        era.notified(READY)
    era.notified(Notification("notifications/whatever", {}))
    assert era.stage is Stage.READY


@pytest.mark.parametrize(
    "changes",
    [
        {"protocolVersion": 5},
        {"protocolVersion": None},
        {"capabilities": []},
        {"capabilities": {"roots": True}},
        {"clientInfo": None},
        {"clientInfo": {"name": "c"}},
        {"clientInfo": {"name": "c", "version": 1}},
        {"_meta": []},
    ],
    ids=str,
)
def test_initialize_with_wrong_params_leaves_the_session_new(changes: dict[str, Any]) -> None:
    era = HandshakeEra()
    with pytest.raises(InvalidParamsError):
        era.admit(initialize(**changes), facts())
    assert (era.stage, era.client_info) == (Stage.NEW, None)
    era.admit(initialize(), facts())
    assert era.stage is Stage.OPENED


def test_initialize_without_params_is_refused() -> None:
    with pytest.raises(InvalidParamsError, match="protocolVersion"):
        HandshakeEra().admit(Request(1, "initialize"), facts())


# -- methods ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method",
    ["server/discover", "subscriptions/listen", "unknown", "", "TOOLS/LIST", "tools/list ",
     "notifications/initialized", "notifications/message", "sampling/createMessage"],
)  # fmt: skip
def test_methods_of_another_era_or_direction_do_not_exist(method: str) -> None:
    with pytest.raises(MethodNotFoundError):
        opened().admit(Request(2, method, {}), facts())


@pytest.mark.parametrize("method", ["tools/list", "tools/call", "logging/setLevel"])
def test_methods_of_an_undeclared_capability_do_not_exist(method: str) -> None:
    bare = facts(capabilities=ServerCapabilities(experimental={}))
    params = {"name": "t", "level": "info"}
    with pytest.raises(MethodNotFoundError):  # V4
        opened().admit(Request(2, method, params), bare)
    opened().admit(Request(2, method, params), facts())


def test_params_arrive_typed_and_meta_beside_them() -> None:
    params = {"name": "t", "arguments": {"a": 1}, "_meta": {"progressToken": "p", "x": 1}}
    admitted = opened().admit(Request(2, "tools/call", params), facts())
    assert isinstance(admitted.params, CallToolParams)
    assert (admitted.params.name, admitted.params.arguments) == ("t", {"a": 1})
    assert admitted.meta == {"progressToken": "p", "x": 1}
    assert admitted.progress_token == "p"


@pytest.mark.parametrize(
    ("token", "expected"),
    [(0, 0), ("", ""), (7, 7), ("7", "7"), (True, None), (1.5, None), (None, None), ([], None)],
)
def test_a_progress_token_is_an_integer_or_a_string(token: object, expected: object) -> None:
    request = Request(2, "tools/list", {"_meta": {"progressToken": token}})
    admitted = opened().admit(request, facts())
    assert admitted.progress_token == expected
    assert type(admitted.progress_token) is type(expected)


def test_the_session_speaks_its_own_revision_whatever_the_meta_of_a_request_says() -> None:
    assert opened().admit(modern("tools/list"), facts()).era.revision.date == "2025-11-25"


@pytest.mark.parametrize("level", LOG_LEVELS)
def test_every_log_level_can_be_set_and_holds_for_the_whole_session(level: str) -> None:
    era = opened()
    before = era.admit(LIST, facts())
    admitted = era.admit(Request(3, "logging/setLevel", {"level": level}), facts())
    assert before.log_level() == admitted.log_level() == level  # X5
    assert era.own("logging/setLevel", facts()) == EmptyResult()


@pytest.mark.parametrize("level", ["verbose", "", "INFO", "info ", 5, None])
def test_a_bad_log_level_is_refused_and_the_old_one_stays(level: object) -> None:
    era = opened()
    era.admit(Request(3, "logging/setLevel", {"level": "error"}), facts())
    with pytest.raises(InvalidParamsError):  # G1
        era.admit(Request(3, "logging/setLevel", {"level": level}), facts())
    assert era.admit(LIST, facts()).log_level() == "error"


def test_the_era_answers_only_what_is_its_own() -> None:
    era = opened()
    assert era.own("ping", facts()) == EmptyResult()
    assert era.own("tools/list", facts()) is None
    assert era.own("server/discover", facts()) is None


# -- results ------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", HANDSHAKE, ids=str)
def test_nothing_of_the_stateless_era_reaches_a_handshake_client(revision: Any) -> None:
    era = opened(revision.date)
    listed = era.seal(METHODS["tools/list"], ListToolsResult(tools=[], ttl_ms=9), facts())
    assert listed == {"tools": []}  # X3
    proxied = CallToolResult(extra={"resultType": "complete", "vendor": 1})
    assert era.seal(METHODS["tools/call"], proxied, facts()) == {"content": [], "vendor": 1}  # B7
    assert era.seal(METHODS["ping"], EmptyResult(), facts()) == {}


@pytest.mark.parametrize(
    ("version", "value", "sent"),
    [
        ("2025-11-25", {"a": 1}, True),
        ("2025-06-18", {}, True),
        ("2025-11-25", [1], False),
        ("2025-06-18", None, False),
        ("2025-06-18", "x", False),
        ("2025-03-26", {"a": 1}, False),
        ("2024-11-05", {"a": 1}, False),
    ],
)
def test_structured_content_is_sent_in_the_form_the_revision_has(
    version: str, value: object, sent: bool
) -> None:
    result = CallToolResult(structured_content=value)
    sealed = opened(version).seal(METHODS["tools/call"], result, facts())
    assert ("structuredContent" in sealed) is sent  # T4


def test_every_refusal_is_an_error_of_ours() -> None:
    for request in (Request(1, "x"), initialize(capabilities=5), Request(1, "tools/call", {})):
        with pytest.raises(MCPError):
            HandshakeEra().admit(request, facts())
