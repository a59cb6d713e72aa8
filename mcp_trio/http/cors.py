"""Header fields for browsers: who may read an answer, and what a request may have.

Whether an origin is let in at all is decided in `framing.gate`.
"""

from __future__ import annotations

from mcp_trio.framing import headers as names
from mcp_trio.http.requests import HTTPRequest
from mcp_trio.http.responses import Header

_EXPOSED = b"Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate, DPoP-Nonce, Retry-After"
_REQUESTED = (
    b"Content-Type, Accept, Authorization, DPoP, MCP-Protocol-Version, Mcp-Session-Id, "
    b"Last-Event-ID, Mcp-Method, Mcp-Name"
)


def cors_fields(http: HTTPRequest) -> tuple[Header, ...]:
    """What lets a web page read the answer. The gate has already judged its origin."""
    origin = http.headers.get("origin")
    if origin is None:
        return ()
    return (
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"vary", b"Origin"),
        (b"access-control-expose-headers", _EXPOSED),
    )


def preflight_fields(http: HTTPRequest, cors: tuple[Header, ...]) -> tuple[Header, ...]:
    """What a browser wants to know before it sends a request; nothing without an `Origin`."""
    if not cors:
        return ()
    # Which arguments are mirrored is each tool's own affair, and a browser takes no pattern.
    asked = http.headers.get("access-control-request-headers", "").split(",")
    mirrored = [name for part in asked if names.is_param(name := part.strip(" \t"))]
    allowed = b", ".join([_REQUESTED, *(name.encode("ascii") for name in mirrored)])
    return (
        (b"access-control-allow-methods", b"POST, GET, DELETE"),
        (b"access-control-allow-headers", allowed),
        (b"access-control-max-age", b"600"),
    )
