"""One line of JSON for each HTTP exchange."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

from mcp_trio.http.access import Note
from mcp_trio.telemetry.callers import who_calls
from mcp_trio.telemetry.line_writer import LineWriter
from mcp_trio.telemetry.plain_text import cut, json_line
from mcp_trio.wire import JSONObject

MAX_PATH = 256
"""Characters of a path."""


def now() -> dt.datetime:
    """The time of day."""
    return dt.datetime.now(dt.UTC)


class AccessLog:
    """Writes the notes of exchanges, as `serve_http(tell=...)` wants it."""

    def __init__(self, writer: LineWriter, clock: Callable[[], dt.datetime] = now) -> None:
        """Make one.

        Args:
            writer: takes the lines; what it has no room for is lost and counted there.
            clock: tells the time of day.
        """
        self._writer = writer
        self._clock = clock

    def __call__(self, note: Note) -> None:
        """Write one line. Never waits and never raises."""
        self._writer.put(json_line(self._line(note)).encode("ascii") + b"\n")

    def _line(self, note: Note) -> JSONObject:
        return {
            "at": self._clock().isoformat(timespec="milliseconds"),
            "client": note.client,
            "method": cut(note.method),
            "path": cut(note.path, MAX_PATH),
            "http": note.version,
            "status": note.status,
            "complete": note.complete,
            "bytes": note.sent,
            "duration_ms": round(1000 * (note.ended - note.began), 3),
            **who_calls(note.principal),
            "era": note.era,
            "call": cut(note.call),
            "request_id": cut(note.request_id),
            "agent": cut(note.agent),
        }
