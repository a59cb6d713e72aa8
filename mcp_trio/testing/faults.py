"""A transport that goes wrong on purpose, wrapped around one that works."""

from __future__ import annotations

from collections.abc import Callable

import trio

from mcp_trio.abc import Transport
from mcp_trio.engine.envelope import Envelope
from mcp_trio.errors import TransportError
from mcp_trio.wire import RequestId


class FaultyTransport:
    """Passes messages on until it is told not to.

    Attributes:
        lose: messages going out for which this is true vanish.
        stalled: while set, sending waits; clear it to go on.
    """

    def __init__(self, inner: Transport) -> None:
        """Wrap a transport, which is taken over."""
        self._inner = inner
        self.lose: Callable[[Envelope], bool] = lambda _envelope: False
        self.sent: list[Envelope] = []
        """Everything that went out, lost messages included."""
        self._broken = False
        self._stalled: trio.Event | None = None

    def stall(self) -> None:
        """Let every sender wait from now on."""
        self._stalled = trio.Event()

    def go_on(self) -> None:
        """Let the senders go on."""
        if self._stalled is not None:
            self._stalled.set()
            self._stalled = None

    def break_(self) -> None:
        """Let every later send fail as a broken line does."""
        self._broken = True
        self.go_on()

    async def send(self, envelope: Envelope) -> None:
        """Send, wait, lose or fail, as told."""
        if self._stalled is not None:
            await self._stalled.wait()
        if self._broken:
            raise TransportError("the line was broken on purpose")
        self.sent.append(envelope)
        if self.lose(envelope):
            await trio.lowlevel.checkpoint()
            return
        await self._inner.send(envelope)

    async def receive(self) -> Envelope:
        """Receive from the wrapped transport."""
        return await self._inner.receive()

    def abandon(self, request_id: RequestId) -> bool:
        """Pass it on."""
        return self._inner.abandon(request_id)

    async def pump(self) -> None:
        """Pass it on."""
        await self._inner.pump()

    async def aclose(self) -> None:
        """Close the wrapped transport."""
        await self._inner.aclose()
