"""Server-sent events: writing them, and reading them to the letter.

Source: WHATWG HTML, "Server-sent events", sections 9.2.5 and 9.2.6.
"""

from __future__ import annotations

import codecs
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


def encode_event(data: bytes, *, id: str | None = None, retry: int | None = None) -> bytes:  # noqa: A002 - the field's own name
    """Write one `message` event. `data` is JSON, so it holds no line break."""
    head = b""
    if id is not None:
        head = b"id: %s\n" % id.encode("ascii")
    if retry is not None:
        head += b"retry: %d\n" % retry
    return b"%sdata: %s\n\n" % (head, data)


class EventTooLargeError(ValueError):
    """An event or line grew over the limit; the stream cannot be read further."""


class SSEDecoder:
    """Reads an event stream in chunks cut anywhere.

    Lines end in CR, LF or CRLF, also when the pair is split between chunks; a byte
    order mark at the start is dropped. Memory is bounded by `limit` bytes an event.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.last_id: str | None = None
        self.retry: int | None = None
        """Milliseconds, the last valid `retry` seen."""
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._text = ""
        self._first = True
        self._after_cr = False
        self._data: list[str] = []
        self._size = 0
        self._event = ""

    def receive(self, chunk: bytes) -> Iterator[ServerEvent]:
        """Take bytes, give the events they complete.

        Raises:
            EventTooLargeError: over the limit; nothing more can be read.
        """
        text = self._decoder.decode(chunk)
        if self._first and text:
            text = text.removeprefix("\ufeff")
            self._first = False
        if self._after_cr and text:
            text = text.removeprefix("\n")
            self._after_cr = False
        self._text += text
        lines = self._take_lines()
        for line in lines:
            if (event := self._line(line)) is not None:
                yield event
        if len(self._text) + self._size > self.limit:
            raise EventTooLargeError(f"an event is larger than {self.limit} bytes")

    def _take_lines(self) -> list[str]:
        if "\n" not in self._text and "\r" not in self._text:
            return []
        self._after_cr = self._text.endswith("\r")
        lines = self._text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self._text = lines.pop()
        return lines

    def _line(self, line: str) -> ServerEvent | None:
        if not line:
            return self._dispatch()
        if line.startswith(":"):
            return None
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match name:
            case "data":
                self._data.append(value)
                self._size += len(value) + 1
                if self._size > self.limit:
                    raise EventTooLargeError(f"an event is larger than {self.limit} bytes")
            case "event":
                self._event = value
            case "id" if "\0" not in value:
                self.last_id = value
            case "retry" if value.isascii() and value.isdigit():
                self.retry = int(value[:12])
            case _:
                pass
        return None

    def _dispatch(self) -> ServerEvent | None:
        event = None
        if self._data:
            event = ServerEvent(
                data="\n".join(self._data), event=self._event or "message", id=self.last_id
            )
        self._data, self._size, self._event = [], 0, ""
        return event
