"""One outbound request: the record of who waits, and the rules for giving up.

The caller's own task delivers progress, so a callback that raises or waits concerns
only its caller.
"""

from __future__ import annotations

import contextlib
import inspect
import math
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeAlias, cast

import attrs
import trio
import trio.lowlevel

from mcp_trio.errors import MCPError, RemoteError, RequestTimeoutError
from mcp_trio.jsonrpc.messages import Error, Notification, Result
from mcp_trio.wire import JSONObject, RequestId
from mcp_trio.wire.meta import PROGRESS_TOKEN

ProgressCallback: TypeAlias = Callable[[float, float | None, str | None], object]
"""Called with progress, total and message. May be a coroutine function."""

NotificationCallback: TypeAlias = Callable[[Notification], None]

QUEUED_PROGRESS = 64
"""Reports kept for a caller that is slow to look; the oldest go first."""


@attrs.frozen(kw_only=True)
class TimeLimit:
    """How long a call may take. Where a number of seconds is taken, one of these is, too."""

    total: float = math.inf
    """Seconds for the whole call. Nothing extends them (X11)."""
    idle: float = math.inf
    """Seconds without a sign of life: a progress report, which is asked for even if nobody looks
    at it, or the answer. They begin anew when a question of the server has been answered, and do
    not run while one is open: it is this side that is waited for then."""

    def __attrs_post_init__(self) -> None:
        """Raise `ValueError` for what is no number of seconds."""
        if math.isnan(self.total) or math.isnan(self.idle):
            raise ValueError("a time limit is a number of seconds, and nan is none")

    def watched(self, on_progress: ProgressCallback | None) -> ProgressCallback | None:
        """What takes the progress of a call with this limit, which may need to be told of it."""
        return _unheard if on_progress is None and self.idle < math.inf else on_progress

    def until(self, deadline: float) -> TimeLimit:
        """The same limit for what is left of the call at this moment."""
        if deadline == math.inf:
            return self
        return TimeLimit(total=deadline - trio.current_time(), idle=self.idle)

    def scope(self) -> contextlib.AbstractContextManager[object]:
        """What ends a block once the whole time is over; nothing where it has no end."""
        if self.total == math.inf:
            return contextlib.nullcontext()
        return trio.move_on_after(max(self.total, 0))


def time_limit(given: float | TimeLimit) -> TimeLimit:
    """A number of seconds is the total."""
    return given if isinstance(given, TimeLimit) else TimeLimit(total=given)


def _unheard(_value: float, _total: float | None, _message: str | None) -> None:
    """Take the progress of a call whose caller only wants to know that it is alive."""


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
    reports: deque[Progress] | None = None
    """What waits to be told of; made for the first report, because few calls have any."""
    outcome: Result | MCPError | None = None
    _last: float | None = None
    _wake: trio.Event = attrs.field(factory=trio.Event)

    def with_token(self, params: JSONObject | None, token: RequestId) -> JSONObject | None:
        """The parameters, with which progress is asked for if anybody takes it (P1)."""
        if self.on_progress is None:
            return params
        meta = cast("JSONObject", (params or {}).get("_meta") or {})
        return {**(params or {}), "_meta": {**meta, PROGRESS_TOKEN: token}}

    def progressed(self, params: JSONObject) -> None:
        """Take a notification of progress; what is none is dropped."""
        value, total, text = params.get("progress"), params.get("total"), params.get("message")
        if type(value) is int or type(value) is float:
            known = total if type(total) is int or type(total) is float else None
            self.report(Progress(value, known, text if isinstance(text, str) else None))

    def report(self, progress: Progress) -> None:
        """Take a progress report. One that does not grow breaks the protocol and is dropped."""
        if self.on_progress is None or (self._last is not None and progress.value <= self._last):
            return
        self._last = progress.value
        if self.reports is None:
            self.reports = deque(maxlen=QUEUED_PROGRESS)
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

    async def wait(
        self, idle: float = math.inf, excused_until: Callable[[], float] = lambda: -math.inf
    ) -> JSONObject:
        """Wait for the answer, delivering progress meanwhile; all of it before the answer.

        Args:
            idle: seconds to wait for the next sign of life. Delivering it does not count.
            excused_until: until when the peer was waiting for this side; infinity while it is.

        Raises:
            RemoteError: the peer answered with an error.
            RequestTimeoutError: it gave no sign of life in time.
            TransportError: the line broke first.
        """
        while True:
            if self.outcome is None and not self.reports:
                await self._sign_of_life(idle, excused_until)
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

    async def _sign_of_life(self, idle: float, excused_until: Callable[[], float]) -> None:
        if idle == math.inf:
            await self._wake.wait()
            return
        deadline = trio.current_time() + idle
        while True:
            with trio.move_on_at(deadline) as silence:
                await self._wake.wait()
            if not silence.cancelled_caught or self._wake.is_set():
                return
            now = trio.current_time()
            deadline = min(excused_until(), now) + idle
            if deadline <= now:
                raise RequestTimeoutError(f"{self.method} gave no sign of life for {idle} s")

    async def _deliver(self, progress: Progress) -> None:
        if self.on_progress is not None:
            told = self.on_progress(progress.value, progress.total, progress.message)
            if inspect.isawaitable(told):
                await cast("Awaitable[object]", told)
