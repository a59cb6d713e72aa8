"""What an endpoint counts of itself, for whoever watches it. Who counts is in `app`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import attrs


@attrs.frozen(kw_only=True)
class AppStatistics:
    """A snapshot of an endpoint."""

    sessions: int
    """Handshake sessions alive, of every kind."""
    lines: int
    """Those of them that are one connection: WebSockets and HTTP+SSE streams."""
    in_flight: int
    """Requests that run, both eras."""
    listeners: int
    """Streams and sessions that are told of changes."""
    refusals: Mapping[str, int]
    """Requests refused before they began, by reason: a limit of `sessions` or all `bodies`,
    `identification` that could not be done in time, `identity` for who may not, and `source` for a
    Host or Origin. Those over limits of load are counted by the server's `admission`."""

    @property
    def refused(self) -> int:
        """All of them."""
        return sum(self.refusals.values())

    def __add__(self, other: AppStatistics) -> AppStatistics:
        return AppStatistics(
            sessions=self.sessions + other.sessions,
            lines=self.lines + other.lines,
            in_flight=self.in_flight + other.in_flight,
            listeners=self.listeners + other.listeners,
            refusals=Counter(self.refusals) + Counter(other.refusals),
        )
