"""One message per line over any pair of byte streams: stdio, Unix sockets, TCP (D1, D5).

Takes the streams as arguments and opens none. A message goes out whole or not at all:
`send` only hands the line to an `Outbox`, and `pump` writes that out.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeGuard

import trio
import trio.abc

from mcp_trio.engine.envelope import Envelope
from mcp_trio.errors import TransportError
from mcp_trio.framing.lines import EndlessLineError, LineDecoder, Oversized
from mcp_trio.jsonrpc import codec
from mcp_trio.jsonrpc.glimpse import glimpse
from mcp_trio.jsonrpc.messages import Malformed, Message
from mcp_trio.transports.outbox import MAX_BUFFER, Outbox
from mcp_trio.wire.basic import RequestId

logger = logging.getLogger("mcp_trio.transports")

MAX_LINE = 16 * 1024 * 1024
ENDLESS = 1024 * 1024 * 1024
"""Bytes of a line that is too long after which nobody waits for its end any more."""
CHUNK = 65536


class LineTransport:
    """A line transport over two streams, which it takes over and closes."""

    kind = "lines"
    """What sessions on it are listed as."""

    def __init__(
        self,
        incoming: trio.abc.ReceiveStream,
        outgoing: trio.abc.SendStream,
        *,
        max_line: int = MAX_LINE,
        max_buffer: int = MAX_BUFFER,
        only_our_protocol: bool = False,
    ) -> None:
        """Make one.

        Args:
            incoming: where the peer's lines come from.
            outgoing: where ours go.
            max_line: bytes; a longer line is skipped and answered with an error. If it was an
                answer itself, the call fails that it belongs to, as far as that can be told.
            max_buffer: bytes that may wait for a peer that reads slowly; then senders wait.
            only_our_protocol: end the line when the first thing on it is no message. Behind
                a TCP port that keeps out web pages, whose requests could carry messages.
        """
        self._incoming = incoming
        self._outgoing = outgoing
        self._decoder = LineDecoder(max_line, endless=ENDLESS)
        self._lines: deque[bytes | Oversized] = deque()
        self._ended = False
        self._why = ""
        """Why it has, where the peer has not just closed it."""
        self._doubtful = only_our_protocol
        self._outbox = Outbox(max_buffer)

    async def send(self, envelope: Envelope) -> None:
        """Queue one line; waits while too much is queued already."""
        await self._outbox.put(codec.encode(envelope.message) + b"\n")

    async def pump(self) -> None:
        """Write the buffer out until the line is closed or breaks."""
        await self._outbox.pump(self._write)

    async def _write(self, lines: list[bytes]) -> None:
        await self._outgoing.send_all(b"".join(lines))

    async def receive(self) -> Envelope:
        """Wait for a line. Lines that are no message come as `Malformed`.

        Raises:
            trio.EndOfChannel: the peer has closed the line, or says one that has no end.
        """
        message: Message | None = None
        while message is None:
            while not self._lines:
                await self._receive_some()
            message = self._read(self._lines.popleft())
        if self._doubtful and isinstance(message, Malformed):
            self._ended = True
            self._lines.clear()
        self._doubtful = False
        return Envelope(message)

    async def _receive_some(self) -> None:
        if self._ended:
            raise trio.EndOfChannel(self._why)
        try:
            data = await self._incoming.receive_some(CHUNK)
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
            data = b""
        if data:
            try:
                self._lines.extend(self._decoder.receive(data))
            except EndlessLineError as error:
                self._ended, self._why = True, str(error)
            return
        self._ended = True
        # A last line without its line feed is still a line.
        if (rest := self._decoder.end()) is not None:
            self._lines.append(rest)

    def _read(self, line: bytes | Oversized) -> Message | None:
        """Read a line. None for one of which enough is known only later, or was before."""
        return _read_edges(line) if isinstance(line, Oversized) else codec.decode(line)

    def abandon(self, request_id: RequestId) -> bool:  # noqa: ARG002 - the contract
        """Tell nobody: the line is shared, so a notification has to."""
        return False

    async def aclose(self) -> None:
        """Write out what was sent, `FLUSH_TIMEOUT` seconds at most, then close both streams."""
        if self._outbox.closed:
            return
        try:
            await self._outbox.flush(self._write)
        finally:
            # One that is cancelled has closed its stream all the same, and must not keep the other.
            try:
                await self._outgoing.aclose()
            finally:
                await self._incoming.aclose()


def _read_edges(line: Oversized) -> Malformed | None:
    """Say whose message it is that was too long, as soon as that is known."""
    seen = glimpse(line.start)
    only_later = seen is not None and seen.id is None
    if only_later is (line.end is None):
        return None
    seen = glimpse(line.start, line.end or b"")
    answers = seen is not None and seen.answers
    what = "it" if answers else "Invalid request: a line"
    return codec.unread(f"{what} is longer than {line.limit} bytes", seen)


class ProgramLine(LineTransport):
    """A line to a program, which may print other things and may die.

    What it says that is no message is skipped: nobody there would read an error about it. When
    the line ends, or a message cannot be written, the error tells how the program ended.
    """

    def __init__(
        self,
        incoming: trio.abc.ReceiveStream,
        outgoing: trio.abc.SendStream,
        *,
        fate: Callable[[], Awaitable[str]],
        on_noise: Callable[[str], object] | None = None,
        max_line: int = MAX_LINE,
    ) -> None:
        """Make one.

        Args:
            incoming: what the program prints.
            outgoing: what it reads.
            fate: says how the program ended. Called when its output has ended; bounded in time.
            on_noise: called with each line that was skipped, undecodable bytes replaced. It
                must not block; what it raises is logged.
            max_line: bytes; a longer line is skipped.
        """
        super().__init__(incoming, outgoing, max_line=max_line)
        self._fate = fate
        self._on_noise = on_noise

    async def send(self, envelope: Envelope) -> None:
        """Queue one line; waits while too much is queued already."""
        try:
            await super().send(envelope)
        except TransportError as error:
            raise TransportError(await self._fate()) from error

    async def receive(self) -> Envelope:
        """Wait for a message.

        Raises:
            trio.EndOfChannel: the program has closed its output; says how it ended.
        """
        try:
            while True:
                envelope = await super().receive()
                if not _is_noise(envelope.message):
                    return envelope
        except trio.EndOfChannel as end:
            if self._outbox.closed:
                raise  # our own doing, about which the program has nothing to say
            raise trio.EndOfChannel(str(end) or await self._fate()) from end

    def _read(self, line: bytes | Oversized) -> Message | None:
        message = super()._read(line)
        if message is not None and _is_noise(message):
            text = message.reason if isinstance(line, Oversized) else line.decode(errors="replace")
            self._report(text)
        return message

    def _report(self, text: str) -> None:
        logger.warning("the program said what is no message: %.200r", text)
        if self._on_noise is not None:
            try:
                self._on_noise(text)
            except Exception:
                logger.exception("the callback for what is no message failed")


def _is_noise(message: Message) -> TypeGuard[Malformed]:
    """Tell whether nobody waits for it: a broken answer or request with an id is no noise."""
    if not isinstance(message, Malformed) or message.lost is not None:
        return False
    return message.answer is None or message.answer.id is None
