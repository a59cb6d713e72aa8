"""The token of a registry in a database: which state of which registry was read."""

from __future__ import annotations

from typing import Self

import attrs


@attrs.frozen
class Token:
    """A state of one registry; travels as text."""

    registry_id: str
    counter: int
    stamp: str

    def __str__(self) -> str:
        return f"{self.registry_id}:{self.counter}:{self.stamp}"

    @classmethod
    def read(cls, text: str | None) -> Self | None:
        """Read one back; None of what is none, or another registry's kind."""
        registry_id, _, rest = (text or "").partition(":")
        counter, colon, stamp = rest.partition(":")
        known = colon and counter.isascii() and counter.isdecimal() and len(counter) < 19
        # No database keeps a NUL in a text.
        return cls(registry_id, int(counter), stamp) if known and "\x00" not in stamp else None

    def may_precede(self, now: Token) -> bool:
        """Whether the same registry may have been here before; its history knows for sure."""
        return self.registry_id == now.registry_id and self.counter <= now.counter
