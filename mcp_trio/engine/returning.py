"""When and from where a client comes back to an event stream that ended: numbers in and out.

A server that lets go on purpose says when it wants to be asked again, and is obeyed (H5). One
that breaks is given more time after each failure, and clients that it has lost together come
back one by one. No clock and no randomness of its own: a chance between 0 and 1 is an argument.
"""

from __future__ import annotations

from mcp_trio.engine.backoff import Backoff

DEFAULT_PAUSE = 1.0
"""Seconds at most before the first return, where the server did not say."""
SHORTEST_PAUSE = 0.01
"""Seconds that are waited even for a server that would have the client at once."""
LONGEST_PAUSE = 3600.0
"""Seconds after which a client comes back even if the server wants it later: a wish beyond
that is taken for a mistake."""
IN_VAIN = Backoff(first=DEFAULT_PAUSE, longest=30.0)


class Place:
    """Where in a stream a client is, over all the connections that carried it."""

    def __init__(self) -> None:
        self.last_id: str | None = None
        """The id of the last event that was complete; None if the stream cannot be gone on with."""
        self.failures = 0
        """Connections in a row that brought nothing."""
        self._wanted: float | None = None
        """Seconds that the server wants to be left alone."""

    def note(self, last_id: str | None, retry: int | None, *, brought: bool) -> None:
        """Learn from a connection that has ended.

        Args:
            last_id: seen on it; an empty one takes earlier ones back, None does not.
            retry: milliseconds that the server named.
            brought: it did what it was for, an event for example.
        """
        further = bool(last_id) and last_id != self.last_id
        if last_id is not None:
            self.last_id = last_id or None
        if retry is not None:
            self._wanted = min(max(retry / 1000, SHORTEST_PAUSE), LONGEST_PAUSE)
        # A server that says when to come back means to go on: that is no failure.
        self.failures = 0 if brought or further or retry is not None else self.failures + 1

    def pause(self, chance: float) -> float:
        """Seconds to wait before coming back.

        Args:
            chance: between 0 and 1.
        """
        if self.failures == 0 and self._wanted is not None:
            return self._wanted
        # The exponent of whoever never gives up is bounded there, too.
        patience = IN_VAIN.pause(min(max(self.failures, 1), IN_VAIN.attempts), chance)
        return max(self._wanted or 0.0, patience or 0.0)
