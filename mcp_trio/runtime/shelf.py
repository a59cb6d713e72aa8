"""State of policies by name, which outlives versions of operations and forgets what is idle."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, Protocol, TypeVar


class Idle(Protocol):
    """State that can be forgotten at times: making it anew would give the same."""

    def is_idle(self, now: float) -> bool:
        """Whether it says no more than a fresh one."""
        ...


K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=Idle)


class Shelf(Generic[K, V]):
    """Keeps state that is in use. Looking something up costs the same however much is kept."""

    LEAST = 256
    """So much is kept without looking for what is idle."""

    def __init__(self) -> None:
        self._kept: dict[K, V] = {}
        self._sweep_at = self.LEAST

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: K, make: Callable[[], V], now: float) -> V:
        """What stands under a key, made now if nothing does."""
        found = self._kept.get(key)
        if found is None:
            if len(self._kept) >= self._sweep_at:
                self._kept = {k: v for k, v in self._kept.items() if not v.is_idle(now)}
                self._sweep_at = max(self.LEAST, 2 * len(self._kept))
            found = self._kept[key] = make()
        return found
