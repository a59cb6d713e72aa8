"""HTTP+SSE, the transport of the first revision: a GET for what we say, POSTs for what we hear.

The stream opened by GET is the session and its connection: when it ends, all that runs in it
is cancelled (E1). Kept for old clients beside the endpoint (H14); who may use it is decided
in `app`.
"""

from __future__ import annotations

import contextlib
import secrets
from functools import partial
from urllib.parse import parse_qs, quote

import trio

from mcp_trio.engine.envelope import Envelope, Principal
from mcp_trio.framing.sse import COMMENT, encode_event
from mcp_trio.http.options import HTTPOptions
from mcp_trio.http.requests import HTTPRequest
from mcp_trio.http.responses import Header, Responder, Send, refuse, respond
from mcp_trio.http.sessions import SessionTable, same_principal
from mcp_trio.jsonrpc import codec
from mcp_trio.jsonrpc.messages import Malformed, Message
from mcp_trio.transports.outbox import FLUSH_TIMEOUT, Outbox
from mcp_trio.wire.basic import RequestId

BUFFER = 16
"""Messages of POSTs that may wait for a session that is busy; then the POSTs wait."""
KEEP_ALIVE = 15.0
"""Seconds between comment lines on a quiet stream."""
SESSION = "session_id"
"""The parameter of the POST URI that names the session."""


class EventLine:
    """One session's line: out as events of one response, in as bodies of others."""

    kind = "http+sse"
    """What sessions on it are listed as."""

    def __init__(
        self, responder: Responder, principal: Principal | None = None, prefix: str = ""
    ) -> None:
        """Make one; `accept` comes before anything else.

        Args:
            responder: the response to the GET.
            principal: who opened it, if known.
            prefix: what its id begins with.
        """
        self.principal = principal
        # 192 random bits: who knows the id may speak in the session (H12).
        self.id = prefix + secrets.token_urlsafe(24)
        self._responder = responder
        self._outbox = Outbox()
        self._posted, self._arrived = trio.open_memory_channel[Envelope](BUFFER)
        self._gone = False

    async def accept(self, endpoint: str) -> bool:
        """Begin the stream and tell the client where to POST; False if it has left already."""
        try:
            await self._responder.begin()
            await self._responder.chunk(encode_event(endpoint.encode(), event="endpoint"))
        except trio.BrokenResourceError:
            return False
        return True

    def leave(self) -> None:
        """Note that the client has gone. Nothing more is written, and `receive` ends."""
        self._gone = True
        self._outbox.fail(trio.BrokenResourceError("the client has left"))
        self._posted.close()

    async def put(self, message: Message, principal: Principal | None) -> bool:
        """Hand over a message that was POSTed, and who sent it; False if the session is over."""
        try:
            await self._posted.send(Envelope(message, principal=principal))
        except (trio.ClosedResourceError, trio.BrokenResourceError):
            return False
        return True

    async def send(self, envelope: Envelope) -> None:
        """Queue one event; waits while too much is queued already."""
        await self._outbox.put(encode_event(codec.encode(envelope.message)))

    async def receive(self) -> Envelope:
        """Wait for a message that is POSTed."""
        try:
            return await self._arrived.receive()
        except trio.ClosedResourceError as error:
            raise trio.EndOfChannel from error

    def abandon(self, request_id: RequestId) -> bool:  # noqa: ARG002 - the contract
        """Tell nobody: the stream is shared, so a notification has to."""
        return False

    async def pump(self) -> None:
        """Send what is queued until closed, and a comment now and then."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keep_alive)
            await self._outbox.pump(self._write)
            nursery.cancel_scope.cancel()

    async def _write(self, events: list[bytes]) -> None:
        await self._responder.chunk(b"".join(events))

    async def _keep_alive(self) -> None:
        while True:
            await trio.sleep(KEEP_ALIVE)
            if self._outbox.empty:
                self._outbox.offer(COMMENT)

    async def aclose(self) -> None:
        """Send what is queued, `FLUSH_TIMEOUT` seconds at most, and end the stream."""
        if self._outbox.closed:
            return
        self._posted.close()
        self._arrived.close()
        if await self._outbox.flush(self._write):
            with (
                trio.move_on_after(FLUSH_TIMEOUT),
                contextlib.suppress(trio.BrokenResourceError),  # the client may leave first
            ):
                await self._responder.end()


class LegacySSE:
    """The pair of endpoints."""

    def __init__(self, table: SessionTable, options: HTTPOptions) -> None:
        """Make the pair.

        Args:
            table: counts these sessions with the others.
            options: where clients POST to, and what ids begin with.
        """
        self._table = table
        self._messages_path = options.legacy_messages_path
        self._prefix = options.session_prefix
        self._lines: dict[str, EventLine] = {}

    async def get(self, http: HTTPRequest, send: Send, cors: tuple[Header, ...]) -> None:
        """Be a session for as long as its stream lasts. The caller has looked at `full`."""
        if not http.accepts.sse:
            await refuse(send, 406, "Accept must allow text/event-stream", headers=cors)
            return
        line = EventLine(http.responder(send, cors), http.principal, self._prefix)
        where = quote(http.scope.get("root_path", "").rstrip("/") + self._messages_path)
        self._lines[line.id] = line
        try:
            accept = partial(line.accept, f"{where}?{SESSION}={line.id}")
            run = partial(self._table.run_line, line, accept, http.principal, http.address)
            await http.watched(line.leave, run)
        finally:
            del self._lines[line.id]

    def find(self, http: HTTPRequest) -> EventLine | None:
        """The session that a POST names; None if the sender has none of that id (H12)."""
        query = parse_qs(http.scope.get("query_string", b"").decode("latin-1"))
        line = self._lines.get(query.get(SESSION, [""])[0])
        if line is None or not same_principal(line.principal, http.principal):
            return None
        return line

    async def post(
        self,
        line: EventLine,
        message: Message,
        http: HTTPRequest,
        send: Send,
        cors: tuple[Header, ...],
    ) -> None:
        """Take one message of a client; the answer comes on its stream."""
        if isinstance(message, Malformed):
            await refuse(send, 400, message.reason, error=message.answer, headers=cors)
        elif await line.put(message, http.principal):
            await respond(send, 202, headers=cors)
        else:
            await refuse(send, 404, "The session has ended", headers=cors)
