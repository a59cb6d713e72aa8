"""The changes a client has been told of, as an asynchronous iterator."""

from __future__ import annotations

import trio

from mcp_trio.engine.subscriptions import TOOLS_CHANGED
from mcp_trio.errors import MCPError
from mcp_trio.jsonrpc.messages import Notification


class Changes:
    """Gives the method name of each change. Changes of one kind that wait are one."""

    def __init__(self) -> None:
        self._waiting: dict[str, None] = {}
        self._wake = trio.Event()
        self._started = trio.Event()
        self._ended = False
        self._error: MCPError | None = None

    def deliver(self, notification: Notification) -> None:
        """Take a notification. Never waits."""
        if notification.method == TOOLS_CHANGED:
            self._waiting[notification.method] = None
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
        while not self._waiting:
            if self._error is not None:
                raise self._error
            if self._ended:
                raise StopAsyncIteration
            self._wake = trio.Event()
            await self._wake.wait()
        return self._waiting.popitem()[0]
