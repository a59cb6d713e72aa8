"""The client's end of MCP over WebSocket, on any byte stream.

One JSON-RPC message per text frame, subprotocol `mcp`. The stream is handed in, so this
is tested without a socket; wsproto parses. Frames leave whole: they are made in one piece
and go through an `Outbox`, and so do the answers to pings.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterable, Mapping

import trio
import trio.abc
import trio.lowlevel
from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    RejectConnection,
    Request,
    TextMessage,
)
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from mcp_trio.engine.envelope import Envelope
from mcp_trio.errors import TransportClosedError, TransportError
from mcp_trio.jsonrpc import codec
from mcp_trio.transports.outbox import MAX_BUFFER, Outbox
from mcp_trio.wire.basic import RequestId

SUBPROTOCOL = "mcp"
MAX_MESSAGE = 16 * 1024 * 1024
HANDSHAKE_TIMEOUT = 10.0
"""Seconds for the server to accept the connection."""
CLOSE_TIMEOUT = 2.0
"""Seconds to wait for the server to answer our close."""
CHUNK = 65536
NO_GOODBYE = 1006
"""The code of a connection that ended without one."""


class WebSocketTransport:
    """A WebSocket over a stream, which it takes over and closes.

    `open` does the handshake; so does `pump`, for whoever did not. Sending and receiving
    wait for it.
    """

    def __init__(
        self,
        stream: trio.abc.Stream,
        host: str,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        max_message: int = MAX_MESSAGE,
        max_buffer: int = MAX_BUFFER,
    ) -> None:
        """Make one.

        Args:
            stream: a fresh connection to the server.
            host: value of the `Host` field, with the port if the URL has one.
            path: path and query of the URL.
            headers: further fields of the handshake.
            max_message: bytes of a message of the server; a bigger one ends the connection.
            max_buffer: bytes that may wait for a server that reads slowly; then senders wait.
        """
        self._stream = stream
        self._ws = WSConnection(ConnectionType.CLIENT)
        fields = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
        self._request = Request(
            host=host, target=path, subprotocols=[SUBPROTOCOL], extra_headers=fields
        )
        self._max_message = max_message
        self._outbox = Outbox(max_buffer)
        self._events: deque[Event] = deque()
        self._parts: list[str] = []
        self._size = 0
        """Bytes of the message that is coming in."""
        self._opened = trio.Event()
        """Set when the handshake is over, well or badly."""
        self._failure: str | None = None
        self._ended = trio.Event()
        """Set when nothing more will be received."""
        self._why = ""
        """Why that is so, if it was not this side that closed the connection."""
        self._reading = False

    # -- sending -------------------------------------------------------------------

    async def send(self, envelope: Envelope) -> None:
        """Queue one message; waits for the handshake, and while too much is queued.

        Raises:
            TransportClosedError: closed.
            TransportError: the server refused the handshake, or the line is broken.
        """
        text = codec.encode(envelope.message).decode()
        await self._opened.wait()
        if self._outbox.closed:
            raise TransportClosedError("the connection is closed")
        if self._failure is not None:
            raise TransportError(self._failure)
        try:
            frame = self._ws.send(TextMessage(data=text))
        except LocalProtocolError as error:
            await trio.lowlevel.checkpoint()
            raise TransportError("the server has closed the connection") from error
        await self._outbox.put(frame)

    async def pump(self) -> None:
        """Open the connection if nobody did, then write out what is sent until it is closed."""
        with contextlib.suppress(TransportError):  # senders are told
            await self.open()
        await self._outbox.pump(self._write)

    async def open(self) -> None:
        """Do the WebSocket handshake; later calls do nothing. Being cancelled gives it up.

        Raises:
            TransportError: the server cannot be reached, refuses, speaks no WebSocket, or
                takes longer than `HANDSHAKE_TIMEOUT`.
        """
        try:
            if not self._opened.is_set():
                with trio.move_on_after(HANDSHAKE_TIMEOUT) as limit:
                    await self._shake_hands()
                if limit.cancelled_caught:
                    self._fail("the server did not answer the WebSocket handshake in time")
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError) as error:
            self._fail(f"the WebSocket handshake failed: {error}".rstrip(": "))
        finally:
            if not self._opened.is_set():
                self._fail("the WebSocket handshake was given up")
        if self._failure is not None:
            raise TransportError(self._failure)

    async def _write(self, frames: list[bytes]) -> None:
        await self._stream.send_all(b"".join(frames))

    def _fail(self, reason: str) -> None:
        self._failure = self._failure or reason
        self._outbox.fail(trio.BrokenResourceError(reason))
        self._ended.set()
        self._opened.set()

    async def _shake_hands(self) -> None:
        await self._stream.send_all(self._ws.send(self._request))
        while not self._opened.is_set():
            data = await self._stream.receive_some(CHUNK)
            for event in self._read(data):
                match event:
                    case AcceptConnection():
                        self._opened.set()
                    case RejectConnection():
                        self._fail(f"the server refused the WebSocket: {event.status_code}")
                    case _:
                        self._events.append(event)
            if not data and not self._opened.is_set():
                self._fail("the server closed the connection during the WebSocket handshake")

    # -- receiving -----------------------------------------------------------------

    async def receive(self) -> Envelope:
        """Wait for a message.

        Raises:
            trio.EndOfChannel: the server closed the connection, broke the protocol, sent
                a binary or an oversized message, or the handshake failed; says which.
        """
        await self._opened.wait()
        while not self._ended.is_set():
            while self._events:
                text = self._take(self._events.popleft())
                if text is not None:
                    return Envelope(codec.decode(text.encode()))
            if not self._ended.is_set():
                await self._receive_events()
        await trio.lowlevel.checkpoint()
        raise trio.EndOfChannel(self._failure or self._why)

    async def _receive_events(self) -> None:
        self._reading = True
        try:
            data = await self._stream.receive_some(CHUNK)
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
            data = b""
        finally:
            self._reading = False
        self._events.extend(self._read(data))
        if not data:
            self._events.append(CloseConnection(code=NO_GOODBYE))

    def _read(self, data: bytes | bytearray) -> Iterable[Event]:
        """Parse bytes; a breach of the protocol becomes the end of the connection."""
        events: list[Event] = []
        try:
            self._ws.receive_data(bytes(data) or None)
            for event in self._ws.events():
                events.append(event)  # noqa: PERF402 - those before the fault count
        except (RemoteProtocolError, LocalProtocolError, ValueError) as error:
            if not self._opened.is_set():
                self._fail(f"the server answered no WebSocket handshake: {error}")
            else:
                self._why = self._why or _broken(error)
                self._say_close(1002, "protocol error")
            events.append(CloseConnection(code=NO_GOODBYE))
        return events

    def _take(self, event: Event) -> str | None:
        """Act on an event; the text of a message that is complete by it."""
        match event:
            case TextMessage():
                return self._gather(event)
            case Ping():
                # Dropped when the server does not read: then it cannot miss it.
                with contextlib.suppress(LocalProtocolError):  # the connection is closing
                    self._outbox.offer(self._ws.send(event.response()))
            case BytesMessage():
                self._break_off(1003, "a message is one text frame, not a binary one")
            case CloseConnection():
                # What the parser cannot read it reports like a close that never came.
                unasked = self._ws.state is ConnectionState.OPEN and event.code != NO_GOODBYE
                self._why = self._why or (_broken(event.reason) if unasked else _told(event))
                with contextlib.suppress(LocalProtocolError):
                    self._outbox.offer(self._ws.send(event.response()), last=True)
                self._ended.set()
            case _:
                pass
        return None

    def _gather(self, event: TextMessage) -> str | None:
        self._parts.append(event.data)
        self._size += len(event.data.encode())
        if self._size > self._max_message:
            self._break_off(1009, f"a message is larger than {self._max_message} bytes")
            return None
        if not event.message_finished:
            return None
        text, self._parts, self._size = "".join(self._parts), [], 0
        return text

    def _break_off(self, code: int, reason: str) -> None:
        self._parts.clear()
        self._why = f"the connection was given up: {reason}"
        self._say_close(code, reason)
        self._ended.set()

    def _say_close(self, code: int, reason: str) -> None:
        with contextlib.suppress(LocalProtocolError):
            farewell = self._ws.send(CloseConnection(code=code, reason=reason))
            self._outbox.offer(farewell, last=True)

    def abandon(self, request_id: RequestId) -> bool:  # noqa: ARG002 - the contract
        """Tell nobody: the connection is shared, so a notification has to."""
        return False

    # -- closing -------------------------------------------------------------------

    async def aclose(self) -> None:
        """Write out what was sent, say goodbye, wait for the answer, close the stream.

        Bounded by `FLUSH_TIMEOUT` and `CLOSE_TIMEOUT`.
        """
        if self._outbox.closed:
            return
        if not self._opened.is_set():
            self._fail("the connection was closed before it was open")
        try:
            if not self._ended.is_set():
                self._say_close(1000, "")
            if await self._outbox.flush(self._write):
                with trio.move_on_after(CLOSE_TIMEOUT):
                    await self._hear_goodbye()
        finally:
            await self._stream.aclose()

    async def _hear_goodbye(self) -> None:
        if self._reading:
            await self._ended.wait()
        while not self._ended.is_set():
            await self._receive_events()
            while self._events:
                self._take(self._events.popleft())


def _broken(how: object) -> str:
    return f"the server broke the WebSocket protocol: {how}"


def _told(event: CloseConnection) -> str:
    """What a server says on closing, in words."""
    if event.code == NO_GOODBYE:
        return "the connection ended without a goodbye"
    said = f": {event.reason:.120}" if event.reason else ""
    return f"the server closed the connection with {int(event.code)}{said}"
