"""Messages that many tests send as they stand. What is special to one test stays there."""

from __future__ import annotations

from typing import Any

PING: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
PONG: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "result": {}}


def initialize(version: str = "2025-11-25", *, id_: int = 0) -> dict[str, Any]:
    """The first message of a handshake session."""
    return {
        "jsonrpc": "2.0",
        "id": id_,
        "method": "initialize",
        "params": {
            "protocolVersion": version,
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
        },
    }
