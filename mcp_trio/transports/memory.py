"""Two ends in one process, for tests and for embedding a server beside its client."""

from __future__ import annotations

import trio
import trio.lowlevel

from mcp_trio.engine.envelope import Envelope
from mcp_trio.errors import TransportClosedError, TransportError
from mcp_trio.jsonrpc import codec
from mcp_trio.wire.basic import RequestId

BUFFER = 64
"""Messages that may wait in each direction."""


class MemoryTransport:
    """One end of a pair.

    Messages go through the real codec, so a test sees what a wire would carry; with
    `encode=False` the objects themselves are handed over.
    """

    kind = "memory"
    """What sessions on it are listed as."""

    def __init__(
        self,
        outgoing: trio.MemorySendChannel[bytes | Envelope],
        incoming: trio.MemoryReceiveChannel[bytes | Envelope],
        *,
        encode: bool = True,
    ) -> None:
        self._outgoing = outgoing
        self._incoming = incoming
        self._encode = encode

    @classmethod
    def pair(
        cls, *, encode: bool = True, buffer: int = BUFFER
    ) -> tuple[MemoryTransport, MemoryTransport]:
        """Make both ends.

        Args:
            encode: pass bytes through the codec; False passes objects.
            buffer: messages that may wait in each direction.
        """
        left_out, right_in = trio.open_memory_channel[bytes | Envelope](buffer)
        right_out, left_in = trio.open_memory_channel[bytes | Envelope](buffer)
        return (
            cls(left_out, left_in, encode=encode),
            cls(right_out, right_in, encode=encode),
        )

    async def send(self, envelope: Envelope) -> None:
        """Send one message; waits while the other end does not read."""
        item = codec.encode(envelope.message) if self._encode else Envelope(envelope.message)
        try:
            await self._outgoing.send(item)
        except trio.ClosedResourceError as error:
            await trio.lowlevel.checkpoint_if_cancelled()
            raise TransportClosedError("this end is closed") from error
        except trio.BrokenResourceError as error:
            await trio.lowlevel.checkpoint_if_cancelled()
            raise TransportError("the other end is closed") from error

    async def receive(self) -> Envelope:
        """Wait for a message.

        Raises:
            trio.EndOfChannel: one of the ends is closed.
        """
        try:
            item = await self._incoming.receive()
        except trio.ClosedResourceError as error:
            raise trio.EndOfChannel from error
        return Envelope(codec.decode(item)) if isinstance(item, bytes) else item

    def abandon(self, request_id: RequestId) -> bool:  # noqa: ARG002 - the contract
        """Tell nobody: the line is shared, so a notification has to."""
        return False

    async def pump(self) -> None:
        """Have nothing to do."""

    async def aclose(self) -> None:
        """Close this end; the other end still reads what was sent."""
        self._outgoing.close()
        self._incoming.close()
        await trio.lowlevel.checkpoint()
