"""The protected-resource metadata of an endpoint, where clients look for them (RFC 9728).

What stands in them is the guard's affair (`HTTPOptions.auth`); here is where, and how they travel.
"""

from __future__ import annotations

from mcp_trio.http.responses import Header, Send, respond
from mcp_trio.jsonrpc import codec
from mcp_trio.wire import JSONObject

WELL_KNOWN = "/.well-known/oauth-protected-resource"

_HEADERS: tuple[Header, ...] = (
    # They are public, and a page of any origin has to read them before it can sign anybody in.
    (b"access-control-allow-origin", b"*"),
    (b"cache-control", b"public, max-age=3600"),
)
_PREFLIGHT: tuple[Header, ...] = (
    (b"access-control-allow-methods", b"GET, HEAD"),
    (b"access-control-allow-headers", b"MCP-Protocol-Version"),
    (b"access-control-max-age", b"600"),
)
_ALLOW: Header = (b"allow", b"GET, HEAD, OPTIONS")


def subject_of(path: str) -> str:
    """The path of the endpoint that a request is about: its metadata are at a path of their own."""
    return path.removeprefix(WELL_KNOWN)


async def answer_document(document: JSONObject, method: str, send: Send) -> None:
    """Answer a request for the metadata."""
    if method == "OPTIONS":
        await respond(send, 204, headers=(*_HEADERS, *_PREFLIGHT, _ALLOW))
    elif method in {"GET", "HEAD"}:
        await respond(send, 200, codec.encode_value(document), headers=_HEADERS)
    else:
        await respond(send, 405, b'{"error":"method not allowed"}', headers=(_ALLOW,))
