"""The bound on cleanup: a cancelled request that shields itself for too long.

Structured concurrency waits for shielded cleanup, for ever if need be. The reaper
gives it `timeout` seconds and then takes the shields away, so that the cancellation
which has been waiting outside arrives. Decision 0003 says why this needs a look into
Trio's scopes.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import math
from collections import OrderedDict
from typing import Any, Protocol

import trio
import trio.lowlevel

logger = logging.getLogger("mcp_trio.session")


class Reapable(Protocol):
    """A running request, as far as the reaper cares."""

    @property
    def task(self) -> trio.lowlevel.Task:
        """The task that runs the request."""
        ...

    @property
    def label(self) -> str:
        """What to call it in the log."""
        ...


def unshield(task: trio.lowlevel.Task) -> int:
    """Take away every shield inside a task and its children; say how many there were."""
    lifted = 0
    queue = [task]
    while queue:
        current = queue.pop()
        nursery = current.parent_nursery
        # Shields from there on outwards belong to somebody else.
        inherited = None if nursery is None else nursery._cancel_status  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        status: Any = current._cancel_status  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        while status is not None and status is not inherited:
            if status._scope.shield:  # noqa: SLF001
                status._scope.shield = False  # noqa: SLF001
                lifted += 1
            status = status._parent  # noqa: SLF001
        for inner in current.child_nurseries:
            queue.extend(inner.child_tasks)
    return lifted


class Reaper:
    """Watches running requests; one per session on a line, one per HTTP service."""

    def __init__(self, timeout: float) -> None:
        """Make one.

        Args:
            timeout: seconds that cleanup may take once a request was cancelled.
        """
        self.timeout = timeout
        self.running: set[Reapable] = set()
        """Every request between its first and its last step."""
        self.lifted = 0
        """Shields taken away so far."""
        # Cancelled requests that are not over, in the order of their deadlines. One that ends is
        # let go at once: a storm of cancellations must not keep its tasks for `timeout` seconds.
        self._doomed: OrderedDict[Reapable, float] = OrderedDict()
        # The same for those that their own deadline will cancel, which differ by tool: a heap of
        # times and numbers, where the number of one that has ended means nothing any more.
        self._limited: dict[Reapable, tuple[float, int]] = {}
        self._by_number: dict[int, Reapable] = {}
        self._clocks: list[tuple[float, int]] = []
        self._numbers = itertools.count()
        self._pause = trio.CancelScope()
        """Around the wait of `run`; its deadline is when that looks next."""
        self._idle: trio.Event | None = None

    def add(self, request: Reapable) -> None:
        """Note that a request runs."""
        self.running.add(request)

    def remove(self, request: Reapable) -> float | None:
        """Note that a request is over; seconds since it was cancelled, None if it was not."""
        self.running.discard(request)
        due = min(self._doomed.pop(request, math.inf), self._unlimit(request))
        if self._idle is not None and not self.running:
            self._idle.set()
        if due == math.inf:
            return None
        late = trio.current_time() - (due - self.timeout)
        return late if late >= 0 else None

    def doom(self, request: Reapable) -> None:
        """Start the clock of a request that was just cancelled."""
        due = self._doomed.setdefault(request, trio.current_time() + self.timeout)
        self._see_to(due)

    def limit(self, request: Reapable, deadline: float) -> None:
        """Note when a request will be cancelled by its own deadline; infinity is never."""
        self._unlimit(request)
        if deadline < math.inf:
            number = next(self._numbers)
            clock = self._limited[request] = (deadline + self.timeout, number)
            self._by_number[number] = request
            if len(self._clocks) > 2 * len(self._limited) + 64:
                self._clocks = list(self._limited.values())
                heapq.heapify(self._clocks)
            else:
                heapq.heappush(self._clocks, clock)
            self._see_to(clock[0])

    def _unlimit(self, request: Reapable) -> float:
        """Forget the deadline of a request; when its cleanup would have been over."""
        due, number = self._limited.pop(request, (math.inf, -1))
        self._by_number.pop(number, None)
        return due

    def _see_to(self, due: float) -> None:
        """Have `run` look by then, and not before: most requests are over in time."""
        # Setting it costs, also to what it was.
        if due < self._pause.deadline:  # noqa: PLR1730
            self._pause.deadline = due

    def _next(self) -> tuple[float, Reapable | None]:
        """When the first clock runs out, and whose it is."""
        due, whose = math.inf, None
        if self._doomed:
            whose, due = next(iter(self._doomed.items()))
        while self._clocks and self._clocks[0][1] not in self._by_number:
            heapq.heappop(self._clocks)
        if self._clocks and self._clocks[0][0] < due:
            due, number = self._clocks[0]
            whose = self._by_number[number]
        return due, whose

    async def run(self) -> None:
        """Watch until cancelled. Then wait once more, bounded, for what is still running."""
        try:
            while True:
                due, request = self._next()
                if request is None or due > trio.current_time():
                    del request  # it is over before, as a rule, and is to be free then
                    with trio.CancelScope(deadline=due) as self._pause:
                        await trio.sleep_forever()
                else:
                    self._doomed.pop(request, None)
                    self._unlimit(request)
                    self._reap(request)
        finally:
            if self.running:
                self._idle = trio.Event()
                with trio.move_on_after(self.timeout, shield=True):
                    await self._idle.wait()
                for request in tuple(self.running):
                    self._reap(request)

    def _reap(self, request: Reapable) -> None:
        if request in self.running:
            lifted = unshield(request.task)
            self.lifted += lifted
            logger.warning(
                "%s was cancelled %s s ago and still runs; %s shields taken away",
                request.label,
                self.timeout,
                lifted,
            )
