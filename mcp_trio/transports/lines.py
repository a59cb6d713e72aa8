"""One message per line over any pair of byte streams: stdio, Unix sockets, TCP (D1, D5).

Takes the streams as arguments and opens none. A message goes out whole or not at all:
`send` only hands the line to a bounded buffer, and `pump` writes the buffer out.
"""

from __future__ import annotations

from collections import deque

import trio
import trio.abc
import trio.lowlevel

from mcp_trio.engine.envelope import Envelope
from mcp_trio.errors import INVALID_REQUEST, ErrorCode, TransportClosedError, TransportError
from mcp_trio.framing.lines import LineDecoder, Oversized
from mcp_trio.jsonrpc import codec
from mcp_trio.jsonrpc.messages import Error, Malformed, Message
from mcp_trio.wire.basic import RequestId

MAX_LINE = 16 * 1024 * 1024
MAX_BUFFER = 1024 * 1024
FLUSH_TIMEOUT = 2.0
"""Seconds that closing waits for a peer to read what was sent."""
CHUNK = 65536


class LineTransport:
    """A line transport over two streams, which it takes over and closes."""

    def __init__(
        self,
        incoming: trio.abc.ReceiveStream,
        outgoing: trio.abc.SendStream,
        *,
        max_line: int = MAX_LINE,
        max_buffer: int = MAX_BUFFER,
    ) -> None:
        """Make one.

        Args:
            incoming: where the peer's lines come from.
            outgoing: where ours go.
            max_line: bytes; a longer line is skipped and answered with an error.
            max_buffer: bytes that may wait for a peer that reads slowly; then senders wait.
        """
        self._incoming = incoming
        self._outgoing = outgoing
        self._decoder = LineDecoder(max_line)
        self._lines: deque[bytes | Oversized] = deque()
        self._ended = False
        self._max_buffer = max_buffer
        self._outbox: deque[bytes] = deque()
        self._waiting = 0
        """Bytes in the outbox."""
        self._room = trio.lowlevel.ParkingLot()
        self._work = trio.lowlevel.ParkingLot()
        self._pumped: trio.Event | None = None
        """Set when the pump has ended; None while it was never started."""
        self._closed = False
        self._broken: BaseException | None = None

    async def send(self, envelope: Envelope) -> None:
        """Queue one line; waits while too much is queued already."""
        data = codec.encode(envelope.message) + b"\n"
        await trio.lowlevel.checkpoint()
        while self._waiting >= self._max_buffer and not self._closed and self._broken is None:
            await self._room.park()
        if self._closed:
            raise TransportClosedError("the line is closed")
        if self._broken is not None:
            raise TransportError("the peer is gone") from self._broken
        self._outbox.append(data)
        self._waiting += len(data)
        self._work.unpark_all()

    async def pump(self) -> None:
        """Write the buffer out until the line is closed or breaks."""
        self._pumped = trio.Event()
        try:
            while self._outbox or not self._closed:
                if not self._outbox:
                    await self._work.park()
                    continue
                data = b"".join(self._outbox)
                self._outbox.clear()
                await self._outgoing.send_all(data)
                self._waiting -= len(data)
                self._room.unpark_all()
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError) as error:
            self._broken = error
        finally:
            self._room.unpark_all()
            self._pumped.set()

    async def receive(self) -> Envelope:
        """Wait for a line. Lines that are no message come as `Malformed`."""
        while not self._lines:
            if self._ended:
                raise trio.EndOfChannel
            try:
                data = await self._incoming.receive_some(CHUNK)
            except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
                data = b""
            if data:
                self._lines.extend(self._decoder.receive(data))
                continue
            self._ended = True
            # A last line without its line feed is still a line.
            if (rest := self._decoder.end()) is not None:
                self._lines.append(rest)
        return Envelope(self._read(self._lines.popleft()))

    def _read(self, line: bytes | Oversized) -> Message:
        if isinstance(line, Oversized):
            reason = f"Invalid request: a line is longer than {line.limit} bytes"
            data = {"code": ErrorCode.PROTOCOL_INVALID.value}
            return Malformed(reason, Error(None, INVALID_REQUEST, reason, data))
        return codec.decode(line)

    def abandon(self, request_id: RequestId) -> bool:  # noqa: ARG002 - the contract
        """Tell nobody: the line is shared, so a notification has to."""
        return False

    async def aclose(self) -> None:
        """Write out what was sent, `FLUSH_TIMEOUT` seconds at most, then close both streams."""
        if self._closed:
            return
        self._closed = True
        self._work.unpark_all()
        self._room.unpark_all()
        try:
            with trio.move_on_after(FLUSH_TIMEOUT):
                if self._pumped is None:
                    await self.pump()
                else:
                    await self._pumped.wait()
        finally:
            await self._outgoing.aclose()
            await self._incoming.aclose()
