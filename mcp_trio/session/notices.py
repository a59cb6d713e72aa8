"""One change, told to everybody who listens (X4).

The hub calls listeners synchronously and never waits; each listener keeps its own
coalescing `Mailbox`, so a slow peer delays nobody and costs a bounded amount.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import trio

from mcp_trio.engine.subscriptions import Mailbox, Notice
from mcp_trio.errors import OverloadedError
from mcp_trio.session.context import Context, Exchange
from mcp_trio.wire.basic import EmptyResult, JSONObject
from mcp_trio.wire.converter import to_wire
from mcp_trio.wire.meta import SUBSCRIPTION_ID
from mcp_trio.wire.notices import AcknowledgedParams, SubscriptionFilter

Listener: TypeAlias = Callable[[Notice | None], None]
"""Called with each change; with None when the server is going down."""


logger = logging.getLogger("mcp_trio.session")

KEEP_ALIVE = 15.0
"""Seconds between signs of life on a quiet listen stream."""
PATIENCE = 30.0
"""Seconds a listener may leave a notice untaken."""


class Listening:
    """A block in which somebody listens. Smaller than a generator: each session has one."""

    __slots__ = ("_listener", "_listeners")

    def __init__(self, listeners: set[Listener], listener: Listener) -> None:
        self._listeners = listeners
        self._listener = listener

    def __enter__(self) -> None:
        self._listeners.add(self._listener)

    def __exit__(self, *_: object) -> None:
        self._listeners.discard(self._listener)


class NoticeHub:
    """Everybody who wants to hear of changes, on every transport and in both eras."""

    def __init__(self, patience: float = PATIENCE) -> None:
        """Make one.

        Args:
            patience: seconds a listener may leave a notice untaken; then it is dropped.
        """
        self.patience = patience
        self.dropped = 0
        """Listeners that were dropped because they did not read."""
        self._listeners: set[Listener] = set()
        self.draining = False
        """True once the server is going down: listen streams end with their result."""

    def __len__(self) -> int:
        return len(self._listeners)

    def listening(self, listener: Listener) -> Listening:
        """Have a function called for each change while the block runs."""
        return Listening(self._listeners, listener)

    def tell(self, notice: Notice) -> None:
        """Tell everybody. Never waits."""
        for listener in tuple(self._listeners):
            listener(notice)

    def drain(self) -> None:
        """Say that the server is going down. Idempotent."""
        if not self.draining:
            self.draining = True
            for listener in tuple(self._listeners):
                listener(None)

    async def listen(self, context: Context, served: SubscriptionFilter) -> EmptyResult:
        """Serve `subscriptions/listen` until the client ends it or the server drains (U1 to U7).

        A filter of which nothing is honoured ends at once: there would be nothing to send. A
        client that does not take a notice within `patience` seconds is told so by an error
        as the end of its stream, as soon as it reads again, and has to listen again.

        Args:
            context: of the request.
            served: the part of the filter that is honoured.

        Raises:
            OverloadedError: the client reads too slowly.
        """
        mine: JSONObject = {SUBSCRIPTION_ID: context.request_id}
        mailbox = Mailbox(served)
        wake = trio.Event()

        def deliver(notice: Notice | None) -> None:
            if notice is None or mailbox.put(notice):
                wake.set()

        with self.listening(deliver):
            acknowledged = AcknowledgedParams(notifications=served, meta=mine)
            await self._in_time(
                context.exchange,
                context.exchange.notify,
                "notifications/subscriptions/acknowledged",
                to_wire(acknowledged, context.revision),
            )
            while mailbox.wants_anything and not self.draining:
                notice = mailbox.take()
                if notice is None:
                    wake = trio.Event()
                    with trio.move_on_after(KEEP_ALIVE) as quiet:
                        await wake.wait()
                    if quiet.cancelled_caught:
                        await self._in_time(context.exchange, context.exchange.keep_alive)
                else:
                    params = {**notice.params(), "_meta": mine}
                    await self._in_time(
                        context.exchange, context.exchange.notify, notice.method, params
                    )
        return EmptyResult(meta=mine)

    async def _in_time(
        self, exchange: Exchange, send: Callable[..., Awaitable[None]], *args: object
    ) -> None:
        began = trio.current_time()
        # What cannot be cut off cleanly is let finish, so that the reason can still be told; the
        # transport bounds how long it may stall.
        limit = self.patience if exchange.cuts_cleanly else math.inf
        with trio.move_on_after(limit):
            await send(*args)
            if trio.current_time() - began <= self.patience:
                return
        self.dropped += 1
        logger.warning("a listener was dropped: it did not take a notice in time")
        raise OverloadedError("This listener reads too slowly: listen again, and look again")
