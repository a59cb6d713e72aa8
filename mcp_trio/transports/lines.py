"""One message per line over any pair of byte streams: stdio, Unix sockets, TCP (D1, D5).

Takes the streams as arguments and opens none. A message goes out whole or not at all:
`send` only hands the line to a bounded buffer, and `pump` writes the buffer out.
"""

from __future__ import annotations

from collections import deque

import trio
import trio.abc

from mcp_trio.engine.envelope import Envelope
from mcp_trio.errors import INVALID_REQUEST, ErrorCode, TransportClosedError, TransportError
from mcp_trio.framing.lines import LineDecoder, Oversized
from mcp_trio.jsonrpc import codec
from mcp_trio.jsonrpc.messages import Error, Malformed
from mcp_trio.wire.basic import RequestId

MAX_LINE = 16 * 1024 * 1024
CHUNK = 65536


class LineTransport:
    """A line transport over two streams, which it takes over and closes."""

    def __init__(
        self,
        incoming: trio.abc.ReceiveStream,
        outgoing: trio.abc.SendStream,
        *,
        max_line: int = MAX_LINE,
        buffer: int = 64,
    ) -> None:
        """Make one.

        Args:
            incoming: where the peer's lines come from.
            outgoing: where ours go.
            max_line: bytes; a longer line is skipped and answered with an error.
            buffer: lines that may wait for a peer that reads slowly.
        """
        self._incoming = incoming
        self._outgoing = outgoing
        self._decoder = LineDecoder(max_line)
        self._lines: deque[bytes | Oversized] = deque()
        self._ended = False
        self._closed = False
        self._broken: BaseException | None = None
        self._to_write, self._written = trio.open_memory_channel[bytes](buffer)
        self._flushed = trio.Event()
        self._pumping = False

    async def send(self, envelope: Envelope) -> None:
        """Queue one line; waits while the buffer is full."""
        data = codec.encode(envelope.message) + b"\n"
        if self._broken is not None:
            raise TransportError("the peer is gone") from self._broken
        try:
            await self._to_write.send(data)
        except trio.ClosedResourceError as error:
            raise TransportClosedError("the line is closed") from error
        except trio.BrokenResourceError as error:
            raise TransportError("the peer is gone") from error

    async def pump(self) -> None:
        """Write the buffer out until the line is closed or breaks."""
        self._pumping = True
        try:
            async with self._written:
                async for data in self._written:
                    await self._outgoing.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError) as error:
            self._broken = error
        finally:
            self._flushed.set()

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

    def _read(self, line: bytes | Oversized) -> codec.Message:
        if isinstance(line, Oversized):
            reason = f"Invalid request: a line is longer than {line.limit} bytes"
            data = {"code": ErrorCode.PROTOCOL_INVALID.value}
            return Malformed(reason, Error(None, INVALID_REQUEST, reason, data))
        return codec.decode(line)

    def abandon(self, request_id: RequestId) -> bool:  # noqa: ARG002 - the contract
        """Tell nobody: the line is shared, so a notification has to."""
        return False

    async def aclose(self) -> None:
        """Write out what was sent, then close both streams. Waits as long as the caller lets it."""
        if self._closed:
            return
        self._closed = True
        self._to_write.close()
        try:
            if self._pumping:
                await self._flushed.wait()
        finally:
            await self._outgoing.aclose()
            await self._incoming.aclose()
