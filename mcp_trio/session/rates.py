"""Rates: so many requests a minute, of everybody together or of each caller (token buckets).

Used for what a server accepts and for what published operations let through.
"""

from __future__ import annotations

import math

import attrs

from mcp_trio.setting_rules import FINITE, POSITIVE

_NEARLY = 1e-6
"""What rounding may take off a token: who waits as long as told gets it."""


@attrs.frozen(kw_only=True)
class Rate:
    """How many requests are let through."""

    per_minute: float = attrs.field(validator=FINITE)
    """So many a minute, in the long run."""
    burst: int | None = attrs.field(default=None, validator=POSITIVE)
    """So many may come at once after silence; as many as in a minute if not given."""
    per_caller: bool = False
    """Whether each caller has them, or all together. A caller is a principal or, if nobody in
    particular, an address."""

    @property
    def depth(self) -> float:
        """Tokens of a full bucket."""
        return float(self.burst or max(1, math.ceil(self.per_minute)))


class Bucket:
    """Tokens of one rate. Belongs to the loop's thread."""

    __slots__ = ("_at", "_left", "_rate")

    def __init__(self, rate: Rate, now: float) -> None:
        self._rate = rate
        self._left = rate.depth
        self._at = now

    def is_idle(self, now: float) -> bool:
        """Whether it is full, as a fresh one is."""
        self._fill(now)
        return self._left >= self._rate.depth

    def take(self, rate: Rate, now: float) -> float | None:
        """Take one token; else seconds until there is one.

        Args:
            rate: as it is now; it may have changed since the last time.
            now: Trio's clock.
        """
        wait = self.look(rate, now)
        if wait is None:
            self._left -= 1.0
        return wait

    def look(self, rate: Rate, now: float) -> float | None:
        """Seconds until there is a token; None if there is one now. See `take`."""
        self._fill(now)
        self._rate = rate
        self._left = min(self._left, rate.depth)
        if self._left < 1.0 - _NEARLY:
            return (1.0 - self._left) * 60.0 / rate.per_minute
        return None

    def give_back(self) -> None:
        """Undo the last `take`: what it was for did not come about."""
        self._left += 1.0

    def _fill(self, now: float) -> None:
        rate = self._rate
        self._left = min(rate.depth, self._left + (now - self._at) * rate.per_minute / 60.0)
        self._at = now
