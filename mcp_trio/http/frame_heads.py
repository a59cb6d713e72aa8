"""Frames of any protocol as their bytes come: heads are looked at, payloads passed over.

What a head says, and how much of it is too much, is for `http2_floods` and `ws_bounds`.
"""

from __future__ import annotations

import abc
from typing import Generic, TypeVar

T = TypeVar("T")
"""What says that there is too much of something."""


class FrameHeads(abc.ABC, Generic[T]):
    """A walk over the frames of one connection, in whatever pieces they come."""

    def __init__(self, skip: int = 0) -> None:
        """Begin with the first head.

        Args:
            skip: bytes before it.
        """
        self._skip = skip  # bytes of a payload that are still to come
        self._head = bytearray()  # of a frame, while it is not all there

    def take(self, data: bytes, now: float) -> T | None:
        """Count the frames that have come. Returns what there is too much of, if there is."""
        at, end = 0, len(data)
        while at < end:
            if self._skip:
                step = min(self._skip, end - at)
                self._skip -= step
                at += step
                continue
            step = self._wanted() - len(self._head)
            self._head += data[at : at + step]
            at += step
            if len(self._head) == self._wanted():
                excess = self._count(now)
                if excess is not None:
                    return excess
                self._head.clear()
        return None

    @abc.abstractmethod
    def _wanted(self) -> int:
        """How many bytes the head has, as far as those that are there tell."""

    @abc.abstractmethod
    def _count(self, now: float) -> T | None:
        """Judge a whole head, and set `_skip` to the length of what follows it."""
