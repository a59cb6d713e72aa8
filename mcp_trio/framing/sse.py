"""Server-sent events: writing them, and reading them to the letter.

Source: WHATWG HTML, "Server-sent events", sections 9.2.5 and 9.2.6.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import attrs

COMMENT = b":\n\n"
"""A keep-alive that carries nothing (N6)."""


@attrs.frozen(kw_only=True)
class ServerEvent:
    """One dispatched event."""

    data: str
    event: str = "message"
    id: str | None = None
    """The last id seen on the stream so far; None if there was none."""


def encode_event(
    data: bytes,
    *,
    event: str | None = None,
    id: str | None = None,  # noqa: A002 - the field's own name
    retry: int | None = None,
) -> bytes:
    """Write one event, of the type `message` unless told. `data` must hold no line break."""
    head = b"" if event is None else b"event: %s\n" % event.encode("ascii")
    if id is not None:
        head += b"id: %s\n" % id.encode("ascii")
    if retry is not None:
        head += b"retry: %d\n" % retry
    return b"%sdata: %s\n\n" % (head, data)


def encode_retry(milliseconds: int) -> bytes:
    """Write the field that says when to come back. Without data it is no event."""
    return b"retry: %d\n\n" % milliseconds


class EventTooLargeError(ValueError):
    """An event or line grew over the limit; the stream cannot be read further."""


_BREAK = re.compile(rb"\r\n?|\n")
_BOM = b"\xef\xbb\xbf"
_LONGEST_RETRY = 12
"""Digits of a `retry` that are looked at; twelve are thirty years."""


class SSEDecoder:
    """Reads an event stream in chunks cut anywhere.

    Lines end in CR, LF or CRLF, also when the pair is split between chunks; a byte
    order mark at the start is dropped. Memory is bounded by `limit` bytes an event.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.last_id: str | None = None
        """The id of the last event that was complete, what `Last-Event-ID` is for."""
        self.retry: int | None = None
        """Milliseconds, the last valid `retry` seen."""
        self._line = bytearray()
        self._start = b""
        """The first bytes of the stream, as long as they may be a byte order mark."""
        self._started = False
        self._after_cr = False
        self._size = 0
        """Bytes held for the event that is being read."""
        self._data: list[str] = []
        self._event = ""
        self._id: str | None = None

    def receive(self, chunk: bytes) -> Iterator[ServerEvent]:
        """Take bytes, give the events they complete.

        Raises:
            EventTooLargeError: over the limit; nothing more can be read.
        """
        chunk = self._without_mark(chunk)
        if self._after_cr and chunk:
            chunk = chunk.removeprefix(b"\n")
            self._after_cr = False
        start = 0
        for found in _BREAK.finditer(chunk):
            self._hold(chunk[start : found.start()])
            start = found.end()
            line = bytes(self._line)
            self._line.clear()
            if (event := self._read(line)) is not None:
                yield event
        self._after_cr = chunk.endswith(b"\r") or (self._after_cr and not chunk)
        self._hold(chunk[start:])

    def _without_mark(self, chunk: bytes) -> bytes:
        if self._started:
            return chunk
        chunk = self._start + chunk
        if len(chunk) < len(_BOM) and _BOM.startswith(chunk):
            self._start = chunk
            return b""
        self._started = True
        return chunk.removeprefix(_BOM)

    def _hold(self, piece: bytes) -> None:
        self._line += piece
        self._size += len(piece)
        if self._size > self.limit:
            raise EventTooLargeError(f"an event is larger than {self.limit} bytes")

    def _read(self, line: bytes) -> ServerEvent | None:
        if not line:
            return self._dispatch()
        raw_name, _, raw_value = line.partition(b":")
        value = raw_value.removeprefix(b" ").decode(errors="replace")
        match raw_name:
            case b"data":
                self._data.append(value)
                return None
            case b"event":
                self._event = value
            case b"id" if "\0" not in value:
                self._id = value
            case b"retry" if value.isascii() and value.isdigit():
                self.retry = int(value.lstrip("0")[:_LONGEST_RETRY] or "0")
            case _:
                pass
        # Only data adds up; of anything else the last one counts.
        self._size -= len(line)
        return None

    def _dispatch(self) -> ServerEvent | None:
        event = None
        # An id takes effect with its event. One cut short is to be sent again.
        self.last_id = self._id
        if self._data:
            event = ServerEvent(
                data="\n".join(self._data), event=self._event or "message", id=self.last_id
            )
        self._data, self._size, self._event = [], 0, ""
        return event
