"""Telling the peer which calls of ours nobody waits for any more."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Protocol

import attrs
import trio

from mcp_trio.errors import MCPError
from mcp_trio.wire import JSONObject, RequestId

logger = logging.getLogger("mcp_trio.session")

ABANDON_TIMEOUT = 1.0
"""Seconds that telling the peer about an abandoned call may take, under a shield."""


class Teller(Protocol):
    """The part of a session that is needed here."""

    def spawn(self, function: Callable[..., Awaitable[None]], *args: object) -> None:
        """Run a function as a task of the session."""
        ...

    async def notify(
        self, method: str, params: JSONObject | None = None, *, related: RequestId | None = None
    ) -> None:
        """Send a notification."""
        ...


@attrs.frozen
class _Farewell:
    """A cancellation on its way to the peer."""

    params: JSONObject
    related: RequestId | None
    said: trio.Event = attrs.field(factory=trio.Event)


class Farewells:
    """The cancellations that one session has to tell.

    The telling is a task of the session and not of the caller: when thousands of calls are
    cancelled at once, the last of them is told although its caller has long gone.
    """

    def __init__(self, teller: Teller) -> None:
        self._teller = teller
        self._waiting: deque[_Farewell] | None = None
        """Made when it is needed: even an empty one is large."""

    async def say(self, id_: RequestId, reason: str, related: RequestId | None) -> None:
        """Tell the peer that an answer is not wanted; wait `ABANDON_TIMEOUT` seconds at most."""
        farewell = _Farewell({"requestId": id_, "reason": reason}, related)
        if self._waiting is None:
            self._waiting = deque((farewell,))
            self._teller.spawn(self._say_all, self._waiting)
        else:
            self._waiting.append(farewell)
        with trio.move_on_after(ABANDON_TIMEOUT, shield=True):
            await farewell.said.wait()

    async def _say_all(self, waiting: deque[_Farewell]) -> None:
        try:
            while waiting:
                first = waiting[0]
                await self._teller.notify(
                    "notifications/cancelled", first.params, related=first.related
                )
                waiting.popleft().said.set()
        except MCPError:
            logger.debug("the peer is gone and needs no cancellations")
        finally:
            self._waiting = None
            for farewell in waiting:
                farewell.said.set()
