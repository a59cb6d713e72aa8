"""State by name that outlives who uses it, forgets what is idle, and is bounded."""

from __future__ import annotations

from collections import OrderedDict
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

    def __init__(self, most: int) -> None:
        """Make an empty one.

        Args:
            most: so much is kept; then what was not looked up for longest goes, idle or not.
        """
        self._most = most
        # The one that was looked up last stands last.
        self._kept: OrderedDict[K, V] = OrderedDict()
        self._sweep_at = self.LEAST

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, key: K) -> V | None:
        """What stands under a key; None if nothing does. This counts as no use of it."""
        return self._kept.get(key)

    def get(self, key: K, make: Callable[[], V], now: float) -> V:
        """What stands under a key, made now if nothing does."""
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
            return found
        if len(self._kept) >= self._sweep_at:
            kept = ((k, v) for k, v in self._kept.items() if not v.is_idle(now))
            self._kept = OrderedDict(kept)
            self._sweep_at = max(self.LEAST, 2 * len(self._kept))
        if len(self._kept) >= self._most:
            self._kept.popitem(last=False)
        made = self._kept[key] = make()
        return made
