"""What a peer may do now and then, but not without end: a token bucket of a fixed rate."""

from __future__ import annotations

from mcp_trio.session.rates import Bucket, Rate


class Allowance:
    """So many at once, and as many again within each window."""

    __slots__ = ("_bucket", "_rate")

    def __init__(self, most: int, window: float, now: float) -> None:
        """Begin with all of it.

        Args:
            most: how many are allowed at once.
            window: seconds in which as many come back.
            now: the time, on any clock that `take` uses too.
        """
        self._rate = Rate(per_minute=60.0 * most / window, burst=most)
        self._bucket = Bucket(self._rate, now)

    def take(self, now: float) -> bool:
        """Use one; False if none is left."""
        return self._bucket.take(self._rate, now) is None
