"""What a client adds to its messages, and that a server of ours accepts exactly that."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_trio.eras import stateless
from mcp_trio.eras.stamps import HandshakeStamp, StatelessStamp
from mcp_trio.framing.param_headers import SAFE_INTEGER
from mcp_trio.jsonrpc import codec
from mcp_trio.jsonrpc.messages import Notification, Request
from mcp_trio.wire.revisions import BY_DATE, HANDSHAKE
from tests.eras.facts import CURRENT, facts, tool_headers

WHO = {"name": "c", "version": "1"}


def stamp(capabilities: dict[str, Any] | None = None) -> StatelessStamp:
    return StatelessStamp(BY_DATE[CURRENT], WHO, capabilities or {}, tool_headers)


def stamped(method: str, params: dict[str, Any] | None = None) -> Request:
    return Request(1, method, stamp().params(params))


def test_every_request_says_version_client_and_capabilities() -> None:
    assert stamp({"sampling": {}}).params(None) == {
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": CURRENT,
            "io.modelcontextprotocol/clientInfo": WHO,
            "io.modelcontextprotocol/clientCapabilities": {"sampling": {}},
        }
    }


def test_the_meta_of_the_caller_stays_and_cannot_change_who_asks() -> None:
    given_meta = {"progressToken": 1, "io.modelcontextprotocol/protocolVersion": "1999"}
    params: dict[str, Any] = {"cursor": "c", "_meta": given_meta}
    made: Any = stamp().params(params)
    assert made["cursor"] == "c"
    assert made["_meta"]["progressToken"] == 1
    assert made["_meta"]["io.modelcontextprotocol/protocolVersion"] == CURRENT
    assert params == {"cursor": "c", "_meta": given_meta}
    assert given_meta["io.modelcontextprotocol/protocolVersion"] == "1999"


def test_headers_mirror_method_and_name() -> None:
    assert stamp().headers(stamped("tools/list")) == {
        "mcp-protocol-version": CURRENT,
        "mcp-method": "tools/list",
    }
    assert stamp().headers(stamped("tools/call", {"name": "plain-ü"})) == {
        "mcp-protocol-version": CURRENT,
        "mcp-method": "tools/call",
        "mcp-name": "=?base64?cGxhaW4tw7w=?=",
    }


def test_a_notification_and_an_unknown_method_have_version_and_method() -> None:
    for message in (Notification("notifications/cancelled", {"name": "x"}), Request(1, "a/b")):
        assert stamp().headers(message) == {
            "mcp-protocol-version": CURRENT,
            "mcp-method": message.method,
        }


def test_annotated_arguments_are_mirrored() -> None:
    arguments = {"region": "us", "count": 42.0, "deep": {"flag": False}, "other": "x"}
    headers = stamp().headers(stamped("tools/call", {"name": "t", "arguments": arguments}))
    assert {k: v for k, v in headers.items() if k.startswith("mcp-param-")} == {
        "mcp-param-region": "us",
        "mcp-param-count": "42",
        "mcp-param-flag": "false",
    }


@pytest.mark.parametrize("revision", HANDSHAKE, ids=str)
def test_a_handshake_client_sends_the_version_header_where_it_exists(revision: Any) -> None:
    made = HandshakeStamp(revision).headers(Request(1, "tools/list"))
    assert ("mcp-protocol-version" in made) is revision.version_header  # H11
    assert made.get("mcp-protocol-version", revision.date) == revision.date


def test_before_the_handshake_nothing_is_added() -> None:
    before = HandshakeStamp(None)
    assert before.headers(Request(1, "initialize")) == {}
    params: dict[str, Any] = {"a": 1}
    assert before.params(params) is params
    assert before.params(None) is None


numbers = st.integers(-SAFE_INTEGER, SAFE_INTEGER) | st.floats(-1e9, 1e9, allow_nan=False)
values = st.none() | st.booleans() | numbers | st.text() | st.lists(st.text(), max_size=2)
calls = st.fixed_dictionaries(
    {},
    optional={
        "region": values,
        "count": values,
        "deep": values | st.fixed_dictionaries({}, optional={"flag": values, "more": values}),
        "other": values,
    },
)


@given(st.text(), st.none() | calls)
def test_what_a_client_sends_a_server_admits(name: str, arguments: dict[str, Any] | None) -> None:
    params: dict[str, Any] = {"name": name}
    if arguments is not None:
        params["arguments"] = arguments
    request = stamped("tools/call", params)
    headers = stamp().headers(request)
    arrived = codec.decode(codec.encode(request))
    assert isinstance(arrived, Request)
    admitted = stateless.admit(arrived, headers, facts())
    assert admitted.request.params == request.params


@given(st.sampled_from(["tools/list", "server/discover"]))
def test_requests_without_a_name_are_admitted_as_stamped(method: str) -> None:
    request = stamped(method)
    stateless.admit(request, stamp().headers(request), facts())
