"""One line of JSON for each HTTP exchange."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

from mcp_trio.http.access import Note
from mcp_trio.telemetry.line_writer import LineWriter
from mcp_trio.telemetry.plain_text import json_line
from mcp_trio.wire import JSONObject

MAX_PATH = 256
"""Characters of a path."""
MAX_TEXT = 128
"""Characters of anything else that a client has chosen."""


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
        who = note.principal
        return {
            "at": self._clock().isoformat(timespec="milliseconds"),
            "client": note.client,
            "method": note.method[:MAX_TEXT],
            "path": _cut(note.path, MAX_PATH),
            "http": note.version,
            "status": note.status,
            "complete": note.complete,
            "bytes": note.sent,
            "duration_ms": round(1000 * (note.ended - note.began), 3),
            "principal": None if who is None else _cut(who.subject),
            "era": note.era,
            "call": _cut(note.call),
            "request_id": _cut(note.request_id),
            "agent": _cut(note.agent),
        }


def _cut(text: str | None, limit: int = MAX_TEXT) -> str | None:
    return None if text is None else text[:limit]
