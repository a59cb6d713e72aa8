"""The exception tree: codes, numbers, and that each class says who is at fault."""

from __future__ import annotations

import inspect

import pytest

from mcp_trio import errors
from mcp_trio.errors import ErrorCode, MCPError, ProtocolError

CLASSES = [
    cls
    for name, cls in inspect.getmembers(errors, inspect.isclass)
    if issubclass(cls, Exception) and name in errors.__all__
]
WIRE = {
    errors.ProtocolError: -32600,
    errors.MethodNotFoundError: -32601,
    errors.InvalidParamsError: -32602,
    errors.NotFoundError: -32602,
    errors.NotInitializedError: -32600,
    errors.HeaderMismatchError: -32020,
    errors.MissingCapabilityError: -32021,
    errors.VersionMismatchError: -32022,
    errors.HandlerFailedError: -32603,
    errors.RequestTimeoutError: -32603,
    errors.OverloadedError: -32603,
}


def test_everything_public_is_exported_and_drawn_in_the_tree() -> None:
    defined = {
        name
        for name, cls in inspect.getmembers(errors, inspect.isclass)
        if cls.__module__.startswith("mcp_trio")
    }
    assert defined == set(errors.__all__)
    for name in defined - {"ErrorCode"}:
        assert name in (errors.__doc__ or "")


def test_there_are_fifteen_local_codes_and_every_one_has_an_error() -> None:
    assert len(ErrorCode) == 15
    assert all(code.value == f"MCP.{code.name}" for code in ErrorCode)
    used = {cls.code for cls in CLASSES if issubclass(cls, MCPError)}
    assert used == set(ErrorCode)


@pytest.mark.parametrize("cls", WIRE, ids=lambda cls: cls.__name__)
def test_the_numbers_are_those_of_the_protocol(cls: type[MCPError]) -> None:
    assert cls.rpc_code == WIRE[cls]


def test_our_own_number_stands_outside_the_reserved_range() -> None:
    assert not -32768 <= errors.UnauthorizedError.rpc_code <= -32000


def test_local_failures_do_not_pass_for_something_the_peer_said() -> None:
    for cls in (errors.TransportError, errors.TransportClosedError, errors.RequestTimeoutError):
        assert not issubclass(cls, ProtocolError | errors.RemoteError)
    assert not issubclass(errors.ToolError, MCPError)
    assert not issubclass(errors.ConfigurationError, MCPError)


def test_an_error_keeps_its_message_and_data() -> None:
    error = errors.InvalidParamsError("bad", data={"a": 1})
    assert (str(error), error.message, error.data) == ("bad", "bad", {"a": 1})
    assert errors.InvalidParamsError("bad").data is None


def test_a_remote_error_is_the_peers_own() -> None:
    error = errors.RemoteError("no", rpc_code=-1, data={"a": 1})
    assert (error.rpc_code, error.message, error.data) == (-1, "no", {"a": 1})


def test_an_overload_says_when_to_come_back() -> None:
    error = errors.OverloadedError("full", retry_after=2.5)
    assert error.retry_after == 2.5
    assert error.data == {"reason": "overloaded", "retryAfterMs": 2500}
