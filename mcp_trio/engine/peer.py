"""Who waits for whom: the ids of one conversation, both directions.

Sans-I/O and blind to what a request means. `Pending` is the caller's record of a
request of ours, `Running` the record of one of the peer's; the session chooses both.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

from mcp_trio.errors import ProtocolError
from mcp_trio.wire.basic import RequestId

Pending = TypeVar("Pending")
Running = TypeVar("Running")

REMEMBERED = 1024
"""Abandoned ids kept to tell a late answer from a wrong one."""


def key(id_: RequestId) -> tuple[bool, RequestId]:
    """Make ids comparable as JSON means them: `7` and `"7"` differ, as do 1 and True."""
    return (type(id_) is str, id_)


class Peer(Generic[Pending, Running]):
    """The books of one conversation.

    Invariant: every id is in at most one of pending and abandoned, and an entry leaves
    its dict exactly once, so "nothing pending" can be asserted after any test.
    """

    def __init__(self) -> None:
        self._next = 0
        self.pending: dict[RequestId, Pending] = {}
        self.running: dict[tuple[bool, RequestId], Running] = {}
        self._abandoned: OrderedDict[RequestId, None] = OrderedDict()
        self.late = 0
        """Answers that came after their request was abandoned."""
        self.unmatched = 0
        """Answers to nothing we asked."""

    def issue(self, entry: Pending) -> int:
        """Give a new id to a request of ours. Ids of one conversation never repeat (B2)."""
        self._next += 1
        self.pending[self._next] = entry
        return self._next

    def resolve(self, id_: RequestId | None) -> Pending | None:
        """Take out the request that an answer belongs to; None if there is none."""
        entry = self.pending.pop(id_, None) if type(id_) is int else None
        if entry is None:
            if id_ in self._abandoned:
                self.late += 1
            else:
                self.unmatched += 1
        return entry

    def abandon(self, id_: RequestId) -> bool:
        """Stop waiting for an answer. False if it has been resolved meanwhile."""
        if self.pending.pop(id_, None) is None:
            return False
        self._abandoned[id_] = None
        if len(self._abandoned) > REMEMBERED:
            self._abandoned.popitem(last=False)
        return True

    def begin(self, id_: RequestId, entry: Running) -> None:
        """Note that a request of the peer is running.

        Raises:
            ProtocolError: one with this id is running already.
        """
        if key(id_) in self.running:
            raise ProtocolError("Invalid request: a request with this id is still running")
        self.running[key(id_)] = entry

    def find(self, id_: RequestId) -> Running | None:
        """Look up a running request of the peer."""
        return self.running.get(key(id_))

    def finish(self, id_: RequestId) -> None:
        """Note that a request of the peer is over."""
        del self.running[key(id_)]
