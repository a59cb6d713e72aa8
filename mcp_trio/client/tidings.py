"""What a server tells without being asked, brought to the callbacks.

A plain function is called at once, in wire order, so before the result of the call that a log
line belongs to; it must not block. An async one runs in a task of the client, one after the
other, in the same order. One that raises is logged, and the session goes on.
"""

from __future__ import annotations

import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import cast

import trio

from mcp_trio.client.answers import ClientCallbacks
from mcp_trio.engine.subscriptions import (
    PROMPTS_CHANGED,
    RESOURCE_UPDATED,
    RESOURCES_CHANGED,
    TOOLS_CHANGED,
)
from mcp_trio.errors import InvalidParamsError
from mcp_trio.jsonrpc.messages import Notification
from mcp_trio.wire import Revision
from mcp_trio.wire.converter import from_wire
from mcp_trio.wire.notices import LogParams
from mcp_trio.wire.resources import ResourceUpdatedParams

logger = logging.getLogger("mcp_trio.client")

WAITING = 1000
"""Tidings that may wait for a callback that is slow; what comes then is dropped."""
KINDS = {TOOLS_CHANGED: "tools", PROMPTS_CHANGED: "prompts", RESOURCES_CHANGED: "resources"}


class Tidings:
    """The callbacks of one client that are told things."""

    def __init__(self, callbacks: ClientCallbacks) -> None:
        self._callbacks = callbacks
        self._waiting: deque[tuple[str, Awaitable[object]]] = deque()
        self._wake = trio.Event()
        self._over = False
        self.dropped = 0
        """Tidings that nobody was told, because too many waited."""

    def tell(self, notification: Notification, revision: Revision) -> None:
        """Bring a notification to its callback, if it has one. Never waits."""
        method, params = notification.method, notification.params or {}
        callbacks = self._callbacks
        try:
            if method == "notifications/message" and callbacks.logging is not None:
                self._call(method, callbacks.logging, from_wire(params, LogParams, revision))
            elif method == RESOURCE_UPDATED and callbacks.resource_updated is not None:
                uri = from_wire(params, ResourceUpdatedParams, revision).uri
                self._call(method, callbacks.resource_updated, uri)
            elif method in KINDS and callbacks.list_changed is not None:
                self._call(method, callbacks.list_changed, KINDS[method])
        except InvalidParamsError as error:
            logger.warning("%s of the server cannot be read: %s", method, error)

    def _call(self, method: str, function: Callable[..., object], *args: object) -> None:
        if self._over:
            return
        if len(self._waiting) >= WAITING:
            if not self.dropped:
                logger.warning("%s and more is dropped: a callback takes too long", method)
            self.dropped += 1
            return
        try:
            made = function(*args)
        except Exception:
            logger.exception("the callback for %s failed", method)
            return
        if inspect.isawaitable(made):
            self._waiting.append((method, cast("Awaitable[object]", made)))
            self._wake.set()

    async def run(self) -> None:
        """Run what the async callbacks have to do, until cancelled."""
        try:
            while True:
                while self._waiting:
                    method, made = self._waiting.popleft()
                    try:
                        await made
                    except Exception:
                        logger.exception("the callback for %s failed", method)
                self._wake = trio.Event()
                await self._wake.wait()
        finally:
            self._over = True
            for _, made in self._waiting:
                if inspect.iscoroutine(made):
                    made.close()  # it never began
