"""What a client is told that is refused before the application sees its request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from mcp_trio.eras.admission import error_message
from mcp_trio.errors import OverloadedError
from mcp_trio.framing.gate import Refusal

from . import responses, websocket
from .asgi_call import ASGIApp, Receive, Scope, Send

CROWDED = (
    b"HTTP/1.1 503 Service Unavailable\r\n"
    b"Content-Length: 0\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"
)
"""To a connection of which nothing has been read."""

_REASONS = {
    400: "The header fields of the proxy contradict each other",
    503: "Too many requests of this address are running",
}


def refusing(status: int) -> ASGIApp:
    """An application that refuses whatever it is asked."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        reason = _REASONS[status]
        if scope["type"] == "websocket":
            await websocket.refuse(scope, receive, _loose(send), Refusal(status, reason))
        elif status == 503:
            fault = error_message(None, OverloadedError(reason))
            await responses.refuse(_loose(send), status, reason, error=fault)
        else:
            await responses.refuse(_loose(send), status, reason)

    return app


def _loose(send: Send) -> responses.Send:
    """The same function in the looser types of the ASGI specification."""

    async def sent(message: Mapping[str, Any]) -> None:
        await send(message)

    return cast("responses.Send", sent)
