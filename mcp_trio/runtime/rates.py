"""Rates: so many calls a minute, of everybody together or of each principal (token buckets)."""

from __future__ import annotations

import attrs


@attrs.frozen(kw_only=True)
class RatePolicy:
    """How many calls are let through."""

    limit: int
    """Calls a minute. As many may come at once after a minute of silence."""
    per_principal: bool = False
    """Whether each principal has them, or all together."""


class Bucket:
    """Tokens of one rate. Belongs to the loop's thread."""

    def __init__(self, limit: int, now: float) -> None:
        self._limit = limit
        self._left = float(limit)
        self._at = now

    def is_idle(self, now: float) -> bool:
        """Whether it is full, as a fresh one is."""
        self._fill(now)
        return self._left >= self._limit

    def take(self, limit: int, now: float) -> float | None:
        """Take one token; else seconds until there is one.

        Args:
            limit: calls a minute, as the newest version of the operation says.
            now: Trio's clock.
        """
        self._fill(now)
        self._limit = limit
        self._left = min(self._left, limit)
        if self._left < 1.0:
            return (1.0 - self._left) * 60.0 / limit
        self._left -= 1.0
        return None

    def _fill(self, now: float) -> None:
        self._left = min(self._limit, self._left + (now - self._at) * self._limit / 60.0)
        self._at = now
