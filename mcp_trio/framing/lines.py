"""One message per line, as stdio and other byte streams carry them (D1, D5).

Only a line feed ends a line: U+2028, U+0085 and a lone carriage return are content.
A carriage return before the line feed is dropped on the way in and never written.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import attrs

EDGE = 512
"""Bytes that are kept of the beginning and of the end of a line that is too long."""


@attrs.frozen
class Oversized:
    """A line longer than allowed: given once it is, and once more when it has ended.

    Its bytes are gone but for those at its edges; the next line is read as usual.
    """

    limit: int
    start: bytes
    """How it begins."""
    end: bytes | None = None
    """How it ends; None while it goes on."""


class EndlessLineError(ValueError):
    """A line has grown beyond all patience; nothing that follows can be read."""


class LineDecoder:
    """Cuts a byte stream into lines. Memory is bounded by the limit, in bytes."""

    def __init__(self, limit: int, *, endless: float = math.inf) -> None:
        self.limit = limit
        self.endless = endless
        """Bytes beyond the limit after which it is given up that a line will end."""
        self._buffer = bytearray()
        self._scanned = 0
        self._start: bytes | None = None
        """How the line begins that is being skipped; None while none is."""
        self._skipped = 0
        """Bytes of it that are gone."""

    def receive(self, data: bytes | bytearray) -> Iterator[bytes | Oversized]:
        """Take bytes, give the lines they complete. Empty lines are dropped.

        Raises:
            EndlessLineError: a line does not end.
        """
        self._buffer += data
        while (end := self._buffer.find(b"\n", self._scanned)) >= 0:
            line = bytes(self._buffer[:end])
            del self._buffer[: end + 1]
            self._scanned = 0
            if self._start is None and len(line) > self.limit:
                yield self._skip(line)
            if self._start is not None:
                yield Oversized(self.limit, self._start, line[-EDGE:])
                self._start = None
            elif stripped := line.removesuffix(b"\r"):
                yield stripped
        self._scanned = len(self._buffer)
        if self._start is None and self._scanned > self.limit:
            yield self._skip(self._buffer)
        if self._start is not None:
            self._skipped += max(0, len(self._buffer) - EDGE)
            del self._buffer[:-EDGE]
            self._scanned = len(self._buffer)
            if self._skipped > self.endless:
                raise EndlessLineError(f"a line did not end within {self._skipped} bytes")

    def _skip(self, line: bytes | bytearray) -> Oversized:
        self._start = bytes(line[:EDGE])
        self._skipped = 0
        return Oversized(self.limit, self._start)

    def end(self) -> bytes | None:
        """Give what stood after the last line feed when the stream ended."""
        rest = bytes(self._buffer).strip(b"\r\n \t")
        self._buffer.clear()
        return None if self._start is not None or not rest else rest
