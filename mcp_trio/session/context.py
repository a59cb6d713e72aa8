"""What a handler is given besides its arguments.

A `Context` belongs to one request and dies with it. It holds no transport: telling the
client something goes through the `Exchange` it was made with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import attrs
import trio

from mcp_trio.errors import InvalidParamsError
from mcp_trio.wire import ClientCapabilities, Implementation, JSONObject, RequestId, Revision
from mcp_trio.wire.converter import from_wire
from mcp_trio.wire.notices import LOG_LEVELS


class Exchange(Protocol):
    """The line back to the client while one request is running."""

    async def notify(self, method: str, params: JSONObject) -> None:
        """Send a notification that belongs to the running request.

        Waits for room in a bounded buffer. A client that is gone is not an error:
        the request's scope is cancelled by whoever noticed.
        """
        ...

    async def keep_alive(self) -> None:
        """Show on a quiet stream that it is still there; nothing where there is no stream."""
        ...


@attrs.frozen(kw_only=True)
class Principal:
    """Who calls, as established by the transport. Anonymous callers have none."""

    subject: str
    scopes: frozenset[str] = frozenset()
    claims: Mapping[str, object] = attrs.field(factory=dict[str, object])


def _thread_is_cancelled() -> bool:
    try:
        trio.from_thread.check_cancelled()
    except trio.Cancelled:
        return True
    return False


@attrs.define(kw_only=True, eq=False)
class Context:
    """The running request, as its handler sees it."""

    request_id: RequestId
    method: str
    revision: Revision
    exchange: Exchange
    scope: trio.CancelScope
    """The request's own scope. Whatever ends the request cancels it."""
    meta: JSONObject = attrs.field(factory=dict[str, object])
    """The request's `_meta`, as it came."""
    client_info: JSONObject | None = None
    """Name and version of the client as it sent them; see `client`."""
    capabilities: JSONObject = attrs.field(factory=dict[str, object])
    """What the client declared, as it sent it; see `client_capabilities`."""
    principal: Principal | None = None
    server: object = None
    """The `MCPServer` that runs the handler."""
    progress_token: int | str | None = None
    log_level: Callable[[], str | None] = attrs.field(default=lambda: None)
    """The least severe level the client wants now, None for no log messages at all."""
    _progress: float | None = None

    @property
    def client(self) -> Implementation | None:
        """Who calls, by its own word; None if it did not say or not properly. For display only."""
        if self.client_info is None:
            return None
        try:
            return from_wire(self.client_info, Implementation, self.revision)
        except InvalidParamsError:
            return None

    @property
    def client_capabilities(self) -> ClientCapabilities:
        """What the client can be asked for.

        Raises:
            InvalidParamsError: what it declared has the wrong shape.
        """
        return from_wire(
            self.capabilities, ClientCapabilities, self.revision, where="clientCapabilities"
        )

    @property
    def cancel_requested(self) -> bool:
        """True once the request has been cancelled; for code that cannot be interrupted.

        Works in a task and in the worker thread of a synchronous tool.
        """
        try:
            return self.scope.cancel_called
        except RuntimeError:  # no Trio in this thread
            return _thread_is_cancelled()

    async def progress(
        self, value: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Tell the client how far the work has come.

        Does nothing when the client did not ask. A value that is not greater than the
        last one is dropped, because the protocol demands growth (P1).

        Raises:
            trio.Cancelled: the request is over.
        """
        # Always: a handler that does nothing but report can be cancelled, whoever listens.
        await trio.lowlevel.checkpoint()
        if self.progress_token is None or not self._grows(value):
            return
        params: JSONObject = {"progressToken": self.progress_token, "progress": value}
        if total is not None:
            params["total"] = total
        if message is not None:
            params["message"] = message
        await self.exchange.notify("notifications/progress", params)

    def _grows(self, value: float) -> bool:
        if self._progress is not None and value <= self._progress:
            return False
        self._progress = value
        return True

    async def log(self, level: str, data: object, *, logger: str | None = None) -> None:
        """Send a line to the client's log, if it asked for that level (G1).

        Args:
            level: one of the eight syslog levels, `debug` to `emergency`.
            data: any JSON value. Never put secrets in it.
            logger: the name of the part that speaks.

        Raises:
            ValueError: the level does not exist.
        """
        severity = LOG_LEVELS.index(level)
        wanted = self.log_level()
        await trio.lowlevel.checkpoint()
        if wanted is None or severity < LOG_LEVELS.index(wanted):
            return
        params: JSONObject = {"level": level, "data": data}
        if logger is not None:
            params["logger"] = logger
        await self.exchange.notify("notifications/message", params)
