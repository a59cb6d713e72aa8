"""A Trio run that stands still between the steps of synchronous code, such as a state machine's."""

from __future__ import annotations

import queue
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import outcome
import trio
from trio.testing import MockClock, wait_all_tasks_blocked


class Guest:
    """One run, whose clock moves only when it is told to."""

    def __init__(self) -> None:
        self.clock = MockClock()
        self.nursery: trio.Nursery
        self._todo: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._ended: outcome.Outcome[None] | None = None
        self._jobs, inbox = trio.open_memory_channel[Callable[[], Awaitable[None]]](1)
        trio.lowlevel.start_guest_run(
            self._main,
            inbox,
            run_sync_soon_threadsafe=self._todo.put,
            done_callback=self._end,
            clock=self.clock,
        )

    def _end(self, ended: outcome.Outcome[None]) -> None:
        self._ended = ended

    async def _main(self, inbox: trio.MemoryReceiveChannel[Callable[[], Awaitable[None]]]) -> None:
        async with trio.open_nursery() as self.nursery:
            async for job in inbox:
                await job()
            self.nursery.cancel_scope.cancel()

    def do(self, function: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
        """Run an async function to its end and until nobody has anything left to do."""
        result: list[outcome.Outcome[Any]] = []

        async def job() -> None:
            result.append(await outcome.acapture(partial(function, *arguments)))
            await wait_all_tasks_blocked()

        self._jobs.send_nowait(job)
        self._pump(lambda: bool(result) and self._jobs.statistics().tasks_waiting_receive == 1)
        return result[0].unwrap()

    def close(self) -> None:
        """Cancel what still runs, and end."""
        self._jobs.close()
        self._pump(lambda: self._ended is not None)

    def _pump(self, until: Callable[[], bool]) -> None:
        while not until():
            self._todo.get(timeout=60)()
            if self._ended is not None:
                self._ended.unwrap()
