"""The changes a client has been told of, as an asynchronous iterator."""

from __future__ import annotations

import trio

from mcp_trio.engine.subscriptions import Mailbox, Notice
from mcp_trio.errors import MCPError
from mcp_trio.jsonrpc.messages import Notification
from mcp_trio.wire.notices import SubscriptionFilter


class Changes:
    """Gives each change as text: its method, and its URI if it has one.

    What waits is coalesced, so a caller that is slow to look hears of each kind once.
    """

    def __init__(self, wanted: SubscriptionFilter) -> None:
        self.resource = next(iter(wanted.resource_subscriptions or ()), None)
        """The URI of the resource that is watched, if one is."""
        self._mailbox = Mailbox(wanted)
        self._wake = trio.Event()
        self._started = trio.Event()
        self._ended = False
        self._error: MCPError | None = None

    def deliver(self, notification: Notification) -> None:
        """Take a notification. Never waits."""
        uri = (notification.params or {}).get("uri")
        if self._mailbox.put(Notice(notification.method, uri if isinstance(uri, str) else None)):
            self._wake.set()
        self._started.set()

    def end(self) -> None:
        """The server will send no more."""
        self._ended = True
        self._started.set()
        self._wake.set()

    def fail(self, error: MCPError) -> None:
        """The server cannot be listened to, or not any more."""
        self._error = error
        self.end()

    async def started(self) -> None:
        """Wait until the server has acknowledged.

        Raises:
            MCPError: it refused.
        """
        await self._started.wait()
        if self._error is not None:
            raise self._error

    def __aiter__(self) -> Changes:
        return self

    async def __anext__(self) -> str:
        while (notice := self._mailbox.take()) is None:
            if self._error is not None:
                raise self._error
            if self._ended:
                raise StopAsyncIteration
            self._wake = trio.Event()
            await self._wake.wait()
        return notice.method if notice.uri is None else f"{notice.method} {notice.uri}"
