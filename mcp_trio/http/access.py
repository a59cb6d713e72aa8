"""What is known of one HTTP exchange when it is over, for a log of exchanges.

The layers that learn something write it into the note of the exchange; who keeps it, and in what
form, is decided above.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from typing import TypeAlias, cast

import attrs
import trio

from mcp_trio.engine.envelope import Principal
from mcp_trio.jsonrpc.messages import Message, Request

from .asgi_call import ASGIApp, Receive, Scope, Send

EXTENSION = "mcp_trio.access"
"""The key of the note in ``scope["extensions"]``."""


@attrs.define(kw_only=True, eq=False)
class Note:
    """One HTTP exchange; of a WebSocket the whole connection."""

    method: str
    """`WEBSOCKET` for those."""
    path: str | None
    """Without the query; None if the head was not understood."""
    version: str | None
    client: str | None
    """The address, as trusted proxies say."""
    agent: str | None = None
    """The `User-Agent`."""
    began: float
    """On Trio's clock."""
    ended: float = 0.0
    principal: Principal | None = None
    era: str | None = None
    """`stateless`, `handshake` or `unknown_version`, of an MCP message."""
    call: str | None = None
    """The method of the JSON-RPC request in it."""
    request_id: str | None = None
    """Its id."""
    status: int | None = None
    """None if nothing was answered."""
    sent: int = 0
    """Bytes of the body of the answer."""
    complete: bool = False
    """Whether the answer was given to its end."""

    def carries(self, message: Message, era: str) -> None:
        """Note which message came in the request."""
        self.era = era
        if isinstance(message, Request):
            self.call, self.request_id = message.method, str(message.id)


Tell: TypeAlias = Callable[[Note], object]
"""Takes the note of an exchange that is over. It must not wait, nor raise."""


def note_of(scope: Mapping[str, object]) -> Note | None:
    """The note of an exchange; None if nobody wants one."""
    extensions = cast("Mapping[str, object]", scope.get("extensions") or {})
    return cast("Note | None", extensions.get(EXTENSION))


def noted(app: ASGIApp, tell: Tell) -> ASGIApp:
    """An application whose exchanges are told, each once, however it ends."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        note = _begun(scope)
        cast("MutableMapping[str, object]", scope["extensions"])[EXTENSION] = note

        async def counted(message: Mapping[str, object]) -> None:
            await send(message)
            _count(note, message)

        try:
            await app(scope, receive, counted)
        except Exception:
            note.status = note.status or 500
            raise
        finally:
            note.ended = trio.current_time()
            tell(note)

    return serve


def _begun(scope: Scope) -> Note:
    client = cast("tuple[str, int] | None", scope.get("client"))
    fields = cast("list[tuple[bytes, bytes]]", scope["headers"])
    agent = next((value for name, value in fields if name.lower() == b"user-agent"), None)
    return Note(
        method=str(scope.get("method", "WEBSOCKET")),
        path=str(scope["path"]),
        version=str(scope.get("http_version")),
        client=client[0] if client else None,
        agent=None if agent is None else agent.decode("latin-1"),
        began=trio.current_time(),
    )


def _count(note: Note, message: Mapping[str, object]) -> None:
    match message["type"]:
        case "http.response.start" | "websocket.http.response.start":
            note.status = cast("int", message["status"])
        case "http.response.body" | "websocket.http.response.body":
            note.sent += len(cast("bytes", message.get("body", b"")))
            note.complete = not message.get("more_body", False)
        case "websocket.accept":
            note.status = 101
        case "websocket.send":
            content = cast("bytes | str", message.get("bytes") or message.get("text") or b"")
            note.sent += len(content)
        case "websocket.close":
            note.status, note.complete = note.status or 403, True
        case _:
            pass
