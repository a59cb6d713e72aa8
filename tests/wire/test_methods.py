"""The method table against section 0b of the checklist."""

from __future__ import annotations

import attrs
import pytest

from mcp_trio.wire import METHODS, REVISIONS, ServerCapabilities
from mcp_trio.wire.methods import Method, Sender

C, S, B = Sender.CLIENT, Sender.SERVER, Sender.BOTH
LEGACY = [False, True, True, True, True]
MODERN = [True, False, False, False, False]
ALWAYS = [True] * 5
# name: sender, revisions newest first, whether it is a request
EXPECTED = {
    "initialize": (C, LEGACY, True),
    "notifications/initialized": (C, LEGACY, False),
    "ping": (B, LEGACY, True),
    "server/discover": (C, MODERN, True),
    "tools/list": (C, ALWAYS, True),
    "tools/call": (C, ALWAYS, True),
    "logging/setLevel": (C, LEGACY, True),
    "subscriptions/listen": (C, MODERN, True),
    "notifications/cancelled": (B, ALWAYS, False),
    "notifications/progress": (B, ALWAYS, False),
    "notifications/message": (S, ALWAYS, False),
    "notifications/tools/list_changed": (S, ALWAYS, False),
    "notifications/subscriptions/acknowledged": (S, MODERN, False),
}
CACHEABLE = {
    "server/discover",
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "resources/read",
}
NAMED = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_method_has_the_sender_and_the_revisions_of_the_protocol(name: str) -> None:
    sender, revisions, is_request = EXPECTED[name]
    method = METHODS[name]
    assert method.sender is sender
    assert [method.exists_in(revision) for revision in REVISIONS] == revisions
    assert (method.result is not None) is is_request


@pytest.mark.parametrize("method", METHODS.values(), ids=lambda m: m.name)
def test_a_row_is_consistent(method: Method) -> None:
    assert METHODS[method.name] is method
    assert any(method.exists_in(revision) for revision in REVISIONS)
    assert attrs.has(method.params)
    assert (method.result is None) is method.name.startswith("notifications/")
    assert method.cacheable is (method.name in CACHEABLE)  # K2
    assert method.named_by == NAMED.get(method.name)  # N9
    if method.cacheable and method.result is not None:
        assert {"ttl_ms", "cache_scope"} <= {field.name for field in attrs.fields(method.result)}


def test_a_capability_that_a_method_needs_is_one_a_server_can_declare() -> None:
    declared = {field.name for field in attrs.fields(ServerCapabilities)}
    needed = {method.capability for method in METHODS.values() if method.capability}
    assert needed <= declared
    assert {METHODS["tools/list"].capability, METHODS["tools/call"].capability} == {"tools"}  # V4
