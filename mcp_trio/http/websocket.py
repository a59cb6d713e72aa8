"""MCP over WebSocket: the endpoint's `websocket` scope, one session per connection.

A custom transport in the words of the specification (D5). Setup: a WebSocket handshake on
the endpoint's path, subprotocol `mcp` where the client offers it. Framing: one JSON-RPC
message per text frame, both eras as on any line. Cancellation: `notifications/cancelled`;
a lost connection cancels all. Who may connect is decided in `app`.
"""

from __future__ import annotations

import contextlib
import json
from typing import Any

import trio
import trio.lowlevel

from mcp_trio.engine.envelope import Envelope
from mcp_trio.framing.gate import Refusal
from mcp_trio.http.responses import RETRY_AFTER, Header, Receive, Scope, Send
from mcp_trio.jsonrpc import codec
from mcp_trio.transports.outbox import FLUSH_TIMEOUT, Outbox
from mcp_trio.wire.basic import RequestId

SUBPROTOCOL = "mcp"
GOING_AWAY = 1001
NOT_TEXT = 1003
POLICY = 1008
TOO_BIG = 1009
TRY_LATER = 1013
_CODES = {503: TRY_LATER}
"""Close codes by HTTP status, for a server that has no better way to refuse."""
_DENIAL = "websocket.http.response"


async def refuse(
    scope: Scope,
    receive: Receive,
    send: Send,
    refusal: Refusal,
    fields: tuple[Header, ...] = (),
) -> None:
    """Turn a handshake down.

    With status, reason and header fields where the ASGI server can say them, else by closing before
    accepting, which is a 403.
    """
    await receive()
    if _DENIAL not in scope.get("extensions", {}):
        code = _CODES.get(refusal.status, POLICY)
        await send({"type": "websocket.close", "code": code, "reason": refusal.reason})
        return
    body = json.dumps({"error": refusal.reason}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"connection", b"close"),
        *fields,
    ]
    if refusal.status == 503:
        headers.append(RETRY_AFTER)
    await send({"type": f"{_DENIAL}.start", "status": refusal.status, "headers": headers})
    await send({"type": f"{_DENIAL}.body", "body": body, "more_body": False})


class ASGIWebSocket:
    """The server's end as a `Transport`, over ASGI's receive and send."""

    kind = "websocket"
    """What sessions on it are listed as."""

    def __init__(
        self,
        receive: Receive,
        send: Send,
        *,
        max_message: int,
        limits: codec.CodecLimits = codec.DEFAULT_LIMITS,
    ) -> None:
        """Make one; `accept` comes before anything else.

        Args:
            receive: of the ASGI call.
            send: of the ASGI call.
            max_message: bytes of a message of the client; a bigger one ends the connection.
            limits: what the codec allows.
        """
        self._receive = receive
        self._send = send
        self._max_message = max_message
        self._limits = limits
        self._outbox = Outbox()
        self._ended = False
        self._gone = False
        self._hearing: trio.CancelScope | None = None
        """Around whoever waits for the client, which does not end by itself when we close."""
        self._farewell = (GOING_AWAY, "the session has ended")

    async def accept(self, subprotocols: list[str]) -> bool:
        """Complete the handshake; False if the client has left already."""
        if (await self._receive())["type"] != "websocket.connect":
            return False
        chosen = SUBPROTOCOL if SUBPROTOCOL in subprotocols else None
        await self._send({"type": "websocket.accept", "subprotocol": chosen, "headers": []})
        return True

    async def send(self, envelope: Envelope) -> None:
        """Queue one message; waits while too much is queued already."""
        await self._outbox.put(codec.encode(envelope.message))

    async def pump(self) -> None:
        """Send what is queued until closed."""
        await self._outbox.pump(self._write)

    async def _write(self, messages: list[bytes]) -> None:
        for message in messages:
            await self._send({"type": "websocket.send", "text": message.decode()})

    async def receive(self) -> Envelope:
        """Wait for a text frame. A frame that is not allowed ends the connection."""
        if self._ended:
            await trio.lowlevel.checkpoint()
            raise trio.EndOfChannel
        message = None
        with trio.CancelScope() as self._hearing:
            message = await self._receive()
        if message is None:
            raise self._end()
        if message["type"] != "websocket.receive":
            self._gone = True
            raise self._end()
        text: Any = message.get("text")
        if text is None:
            raise self._end(NOT_TEXT, "a message is one text frame, not a binary one")
        data = text.encode("utf-8", "surrogatepass")
        if len(data) > self._max_message:
            raise self._end(TOO_BIG, f"a message is larger than {self._max_message} bytes")
        return Envelope(codec.decode(data, self._limits))

    def _end(self, code: int | None = None, reason: str = "") -> trio.EndOfChannel:
        self._ended = True
        if code is not None:
            self._farewell = (code, reason)
        return trio.EndOfChannel()

    def abandon(self, request_id: RequestId) -> bool:  # noqa: ARG002 - the contract
        """Tell nobody: the connection is shared, so a notification has to."""
        return False

    async def aclose(self) -> None:
        """Send what is queued, `FLUSH_TIMEOUT` seconds at most, then say why it ends."""
        if self._outbox.closed:
            return
        if self._gone:
            self._outbox.fail(trio.BrokenResourceError("the client has left"))
        try:
            if await self._outbox.flush(self._write):
                await self._say_goodbye()
        finally:
            self._ended = True
            if self._hearing is not None:
                self._hearing.cancel()

    async def _say_goodbye(self) -> None:
        code, reason = self._farewell
        with (
            trio.move_on_after(FLUSH_TIMEOUT),
            # The client may leave first.
            contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError, OSError),
        ):
            await self._send({"type": "websocket.close", "code": code, "reason": reason})
