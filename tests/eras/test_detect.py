"""Which era a message belongs to (V5, V14): the whole truth table."""

from __future__ import annotations

import pytest

from mcp_trio.eras.detect import Kind, detect_http, is_stateless
from mcp_trio.jsonrpc.messages import Batch, Message, Notification, Request, Result
from mcp_trio.wire.revisions import HANDSHAKE
from tests.eras.facts import CURRENT, initialize, modern

H, S, U = Kind.HANDSHAKE, Kind.STATELESS, Kind.UNKNOWN_VERSION
CALL = Request(1, "tools/list")
OLD = [revision.date for revision in HANDSHAKE]

MESSAGES: dict[str, Message] = {
    "modern request": modern("tools/list"),
    "modern initialize": modern("initialize"),
    "initialize": initialize(),
    "request": CALL,
    "notification": Notification("notifications/initialized"),
    "answer": Result(1, {}),
    "batch": Batch((CALL,)),
}
HEADERS = {"none": None, "current": CURRENT, "old": OLD[0], "unknown": "2099-01-01", "empty": ""}
TABLE: dict[str, dict[str, Kind]] = {
    "modern request": {"none": S, "current": S, "old": S, "unknown": S, "empty": S},
    "modern initialize": {"none": S, "current": S, "old": S, "unknown": S, "empty": S},
    "initialize": {"none": H, "current": H, "old": H, "unknown": H, "empty": H},
    "request": {"none": H, "current": S, "old": H, "unknown": U, "empty": U},
    "notification": {"none": H, "current": S, "old": H, "unknown": U, "empty": U},
    "answer": {"none": H, "current": S, "old": H, "unknown": U, "empty": U},
    "batch": {"none": H, "current": S, "old": H, "unknown": U, "empty": U},
}


@pytest.mark.parametrize("message", MESSAGES)
@pytest.mark.parametrize("header", HEADERS)
def test_every_message_goes_where_the_table_says(message: str, header: str) -> None:
    value = HEADERS[header]
    headers = {} if value is None else {"mcp-protocol-version": value}
    assert detect_http(MESSAGES[message], headers) is TABLE[message][header]


@pytest.mark.parametrize("version", OLD)
def test_every_old_version_header_means_a_session(version: str) -> None:
    assert detect_http(CALL, {"mcp-protocol-version": f" {version}"}) is H


@pytest.mark.parametrize("version", ["abc", "2025-11-25, 2025-11-25", "2025-11", "0"])
def test_a_header_that_names_no_revision_is_refused(version: str) -> None:
    assert detect_http(CALL, {"mcp-protocol-version": version}) is U  # H11


@pytest.mark.parametrize(
    ("params", "stateless"),
    [
        (None, False),
        ({}, False),
        ({"_meta": {}}, False),
        ({"_meta": {"progressToken": 1}}, False),
        ({"_meta": None}, False),
        ({"_meta": "io.modelcontextprotocol/protocolVersion"}, False),
        ({"_meta": ["io.modelcontextprotocol/protocolVersion"]}, False),
        ({"_meta": {"io.modelcontextprotocol/protocolVersion": "anything"}}, True),
        ({"_meta": {"io.modelcontextprotocol/protocolVersion": None}}, True),
        ({"_meta": {"io.modelcontextprotocol/clientCapabilities": {}}}, True),
        ({"_meta": {"io.modelcontextprotocol/clientInfo": {}}}, True),
        ({"_meta": {"io.modelcontextprotocol/related-task": {}}}, False),
    ],
    ids=str,
)
def test_only_what_each_request_must_say_makes_a_request_stateless(
    params: dict[str, object] | None, stateless: bool
) -> None:
    assert is_stateless(Request(1, "tools/list", params)) is stateless
