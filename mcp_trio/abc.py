"""The contracts that users may implement: a transport, and the tools of a server.

Protocols only; no behaviour and no trio.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from mcp_trio.engine.envelope import Envelope
from mcp_trio.wire.basic import RequestId


@runtime_checkable
class Transport(Protocol):
    """A two-way line for messages.

    One task receives at a time; any number of tasks may send. No transport reads a
    method name.
    """

    async def send(self, envelope: Envelope) -> None:
        """Send one message whole, or not at all if cancelled.

        Waits while a bounded buffer is full. May be called from several tasks at once.

        Raises:
            TransportClosedError: `aclose` was called.
            TransportError: the line is broken.
        """
        ...

    async def receive(self) -> Envelope:
        """Wait for the next message. Being cancelled loses none.

        Raises:
            trio.EndOfChannel: the peer closed the line, or it broke; nothing more comes. Its
                text, if it has one, tells why.
        """
        ...

    def abandon(self, request_id: RequestId) -> bool:
        """Say that nobody waits for this request of ours any more.

        Returns:
            True when that alone tells the peer, as closing a stream of its own does;
            False when the session has to send a notification.
        """
        ...

    async def pump(self) -> None:
        """Do the work that needs a task of its own, such as writing a bounded buffer out.

        The session runs it in its nursery for as long as the line is open. A transport
        without such work returns at once.
        """
        ...

    async def aclose(self) -> None:
        """Close the line; what was sent before is still delivered if the peer reads.

        Bounded in time. The second call does nothing.
        """
        ...
