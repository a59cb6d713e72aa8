"""One outbound request: the record of who waits, and the rule for giving up.

The caller's own task delivers progress, so a callback that raises or waits concerns
only its caller.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeAlias, cast

import attrs
import trio
import trio.lowlevel

from mcp_trio.errors import MCPError, RemoteError
from mcp_trio.jsonrpc.messages import Error, Notification, Result
from mcp_trio.wire import JSONObject

ProgressCallback: TypeAlias = Callable[[float, float | None, str | None], object]
"""Called with progress, total and message. May be a coroutine function."""

NotificationCallback: TypeAlias = Callable[[Notification], None]

QUEUED_PROGRESS = 64
"""Reports kept for a caller that is slow to look; the oldest go first."""


@attrs.frozen
class Progress:
    """One report as it arrived."""

    value: float
    total: float | None
    message: str | None


@attrs.define(eq=False)
class PendingCall:
    """A request of ours that has no answer yet."""

    method: str
    on_progress: ProgressCallback | None = None
    on_notification: NotificationCallback | None = None
    reports: deque[Progress] = attrs.field(factory=lambda: deque[Progress](maxlen=QUEUED_PROGRESS))
    outcome: Result | MCPError | None = None
    _last: float | None = None
    _wake: trio.Event = attrs.field(factory=trio.Event)

    def report(self, progress: Progress) -> None:
        """Take a progress report. One that does not grow breaks the protocol and is dropped."""
        if self.on_progress is None or (self._last is not None and progress.value <= self._last):
            return
        self._last = progress.value
        self.reports.append(progress)
        self._wake.set()

    def settle(self, outcome: Result | Error | MCPError) -> None:
        """Take the answer, or the reason why none will come."""
        if isinstance(outcome, Error):
            detail = outcome.data
            data = cast("JSONObject", detail) if isinstance(detail, dict) else None
            self.outcome = RemoteError(outcome.message, rpc_code=outcome.code, data=data)
        else:
            self.outcome = outcome
        self._wake.set()

    async def wait(self) -> JSONObject:
        """Wait for the answer, delivering progress meanwhile; all of it before the answer.

        Raises:
            RemoteError: the peer answered with an error.
            TransportError: the line broke first.
        """
        while True:
            if self.outcome is None and not self.reports:
                await self._wake.wait()
            while self.reports:
                await self._deliver(self.reports.popleft())
            if self.outcome is not None:
                break
            if not self.reports:
                self._wake = trio.Event()
        if isinstance(self.outcome, MCPError):
            # A caller whose own scope was cancelled along with the session hears of that.
            await trio.lowlevel.checkpoint_if_cancelled()
            raise self.outcome
        return self.outcome.result

    async def _deliver(self, progress: Progress) -> None:
        if self.on_progress is not None:
            told = self.on_progress(progress.value, progress.total, progress.message)
            if inspect.isawaitable(told):
                await cast("Awaitable[object]", told)
