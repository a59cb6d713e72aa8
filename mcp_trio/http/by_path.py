"""Several endpoints on one port, each at a path of its own, each a server of its own."""

from __future__ import annotations

from collections.abc import Mapping

import trio

from mcp_trio.http.app import HTTPApp
from mcp_trio.http.protected import subject_of
from mcp_trio.http.responses import Receive, Scope, Send
from mcp_trio.http.statistics import AppStatistics


class ByPath:
    """An ASGI application that hands each request to the endpoint of its path.

    What belongs to no other path belongs to the first endpoint, which says that there is nothing
    and answers the probes.
    """

    def __init__(self, first: HTTPApp, others: Mapping[str, HTTPApp]) -> None:
        """Make one.

        Args:
            first: for everything else.
            others: by path, without a slash at the end.
        """
        self._first = first
        self._others = dict(others)

    @property
    def _all(self) -> tuple[HTTPApp, ...]:
        return (self._first, *self._others.values())

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Hold the sessions of all endpoints until cancelled."""
        async with trio.open_nursery() as nursery:
            for app in self._all:
                await nursery.start(app.run)
            task_status.started()

    def drain(self) -> None:
        """Begin to go down, all together."""
        for app in self._all:
            app.drain()

    def statistics(self) -> AppStatistics:
        """Count what is going on at all of them."""
        first, *others = [app.statistics() for app in self._all]
        return sum(others, first)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        path = subject_of(str(scope.get("path", ""))).rstrip("/")
        await self._others.get(path, self._first)(scope, receive, send)
