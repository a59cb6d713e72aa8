"""The circuit breaker: an upstream that keeps failing is left alone for a while.

Closed: outcomes are counted over a sliding window. Open: nothing is sent until the cooldown is
over. Half open: one attempt is let through, and its outcome decides. Times are Trio's clock.

An attempt belongs to the age in which it began: an opening and a trial begin a new one. What an
attempt of an earlier age comes to says nothing about the upstream as it is now, and is ignored.
"""

from __future__ import annotations

import math
from collections import deque

import attrs

SLOTS = 10
"""Parts of the window; an outcome is forgotten a part of the window late at most."""


@attrs.frozen(kw_only=True)
class CircuitPolicy:
    """When a circuit opens, and for how long."""

    failure_rate: float = 0.5
    """Share of failures, over 0 up to 1, at which it opens."""
    min_calls: int = 10
    """Outcomes in the window below which it never opens."""
    window: float = 60.0
    """Seconds that outcomes count."""
    cooldown: float = 30.0
    """Seconds that it stays open."""


@attrs.define
class _Slot:
    number: int
    good: int = 0
    bad: int = 0


class Circuit:
    """The state of one circuit. Belongs to the loop's thread."""

    def __init__(self, policy: CircuitPolicy) -> None:
        self.policy = policy
        """May be replaced by that of a newer version of the operation."""
        self._slots: deque[_Slot] = deque(maxlen=SLOTS + 1)
        self._open_until: float | None = None
        self._trying = False
        self._age = 0

    def is_idle(self, now: float) -> bool:
        """Whether nothing is known that a fresh one would not know."""
        self._forget(now)
        return self._open_until is None and not self._slots

    def refusal(self, now: float) -> float | None:
        """Seconds to wait before an attempt may be made; None if it may be made now."""
        if self._open_until is None:
            return None
        if now < self._open_until:
            return self._open_until - now
        return self.policy.cooldown if self._trying else None

    def enter(self) -> int:
        """Begin an attempt that `refusal` lets through; the number it is ended with.

        A trial that is never ended keeps everybody else out.
        """
        if self._open_until is not None:
            self._trying = True
            self._age += 1
        return self._age

    def abandon(self, attempt: int) -> None:
        """End an attempt that says nothing about the upstream: its caller gave it up."""
        if attempt == self._age:
            self._trying = False

    def record(self, attempt: int, now: float, *, good: bool) -> None:
        """End an attempt."""
        if attempt != self._age:
            return
        if self._trying:
            self._trying = False
            if good:
                self._open_until = None
            else:
                self._open(now)
            return
        self._forget(now)
        number = self._number(now)
        if not self._slots or self._slots[-1].number != number:
            self._slots.append(_Slot(number))
        slot = self._slots[-1]
        slot.good, slot.bad = slot.good + good, slot.bad + (not good)
        good_ones = sum(each.good for each in self._slots)
        bad_ones = sum(each.bad for each in self._slots)
        known = good_ones + bad_ones
        if known >= self.policy.min_calls and bad_ones >= self.policy.failure_rate * known:
            self._open(now)

    def _open(self, now: float) -> None:
        self._open_until = now + self.policy.cooldown
        self._age += 1
        self._slots.clear()

    def _number(self, now: float) -> int:
        return math.floor(now / self.policy.window * SLOTS)

    def _forget(self, now: float) -> None:
        oldest = self._number(now) - SLOTS
        while self._slots and self._slots[0].number < oldest:
            self._slots.popleft()
