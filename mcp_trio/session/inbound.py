"""Requests of the peer while they run, and the contract of whoever answers them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, TypeAlias

import trio
import trio.lowlevel

from mcp_trio.engine.envelope import Principal
from mcp_trio.eras.admission import error_message
from mcp_trio.errors import MCPError, MethodNotFoundError, RequestCancelledError, sole_cause
from mcp_trio.jsonrpc.messages import Error, Message, Notification, Request, Result
from mcp_trio.session.dispatch import handler_failed
from mcp_trio.session.places import Place
from mcp_trio.wire import JSONObject, RequestId


class Line(Protocol):
    """The way back to the peer."""

    async def send(self, message: Message, *, related: RequestId | None = None) -> None:
        """Send a message, beside one of the peer's running requests if it belongs to it."""
        ...

    async def call(
        self, method: str, params: JSONObject, *, related: RequestId | None = None
    ) -> JSONObject:
        """Send a request and wait for its result, beside one of the peer's running requests."""
        ...

    def doom(self, inbound: Inbound) -> None:
        """Start the clock for the cleanup of a cancelled handler."""
        ...

    def release(self, id_: RequestId, retry_ms: int) -> None:
        """Let the connection that waits for this request's answer go."""
        ...


class Inbound:
    """One running request of the peer: its scope, its task, and the line back."""

    cuts_cleanly = True

    __slots__ = ("line", "place", "principal", "reason", "related", "request", "scope", "task")

    def __init__(self, line: Line, request: Request, place: Place) -> None:
        self.line = line
        self.request = request
        self.place = place
        """Its right to run; whoever runs it waits for its turn, the session gives it back."""
        self.scope = trio.CancelScope()
        self.reason: str | None = None
        """Why the peer cancelled it; None while it did not."""
        self.related: RequestId | None = None
        """The call of ours on whose stream it came, where the transport has such streams."""
        self.principal: Principal | None = None
        """Who sent it, if it came with a proof of its own; else the session knows."""
        self.task: trio.lowlevel.Task

    @property
    def label(self) -> str:
        """What to call it in a log line."""
        return f"{self.request.method} (id {self.request.id!r:.64})"

    async def notify(self, method: str, params: JSONObject) -> None:
        """Send a notification that belongs to this request; see `context.Exchange`."""
        if self.reason is None:
            await self.line.send(Notification(method, params), related=self.request.id)

    async def ask(self, method: str, params: JSONObject) -> JSONObject:
        """Send a request that belongs to this one; see `context.Exchange`."""
        if self.reason is not None:
            raise RequestCancelledError("the request that asks was cancelled")
        return await self.line.call(method, params, related=self.request.id)

    def bound_cleanup(self) -> None:
        """Start the clock for the cleanup; see `context.Exchange`."""
        self.line.doom(self)

    async def keep_alive(self) -> None:
        """Do nothing: the line is kept alive by what it carries."""

    def close_stream(self, retry_ms: int) -> None:
        """Let the connection go, if this request has one of its own; see `context.Exchange`."""
        self.line.release(self.request.id, retry_ms)


Runner: TypeAlias = Callable[[Inbound], Awaitable[Result | Error]]
"""Runs an admitted request inside its scope."""


class SessionHandler(Protocol):
    """What a session does with the peer's messages."""

    @property
    def batches(self) -> bool:
        """Whether arrays of messages are allowed now."""
        ...

    def admit(self, request: Request, headers: Mapping[str, str] | None) -> Runner:
        """Accept a request. Synchronous and in wire order.

        Raises:
            MCPError: the answer is this error.
        """
        ...

    def notified(self, notification: Notification) -> None:
        """Take a notification. Synchronous and in wire order; must not raise for its content."""
        ...


class Deaf:
    """A handler for a side that offers nothing but `ping`."""

    batches = False

    def admit(self, request: Request, headers: Mapping[str, str] | None) -> Runner:  # noqa: ARG002 - the contract
        """Know no method."""
        raise MethodNotFoundError("Method not found")

    def notified(self, notification: Notification) -> None:
        """Need no notification."""


class FunctionHandler:
    """A handler made of two functions, for a bare dispatcher."""

    batches = False

    def __init__(
        self,
        on_request: Callable[[str, JSONObject, Inbound], Awaitable[JSONObject]],
        on_notification: Callable[[str, JSONObject], None] | None = None,
    ) -> None:
        """Make one.

        Args:
            on_request: gets method, parameters and the running request; returns the result
                or raises an `MCPError` for the peer.
            on_notification: gets method and parameters; must not wait.
        """
        self._on_request = on_request
        self._on_notification = on_notification

    def admit(self, request: Request, headers: Mapping[str, str] | None) -> Runner:  # noqa: ARG002 - the contract
        """Accept everything; the function decides."""

        async def run(inbound: Inbound) -> Result | Error:
            try:
                result = await self._on_request(request.method, request.params or {}, inbound)
                return Result(request.id, result)
            except Exception as error:  # noqa: BLE001 - the boundary of a bare dispatcher
                cause = sole_cause(error)
                if not isinstance(cause, MCPError):
                    cause = handler_failed(request.method[:64], cause)
                return error_message(request.id, cause)

        return run

    def notified(self, notification: Notification) -> None:
        """Pass it on."""
        if self._on_notification is not None:
            self._on_notification(notification.method, notification.params or {})
