"""The events of one session, kept for a client that comes back with `Last-Event-ID` (H8).

Bounded in number and bytes; the oldest go first. An id names its stream, so that no
message of another stream is ever replayed.
"""

from __future__ import annotations

import re
from collections import deque

import attrs

from mcp_trio.http.responses import Verdict

_EVENT_ID = re.compile(r"([0-9]{1,19})-([0-9]{1,19})")


@attrs.frozen(eq=False)
class StoredEvent:
    """One event that was, or would have been, sent."""

    stream: int
    number: int
    data: bytes
    verdict: Verdict | None = None
    """How an answer travels alone; None for what answers no request."""


def event_id(stream: int, number: int) -> str:
    """The id of an event."""
    return f"{stream}-{number}"


def parse_event_id(text: str) -> tuple[int, int] | None:
    """The stream and number of an id; None for anything that is not one of ours."""
    found = _EVENT_ID.fullmatch(text.strip())
    return None if found is None else (int(found[1]), int(found[2]))


class ReplayBuffer:
    """The last events of one session."""

    def __init__(self, max_events: int, max_bytes: int) -> None:
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._events: deque[StoredEvent] | None = None
        self._bytes = 0
        self.dropped = 0
        """Events that had to go to keep the bounds."""

    def store(self, event: StoredEvent) -> None:
        """Keep an event."""
        if self._events is None:
            self._events = deque()
        self._events.append(event)
        self._bytes += len(event.data)
        while len(self._events) > self._max_events or self._bytes > self._max_bytes:
            self._bytes -= len(self._events.popleft().data)
            self.dropped += 1

    def forget(self, event: StoredEvent) -> None:
        """Drop an event that nobody can ask for; nothing if it has gone already."""
        if self._events is None or event not in self._events:
            return
        self._events.remove(event)
        self._bytes -= len(event.data)
        if not self._events:
            self._events = None  # even an empty one is large

    def after(self, stream: int, number: int) -> list[StoredEvent]:
        """The kept events of one stream that came after `number`, in order."""
        return [e for e in self._events or () if e.stream == stream and e.number > number]
