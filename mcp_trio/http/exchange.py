"""One POST of the stateless era: admitted, run in its own cancel scope, answered.

There is no session here and no task beyond the one that serves the POST. The peer's
going away and the deadline both end the scope, and the scope ends the handler (N7).
"""

from __future__ import annotations

from functools import partial

import attrs
import trio
import trio.lowlevel

from mcp_trio.eras import stateless
from mcp_trio.eras.admission import Admitted, error_message
from mcp_trio.errors import MCPError, MethodNotFoundError
from mcp_trio.events import Outcome, Reporter, outcome_of
from mcp_trio.http.options import good_until
from mcp_trio.http.requests import HTTPRequest
from mcp_trio.http.responses import Header, Responder, Send, refuse, verdict_of
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
from mcp_trio.session.limits import UNTIMED
from mcp_trio.session.places import Place
from mcp_trio.session.reaper import Reaper
from mcp_trio.wire import JSONObject


@attrs.define(eq=False)
class StatelessExchange:
    """One running request; the `Exchange` of its handler."""

    admitted: Admitted
    responder: Responder
    reaper: Reaper
    reporter: Reporter
    scope: trio.CancelScope
    task: trio.lowlevel.Task
    place: Place
    gone: bool = False
    late: float | None = None
    """Seconds from its cancellation, if there was one, to its end."""

    @property
    def cuts_cleanly(self) -> bool:
        """False: a write that is cancelled half way breaks the connection."""
        return False

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
        else:
            self.reporter.emitted(method, params)

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


async def serve_request(  # noqa: PLR0913  # the parts of one exchange
    service: Service,
    message: Request,
    http: HTTPRequest,
    send: Send,
    reaper: Reaper,
    cors: tuple[Header, ...],
    *,
    place: Place,
) -> None:
    """Serve one stateless request from admission to the end of its response.

    The place is its right to run, or its turn in the queue; given back before the answer is sent.
    """
    reporter = Reporter(service.events, "server")
    reporter.received(message.method, message.id)
    began = trio.current_time()
    try:
        admitted = stateless.admit(message, http.headers, service.facts)
    except MCPError as error:
        reporter.completed(message.method, message.id, "error", began=began)
        fault = error_message(message.id, error)
        await refuse(send, _status(error), error.message, error=fault, headers=cors)
        return
    deadline = deadline_for(service, admitted)
    if admitted.method.name in UNTIMED:  # it only listens, on the strength of one proof
        deadline = good_until(http.principal)
    exchange = StatelessExchange(
        admitted,
        http.responder(send, cors),
        reaper,
        reporter,
        trio.CancelScope(deadline=deadline),
        trio.lowlevel.current_task(),
        place,
    )
    outcome: Outcome = "cancelled"
    try:
        reply = await _run(service, exchange, http)
        if reply is not None:
            outcome = outcome_of(reply.result) if isinstance(reply, Result) else "error"
    finally:
        reporter.completed(
            message.method,
            message.id,
            outcome,
            began=began,
            late=exchange.late,
        )
    if reply is not None:
        await exchange.responder.finish(encode_reply(reply), verdict=verdict_of(reply))


async def _in_turn(
    service: Service, exchange: StatelessExchange, http: HTTPRequest
) -> Result | Error:
    admitted, place, scope = exchange.admitted, exchange.place, exchange.scope
    if place.waiting and (refused := await place.turn()) is not None:
        return error_message(admitted.request.id, refused)
    who = http.principal
    context = make_context(service, admitted, exchange, scope, principal=who, caller=place.caller)
    return await dispatch(service, admitted, context)


async def _run(
    service: Service, exchange: StatelessExchange, http: HTTPRequest
) -> Result | Error | None:
    """Run the request in its scope; None if there is nobody left to answer."""
    admitted, reaper, scope = exchange.admitted, exchange.reaper, exchange.scope
    reply: Result | Error | None = None
    reaper.add(exchange)
    reaper.limit(exchange, scope.deadline)
    try:
        with scope:
            work = partial(_in_turn, service, exchange, http)
            reply = await http.watched(exchange.peer_gone, work)
    finally:
        exchange.late = reaper.remove(exchange)
        exchange.place.release()
    if exchange.gone:
        return None
    return timed_out(admitted) if reply is None else reply
