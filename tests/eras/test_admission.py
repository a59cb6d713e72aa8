"""Errors as JSON-RPC messages."""

from __future__ import annotations

import pytest

from mcp_trio.eras.admission import error_message
from mcp_trio.errors import (
    HeaderMismatchError,
    InvalidParamsError,
    MCPError,
    MissingCapabilityError,
    NotFoundError,
    RemoteError,
    VersionMismatchError,
)
from mcp_trio.jsonrpc.messages import Error


def test_an_error_carries_its_local_code_where_data_is_open() -> None:
    assert error_message("7", InvalidParamsError("bad")) == Error(
        "7", -32602, "bad", {"code": "MCP.INVALID_PARAMS"}
    )
    assert error_message(None, NotFoundError("no", data={"uri": "x"})) == Error(
        None, -32602, "no", {"code": "MCP.NOT_FOUND", "uri": "x"}
    )


@pytest.mark.parametrize(
    "error",
    [
        VersionMismatchError("m", data={"supported": [], "requested": "x"}),
        MissingCapabilityError("m", data={"requiredCapabilities": {"sampling": {}}}),
        HeaderMismatchError("m"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_nothing_is_added_where_the_schema_closes_data(error: MCPError) -> None:
    assert error_message(1, error) == Error(1, error.rpc_code, "m", error.data)


def test_the_error_of_another_peer_is_passed_on_with_its_number() -> None:
    passed = error_message(1, RemoteError("no", rpc_code=-32042, data={"elicitations": []}))
    assert (passed.code, passed.message) == (-32042, "no")  # X10
    assert isinstance(passed.data, dict)
    assert passed.data["elicitations"] == []
