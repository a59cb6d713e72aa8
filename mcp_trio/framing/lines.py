"""One message per line, as stdio and other byte streams carry them (D1, D5).

Only a line feed ends a line: U+2028, U+0085 and a lone carriage return are content.
A carriage return before the line feed is dropped on the way in and never written.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs


@attrs.frozen
class Oversized:
    """A line longer than allowed. Its bytes are gone; the next line is read as usual."""

    limit: int


class LineDecoder:
    """Cuts a byte stream into lines. Memory is bounded by the limit, in bytes."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._buffer = bytearray()
        self._scanned = 0
        self._skipping = False

    def receive(self, data: bytes | bytearray) -> Iterator[bytes | Oversized]:
        """Take bytes, give the lines they complete. Empty lines are dropped."""
        self._buffer += data
        while (end := self._buffer.find(b"\n", self._scanned)) >= 0:
            line = bytes(self._buffer[:end])
            del self._buffer[: end + 1]
            self._scanned = 0
            if self._skipping:
                self._skipping = False
                continue
            if len(line) > self.limit:
                yield Oversized(self.limit)
            elif stripped := line.removesuffix(b"\r"):
                yield stripped
        self._scanned = len(self._buffer)
        if self._skipping:
            self._buffer.clear()
            self._scanned = 0
        elif self._scanned > self.limit:
            self._skipping = True
            self._buffer.clear()
            self._scanned = 0
            yield Oversized(self.limit)

    def end(self) -> bytes | None:
        """Give what stood after the last line feed when the stream ended."""
        rest = bytes(self._buffer).strip(b"\r\n \t")
        self._buffer.clear()
        return None if self._skipping or not rest else rest
