"""One message per line, as stdio and other byte streams carry them (D1, D5).

Only a line feed ends a line: U+2028, U+0085 and a lone carriage return are content.
A carriage return before the line feed is dropped on the way in and never written.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import attrs

END = 1024
"""Bytes that are kept of either end of an oversized line."""


@attrs.frozen
class Oversized:
    """A line longer than allowed. Its bytes are gone; the next line is read as usual."""

    limit: int
    head: bytes = attrs.field(default=b"", eq=False)
    """Its first bytes."""


@attrs.frozen
class Skipped:
    """The end of an oversized line."""

    tail: bytes = attrs.field(default=b"", eq=False)
    """Its last bytes."""


class EndlessLineError(ValueError):
    """A line has grown beyond all patience; nothing that follows can be read."""


class LineDecoder:
    """Cuts a byte stream into lines. Memory is bounded by the limit, in bytes."""

    def __init__(self, limit: int, *, endless: float = math.inf) -> None:
        self.limit = limit
        self.endless = endless
        """Bytes of one line after which it is given up that it will end."""
        self._buffer = bytearray()
        self._scanned = 0
        self._skipping = False
        self._skipped = 0
        self._tail = b""

    def receive(self, data: bytes | bytearray) -> Iterator[bytes | Oversized | Skipped]:
        """Take bytes, give the lines they complete. Empty lines are dropped.

        Raises:
            EndlessLineError: a line does not end.
        """
        self._buffer += data
        while (end := self._buffer.find(b"\n", self._scanned)) >= 0:
            line = bytes(self._buffer[:end])
            del self._buffer[: end + 1]
            self._scanned = 0
            if self._skipping:
                self._skipping = False
                yield Skipped((self._tail + line)[-END:])
            elif len(line) > self.limit:
                yield Oversized(self.limit, line[:END])
                yield Skipped(line[-END:])
            elif stripped := line.removesuffix(b"\r"):
                yield stripped
        self._scanned = len(self._buffer)
        if self._skipping:
            self._skip()
        elif self._scanned > self.limit:
            self._skipping = True
            self._skipped = 0
            self._tail = b""
            head = bytes(self._buffer[:END])
            self._skip()
            yield Oversized(self.limit, head)

    def _skip(self) -> None:
        self._skipped += len(self._buffer)
        self._tail = (self._tail + self._buffer[-END:])[-END:]
        self._buffer.clear()
        self._scanned = 0
        if self._skipped > self.endless:
            raise EndlessLineError(f"a line did not end within {self._skipped} bytes")

    def end(self) -> bytes | None:
        """Give what stood after the last line feed when the stream ended."""
        rest = bytes(self._buffer).strip(b"\r\n \t")
        self._buffer.clear()
        return None if self._skipping or not rest else rest
