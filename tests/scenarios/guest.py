"""Trio one piece at a time, for tests whose steps are ordinary functions.

Trio runs as a guest of the test and stands still between the pieces; its clock moves only while
a piece sleeps.
"""

import queue

import outcome
import trio
import trio.lowlevel
import trio.testing


class Guest:
    """A Trio run that does what it is told, and nothing in between."""

    def __init__(self):
        self._turns = queue.SimpleQueue()
        self._over = None
        self._send, self._jobs = trio.open_memory_channel(1)
        trio.lowlevel.start_guest_run(
            self._main,
            run_sync_soon_threadsafe=self._turns.put,
            done_callback=self._done,
            clock=trio.testing.MockClock(autojump_threshold=0),
        )

    def _done(self, result):
        self._over = result

    async def _main(self):
        async with trio.open_nursery() as self.nursery:
            async for job, done in self._jobs:
                done.append(await outcome.acapture(job))

    def run(self, job):
        """Run an async function without arguments to its end, and give what it returns."""
        done = []
        self._send.send_nowait((job, done))
        while not done:
            assert self._over is None
            self._take_turn()
        return done[0].unwrap()

    def close(self):
        """End the run, with whatever still runs in its nursery."""
        self.nursery.cancel_scope.cancel()
        self._send.close()
        while self._over is None:
            self._take_turn()
        self._over.unwrap()

    def _take_turn(self):
        self._turns.get(timeout=60)()
