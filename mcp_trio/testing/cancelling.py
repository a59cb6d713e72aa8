"""Cancelling a piece of work at each of its steps, one after the other.

Trio cancels only where a task waits, so a sweep over the steps of all tasks meets every moment
at which a cancellation can arrive.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio
import trio.abc
import trio.lowlevel

PATIENCE = 10.0
"""Seconds that a scenario may take, cleaning up included."""


class _Cancelling(trio.abc.Instrument):
    """Cancels a scope when Trio is about to take a certain step."""

    def __init__(self, scope: trio.CancelScope, step: int) -> None:
        self._scope = scope
        self._left = step

    def before_task_step(self, task: trio.lowlevel.Task) -> None:  # noqa: ARG002 - the contract
        self._left -= 1
        if self._left == 0:
            self._scope.cancel()

    @property
    def too_late(self) -> bool:
        """The scenario was over before its step came."""
        return self._left > 0


async def cancelled_after(step: int, scenario: Callable[[], Awaitable[object]]) -> bool:
    """Run a scenario and cancel it before a certain step that Trio's tasks take.

    Repeat it with 1, 2, 3 and so on, and look each time at what was left behind, until it says
    False. Steps of every task count, so the peer of the scenario is met in all its states, too.
    A scenario that waits for what never happens is not cancelled by this.

    Args:
        step: which one, from 1.
        scenario: an async function without arguments. Its `Cancelled` goes no further.

    Returns:
        False if the scenario was over before that step.

    Raises:
        trio.TooSlowError: it took longer than `PATIENCE`.
    """
    scope = trio.CancelScope()
    instrument = _Cancelling(scope, step)
    with trio.fail_after(PATIENCE), scope:
        trio.lowlevel.add_instrument(instrument)
        try:
            await scenario()
        finally:
            trio.lowlevel.remove_instrument(instrument)
    return not instrument.too_late
