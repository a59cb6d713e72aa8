"""When a worker that ended is started again, and when that is given up: numbers in, numbers out."""

from __future__ import annotations

import attrs

from mcp_trio.engine.backoff import Backoff

SETTLED = 30.0
"""Seconds of service after which a worker's earlier ends are forgotten."""
BACKOFF = Backoff(first=0.25, longest=30.0, attempts=8)
"""How patiently. After `attempts` the pause grows no more; it is never given up by that alone."""
HOPELESS = 3
"""Lives in a row that never served: once every worker has had so many, it is given up."""


@attrs.define
class _Past:
    """What is remembered of one worker."""

    ends: int = 0
    """Since it last served for `SETTLED` seconds."""
    stillborn: int = 0
    """Lives in a row that ended before they served."""


class Restarts:
    """The memory of all workers' ends."""

    def __init__(self, count: int) -> None:
        """Begin without a past.

        Args:
            count: of workers; they have the numbers from 1.
        """
        self._past = {number: _Past() for number in range(1, count + 1)}

    def pause(self, number: int, served: float | None, chance: float) -> float | None:
        """Take note of an end.

        Args:
            number: of the worker.
            served: seconds for which it has served; None if it never began.
            chance: between 0 and 1, for the jitter.

        Returns:
            Seconds to wait before it is started again; None if none of the workers can start.
        """
        past = self._past[number]
        past.stillborn = past.stillborn + 1 if served is None else 0
        if served is not None and served >= SETTLED:
            past.ends = 0
        past.ends += 1
        if all(each.stillborn >= HOPELESS for each in self._past.values()):
            return None
        return BACKOFF.pause(min(past.ends, BACKOFF.attempts), chance)
