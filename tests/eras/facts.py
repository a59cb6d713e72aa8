"""A server's facts and ready-made messages, for tests of the eras."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mcp_trio.eras.admission import ServerFacts
from mcp_trio.framing.param_headers import ParamHeader, param_headers
from mcp_trio.jsonrpc.messages import Request
from mcp_trio.wire import REVISIONS, Implementation, Revision, ServerCapabilities

CURRENT = "2026-07-28"
TOOL_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "count": {"type": "integer", "x-mcp-header": "Count"},
        "deep": {
            "type": "object",
            "properties": {"flag": {"type": "boolean", "x-mcp-header": "Flag"}},
        },
    },
}
ANNOTATED = param_headers(TOOL_SCHEMA)


def tool_headers(name: str) -> tuple[ParamHeader, ...]:
    return () if name.startswith("plain") else ANNOTATED


def facts(
    revisions: tuple[Revision, ...] = REVISIONS,
    capabilities: ServerCapabilities | None = None,
    headers: Callable[[str], tuple[ParamHeader, ...]] = tool_headers,
) -> ServerFacts:
    return ServerFacts(
        info=Implementation(name="s", version="1", title="S"),
        capabilities=capabilities or ServerCapabilities(tools={}, logging={}),
        revisions=revisions,
        instructions="Be kind.",
        tool_headers=headers,
    )


def meta(**more: Any) -> dict[str, Any]:
    return {
        "io.modelcontextprotocol/protocolVersion": CURRENT,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"},
        **more,
    }


def modern(method: str, *, id_: int | str = 1, **params: Any) -> Request:
    """A stateless request, as its client would write it."""
    return Request(id_, method, {"_meta": meta(), **params})


def mirrored(request: Request, **changes: str | None) -> dict[str, str]:
    """The header fields that go with a request; a change to None leaves one out."""
    params = request.params or {}
    found: dict[str, str | None] = {
        "mcp-protocol-version": CURRENT,
        "mcp-method": request.method,
        "mcp-name": params.get("name") if isinstance(params.get("name"), str) else None,  # type: ignore[dict-item]  # checked
    }
    found.update({name.replace("_", "-"): value for name, value in changes.items()})
    return {name: value for name, value in found.items() if value is not None}


def initialize(version: str = "2025-11-25", **changes: Any) -> Request:
    params: dict[str, Any] = {
        "protocolVersion": version,
        "capabilities": {},
        "clientInfo": {"name": "c", "version": "1"},
        **changes,
    }
    return Request(1, "initialize", params)
