"""A session that is one connection: how it idles, drains and ends. WebSocket, sockets, HTTP+SSE.

What a message means is `serving`'s business, how it travels the transport's. Sessions of
Streamable HTTP outlive their connections and live in `http.sessions`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import trio

from mcp_trio.abc import Transport
from mcp_trio.engine.envelope import Envelope, Principal
from mcp_trio.session.dispatch import Service
from mcp_trio.session.limits import SessionLimits
from mcp_trio.session.serving import kind_of, serve_line
from mcp_trio.session.session import Dispatcher
from mcp_trio.wire.basic import RequestId


class LineSession:
    """One client on one line, from the moment it is accepted. Run it once.

    Idle expiry is the deadline of the session's scope: no timer task, the deadline moves
    with every message and stands still while a request runs.
    """

    def __init__(
        self,
        service: Service,
        transport: Transport,
        *,
        limits: SessionLimits | None = None,
        idle_timeout: float = math.inf,
        principal: Principal | None = None,
        address: str | None = None,
    ) -> None:
        """Make one; nothing happens before `run`.

        Args:
            service: the server.
            transport: the line; taken over and closed.
            limits: bounds of the session.
            idle_timeout: seconds without a message and without a running request, after
                which the session ends.
            principal: who the client is, if known.
            address: where it comes from; see `serve_line`.
        """
        self._principal = principal
        self._address = address
        self._service = service
        self._line = _Noticing(transport, self.touch)
        self._limits = limits
        self._idle_timeout = idle_timeout
        self._dispatcher: Dispatcher | None = None
        self._draining = trio.Event()
        self._scope = trio.CancelScope()

    @property
    def in_flight(self) -> int:
        """Requests of the client that run now."""
        return 0 if self._dispatcher is None else len(self._dispatcher.peer.running)

    def touch(self) -> None:
        """Move the deadline: never while a request runs, else `idle_timeout` from now."""
        busy = self.in_flight > 0
        self._scope.deadline = math.inf if busy else trio.current_time() + self._idle_timeout

    def drain(self) -> None:
        """End as soon as nothing runs and every answer is with the transport. Idempotent."""
        self._draining.set()

    def cancel(self) -> None:
        """End now: every request of the client is cancelled, the line is closed."""
        self._scope.cancel()

    async def run(self) -> None:
        """Be the session until the client leaves, it idles too long, drains, or is cancelled."""
        with self._scope:
            self.touch()
            async with trio.open_nursery() as nursery:
                dispatcher: Dispatcher = await nursery.start(self._serve, nursery.cancel_scope)
                self._dispatcher = dispatcher
                dispatcher.on_idle_change = self.touch
                self.touch()
                await self._draining.wait()
                await dispatcher.quiet()
                # Not the nursery: the transport's pump still has answers to write.
                dispatcher.cancel()

    async def _serve(
        self, around: trio.CancelScope, *, task_status: trio.TaskStatus[Dispatcher]
    ) -> None:
        await serve_line(
            self._service,
            self._line,
            limits=self._limits,
            principal=self._principal,
            address=self._address,
            task_status=task_status,
        )
        around.cancel()  # nobody is left to wait for a drain


class _Noticing:
    """A transport that tells of each message, either way."""

    def __init__(self, transport: Transport, notice: Callable[[], None]) -> None:
        self._inner = transport
        self.kind = kind_of(transport)
        self._notice = notice

    async def send(self, envelope: Envelope) -> None:
        self._notice()
        await self._inner.send(envelope)

    async def receive(self) -> Envelope:
        envelope = await self._inner.receive()
        self._notice()
        return envelope

    def abandon(self, request_id: RequestId) -> bool:
        return self._inner.abandon(request_id)

    async def pump(self) -> None:
        await self._inner.pump()

    async def aclose(self) -> None:
        await self._inner.aclose()
