"""Places to run, one for a request, and the counts they are taken from; see `admission`."""

from __future__ import annotations

import enum
from collections.abc import Hashable
from types import TracebackType
from typing import Protocol, Self

import trio

from mcp_trio.errors import OverloadedError
from mcp_trio.events import Reporter


class Limit(enum.StrEnum):
    """What a request was over: `data.limit` of the refusal, and the label of its counter."""

    REQUESTS = "requests"
    SESSION = "session_requests"
    CALLER = "caller_requests"
    LISTENERS = "listeners"
    CALLER_LISTENERS = "caller_listeners"
    RATE = "rate"
    CALLER_RATE = "caller_rate"
    TOOL = "tool_requests"
    TOOL_RATE = "tool_rate"
    CALLER_TOOL_RATE = "caller_tool_rate"


OF_ONE = frozenset(
    {
        Limit.SESSION,
        Limit.CALLER,
        Limit.CALLER_LISTENERS,
        Limit.CALLER_RATE,
        Limit.CALLER_TOOL_RATE,
    }
)
"""Limits that one caller has reached by himself; the others are those of all together."""


class Share:
    """So many places of one kind, and how many of them are taken."""

    __slots__ = ("held", "key", "limit", "most", "users")

    def __init__(self, most: int | None, limit: Limit, key: Hashable = None) -> None:
        """Begin with none taken.

        Args:
            most: places; None for any number.
            limit: what to call it.
            key: where it is kept, if it is dropped once nobody uses it.
        """
        self.most = most
        self.limit = limit
        self.key = key
        self.held = 0
        self.users = 0
        """Requests that hold a place or wait for one."""

    @property
    def full(self) -> bool:
        """Whether there is no place left."""
        return self.most is not None and self.held >= self.most


class SessionLoad:
    """What one session has running."""

    __slots__ = ("listeners", "requests")

    def __init__(self, most: int | None) -> None:
        """Begin with nothing.

        Args:
            most: requests that may run at once, and as many listeners that may be open.
        """
        self.requests = Share(most, Limit.SESSION)
        self.listeners = Share(most, Limit.SESSION)


class Keeper(Protocol):
    """Who gives places, and takes them back."""

    @property
    def queue_timeout(self) -> float:
        """Seconds that a place may be waited for."""
        ...

    def leave(self, place: Place) -> None:
        """Take a place back, or out of the queue."""
        ...

    def refusal(self, limit: Limit, method: str, reporter: Reporter | None) -> OverloadedError:
        """Count a refusal, and make the error that says so."""
        ...


class Place:
    """The right of one request to run, or its turn in the queue.

    Given back by `release`, or at the end of the block if it is used as a context manager.
    """

    __slots__ = ("_keeper", "_over", "_reporter", "_turn", "caller", "method", "shares")

    def __init__(
        self,
        keeper: Keeper,
        method: str,
        caller: Hashable,
        shares: tuple[Share, ...],
        reporter: Reporter | None = None,
    ) -> None:
        """Make one; `take` or `wait` comes next, by whoever makes it.

        Args:
            keeper: takes it back.
            method: of the request.
            caller: whose it is, as far as limits are concerned.
            shares: what it takes one place of, each; the narrowest first.
            reporter: tells observers if it is refused later.
        """
        self._keeper = keeper
        self._reporter = reporter
        self._over = False
        self._turn: trio.Event | None = None
        self.method = method
        self.caller = caller
        self.shares = shares
        for share in shares:
            share.users += 1

    @property
    def blocked(self) -> Limit | None:
        """The first limit that is in its way; None if it may run."""
        for share in self.shares:
            if share.full:
                return share.limit
        return None

    @property
    def waiting(self) -> bool:
        """Whether it is in the queue: whoever has it waits for its `turn` before anything else."""
        return self._turn is not None

    def take(self) -> None:
        """Hold it from now on."""
        for share in self.shares:
            share.held += 1
        if self._turn is not None:
            self._turn.set()
            self._turn = None

    def wait(self) -> None:
        """Wait for its turn from now on."""
        self._turn = trio.Event()

    def give_up(self) -> None:
        """End its wait: somebody else needs the place in the queue more."""
        if self._turn is not None:
            self._turn.set()

    async def turn(self) -> OverloadedError | None:
        """Wait for its turn, if that has not come yet. Cancelled, it is still to be released.

        Returns:
            The refusal, if the turn did not come in time or was given up; then it is released.
        """
        turn = self._turn
        if turn is None:
            return None
        with trio.move_on_after(self._keeper.queue_timeout):
            await turn.wait()
        if self._turn is None:
            return None
        limit = self.blocked or Limit.REQUESTS
        self.release()
        return self._keeper.refusal(limit, self.method, self._reporter)

    def release(self) -> None:
        """Give it back, or leave the queue. Idempotent."""
        if not self._over:
            self._over = True
            self._keeper.leave(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()
