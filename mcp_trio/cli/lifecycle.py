"""What signals mean to a running service: how it goes down, and what it reads anew."""

from __future__ import annotations

import logging
from collections.abc import Callable

import trio

from mcp_trio.server.server import MCPServer

logger = logging.getLogger("mcp_trio.cli")


class Lifecycle:
    """Takes the signals of one service, for `until_signalled`."""

    def __init__(self, server: MCPServer, *, drain_delay: float = 0.0) -> None:
        """Make one.

        Args:
            server: what is drained, and its certificates loaded anew.
            drain_delay: seconds between the wish to go down, which `/readyz` tells at once, and
                the moment from which nothing new is accepted.
        """
        self._server = server
        self._delay = drain_delay
        self._asked = trio.Event()
        self._reloads: list[Callable[[], object]] = [server.reload_certificates]
        self._leaves: list[Callable[[], object]] = []

    @property
    def leaving(self) -> bool:
        """Whether the service is not ready any more because it goes down."""
        return self._asked.is_set() or self._server.notices.draining

    def leave(self) -> None:
        """Begin to go down; `run` does the rest. Idempotent."""
        if not self._asked.is_set():
            logger.info("told to go down: not ready any more, draining in %g s", self._delay)
            self._asked.set()
            for function in self._leaves:
                function()

    def on_leave(self, function: Callable[[], object]) -> None:
        """Have a function called by the first `leave`. It must not wait."""
        self._leaves.append(function)

    def on_reload(self, function: Callable[[], object]) -> None:
        """Have a function called by each `reload`. It must not wait."""
        self._reloads.append(function)

    def reload(self) -> None:
        """Open logs, load certificates and look at the registry, all anew."""
        for function in self._reloads:
            function()
        logger.info("reloaded: logs, certificates; the catalog looks at its registry")

    async def run(self) -> None:
        """Drain the server once it was told to leave and the delay is over; then return."""
        await self._asked.wait()
        await trio.sleep(self._delay)
        self._server.drain()
