"""One POST of the stateless era: admitted, run in its own cancel scope, answered.

There is no session here and no task beyond the one that serves the POST. The peer's
going away and the deadline both end the scope, and the scope ends the handler (N7).
"""

from __future__ import annotations

import attrs
import trio
import trio.lowlevel

from mcp_trio.eras import stateless
from mcp_trio.eras.admission import Admitted, error_message
from mcp_trio.errors import MISSING_CAPABILITY, MCPError, MethodNotFoundError
from mcp_trio.http.requests import HTTPRequest
from mcp_trio.http.responses import Header, Responder, Send, refuse
from mcp_trio.jsonrpc import codec
from mcp_trio.jsonrpc.messages import Error, Notification, Request, Result
from mcp_trio.session.dispatch import (
    Service,
    deadline_for,
    dispatch,
    encode_reply,
    make_context,
    timed_out,
)
from mcp_trio.session.reaper import Reaper
from mcp_trio.wire import JSONObject


@attrs.define(eq=False)
class StatelessExchange:
    """One running request; the `Exchange` of its handler."""

    admitted: Admitted
    responder: Responder
    reaper: Reaper
    scope: trio.CancelScope
    task: trio.lowlevel.Task
    gone: bool = False

    @property
    def label(self) -> str:
        """What to call it in a log line."""
        return f"{self.admitted.method.name} (id {self.admitted.request.id!r:.64})"

    def peer_gone(self) -> None:
        """End the request: there is nobody left to answer."""
        self.gone = True
        self.scope.cancel()
        self.reaper.doom(self)

    async def notify(self, method: str, params: JSONObject) -> None:
        """Send a notification on this request's own stream."""
        try:
            await self.responder.event(codec.encode(Notification(method, params)))
        except trio.BrokenResourceError:
            self.peer_gone()
            await trio.lowlevel.checkpoint()

    async def ask(self, method: str, params: JSONObject) -> JSONObject:  # noqa: ARG002 - the contract
        """Refuse: in this era nothing is asked on a stream (R1)."""
        await trio.lowlevel.checkpoint()
        raise MethodNotFoundError(f"{method} is no request in this era")

    def bound_cleanup(self) -> None:
        """Start the clock for the cleanup of a handler whose round has ended."""
        self.reaper.doom(self)

    def close_stream(self, retry_ms: int) -> None:
        """Do nothing: in this era the stream is the request (N7)."""

    async def keep_alive(self) -> None:
        """Send a comment on this request's own stream."""
        try:
            await self.responder.comment()
        except trio.BrokenResourceError:
            self.peer_gone()
            await trio.lowlevel.checkpoint()


def _status(error: MCPError) -> int:
    return 404 if isinstance(error, MethodNotFoundError) else 400


async def serve_request(
    service: Service,
    message: Request,
    http: HTTPRequest,
    send: Send,
    reaper: Reaper,
    cors: tuple[Header, ...],
) -> None:
    """Serve one stateless request from admission to the end of its response."""
    try:
        admitted = stateless.admit(message, http.headers, service.facts)
    except MCPError as error:
        fault = error_message(message.id, error)
        await refuse(send, _status(error), error.message, error=fault, headers=cors)
        return
    scope = trio.CancelScope(deadline=deadline_for(service, admitted))
    responder = Responder(send, http.accepts, cors)
    exchange = StatelessExchange(admitted, responder, reaper, scope, trio.lowlevel.current_task())
    reply: Result | Error | None = None
    reaper.add(exchange)
    reaper.limit(exchange, scope.deadline)
    try:
        with scope:
            async with http.watching(exchange.peer_gone):
                context = make_context(service, admitted, exchange, scope)
                reply = await dispatch(service, admitted, context)
    finally:
        reaper.remove(exchange)
    if exchange.gone:
        return
    if reply is None:
        reply = timed_out(admitted)
    refused = isinstance(reply, Error) and reply.code == MISSING_CAPABILITY
    await responder.finish(encode_reply(reply), status=400 if refused else 200)
