"""Bytes that all clients together may make a service hold, counted by who holds them.

What one client may hold has a bound elsewhere; here is the one for many clients at that bound.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self


class Budget:
    """What is held, and the most that may be."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.held = 0
        """Bytes held by all claims."""

    def claim(self) -> Claim:
        """Begin to hold nothing."""
        return Claim(self)

    def take(self, size: int) -> bool:
        """Hold so many bytes more; False, and nothing, if they are too many."""
        if self.held + size > self._most:
            return False
        self.held += size
        return True


class Claim:
    """What one holder has of a budget. Leaving its block, or `release`, gives it back."""

    __slots__ = ("_budget", "_size")

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._size = 0

    def grow(self, size: int) -> bool:
        """Hold so many bytes more; False if there is no room for them."""
        if not self._budget.take(size):
            return False
        self._size += size
        return True

    def release(self) -> None:
        """Give back all of it. Idempotent; the claim may grow again."""
        self._budget.held -= self._size
        self._size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()
