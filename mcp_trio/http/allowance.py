"""A token bucket for what a peer may do now and then, but not without end.

Pure: whoever asks brings the time.
"""

from __future__ import annotations


class Allowance:
    """So many at once, and as many again within each window."""

    __slots__ = ("_left", "_most", "_rate", "_since")

    def __init__(self, most: int, window: float, now: float) -> None:
        """Begin with all of it.

        Args:
            most: how many are allowed at once.
            window: seconds in which as many come back.
            now: the time, on any clock that `take` uses too.
        """
        self._most = float(most)
        self._rate = most / window
        self._left = self._most
        self._since = now

    def take(self, now: float) -> bool:
        """Use one; False if none is left."""
        if self._left < 1:
            self._left = min(self._most, self._left + (now - self._since) * self._rate)
            self._since = now
            if self._left < 1:
                return False
        self._left -= 1
        return True
