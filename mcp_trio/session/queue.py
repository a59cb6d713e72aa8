"""Who waits for a place, and whose turn it is: callers in turns, and of each the first first.

Pure bookkeeping, bounded by `length`; how a request waits is written in `places`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

from mcp_trio.session.places import Place


class Queue:
    """The places that are waited for."""

    def __init__(self, length: int) -> None:
        """Make an empty one.

        Args:
            length: places that may be waited for.
        """
        self._length = length
        # In the order of their turns. A caller who is served goes to the end.
        self._lines: OrderedDict[Hashable, OrderedDict[Place, None]] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def has(self, caller: Hashable) -> bool:
        """Whether a caller has somebody waiting, whom nobody of his may overtake."""
        return caller in self._lines

    def join(self, place: Place) -> bool:
        """Put a place at the end of its caller's line; False if there is no room for it.

        A full queue makes room for who has less in it than another, at the cost of the last one
        of that other: so nobody can fill it alone.
        """
        if self._size >= self._length and not self._make_room(place.caller):
            return False
        self._lines.setdefault(place.caller, OrderedDict())[place] = None
        self._size += 1
        place.wait()
        return True

    def _make_room(self, caller: Hashable) -> bool:
        if not self._lines:
            return False
        most = max(self._lines.values(), key=len)
        if len(most) <= len(self._lines.get(caller, ())) + 1:
            return False
        last = next(reversed(most))
        self.remove(last)
        last.give_up()
        return True

    def remove(self, place: Place) -> None:
        """Take a place out, if it is still in."""
        line = self._lines.get(place.caller)
        if line is None or place not in line:
            return
        del line[place]
        self._size -= 1
        if not line:
            del self._lines[place.caller]

    def next(self) -> Place | None:
        """Take out the first one that may run, by turns; None if nobody may."""
        for caller, line in self._lines.items():
            first = next(iter(line))
            if first.blocked is None:
                self._lines.move_to_end(caller)
                self.remove(first)
                return first
        return None
