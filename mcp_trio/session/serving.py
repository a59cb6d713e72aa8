"""A server's side of a line that stays open: stdio, memory, WebSocket, byte streams.

Both eras may be spoken on it at once (V5): a request that brings its own version is
served by itself, everything else belongs to the one handshake of the line.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextvars import ContextVar

import trio

from mcp_trio.abc import Transport
from mcp_trio.engine.envelope import Principal
from mcp_trio.engine.lifecycle import Stage
from mcp_trio.engine.subscriptions import Mailbox, Notice, honoured
from mcp_trio.eras import stateless
from mcp_trio.eras.admission import Admitted, error_message
from mcp_trio.eras.detect import is_stateless
from mcp_trio.eras.handshake import HandshakeEra
from mcp_trio.errors import MCPError, NotInitializedError
from mcp_trio.events import Reporter
from mcp_trio.jsonrpc.messages import Error, Notification, Request, Result
from mcp_trio.session.admission import caller_of
from mcp_trio.session.context import Context
from mcp_trio.session.dispatch import Service, deadline_for, dispatch, make_context
from mcp_trio.session.inbound import Inbound, Runner
from mcp_trio.session.limits import SessionLimits
from mcp_trio.session.session import Dispatcher
from mcp_trio.wire.notices import SubscriptionFilter

EVERYTHING = SubscriptionFilter(
    tools_list_changed=True, prompts_list_changed=True, resources_list_changed=True
)
"""Handshake clients do not choose: what was declared when they came is told (LC3)."""


class _Verdict:
    """Whether the handshake is let in: known once `initialize` is answered."""

    __slots__ = ("given", "refused")

    def __init__(self) -> None:
        self.given = trio.Event()
        self.refused = False


_LET_IN = _Verdict()
_LET_IN.given.set()
"""The verdict of all sessions whose handshake is over."""


class ServerSide:
    """The `SessionHandler` of a server."""

    __slots__ = (
        "_dispatcher",
        "_flushing",
        "_mailbox",
        "_verdict",
        "began",
        "handshake",
        "kind",
        "principal",
        "service",
    )

    def __init__(self, service: Service, *, principal: Principal | None = None) -> None:
        self.service = service
        self.principal = principal
        self.kind = "line"
        """What it is listed as: `http`, `websocket`, `stdio` and so on."""
        self.began = math.inf
        """When the session started, on Trio's clock."""
        self.handshake = HandshakeEra()
        self._mailbox = Mailbox(EVERYTHING)
        self._flushing = False
        self._dispatcher: Dispatcher | None = None
        self._verdict = _Verdict()

    def attach(self, dispatcher: Dispatcher) -> None:
        """Take the session over which changes are told to a handshake client."""
        self._dispatcher = dispatcher
        self.kind = kind_of(dispatcher.transport)

    async def run(
        self,
        dispatcher: Dispatcher,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Run the session it is attached to, in tasks that know to which one they belong."""
        outer = SESSION.set(self)
        self.began = trio.current_time()
        try:
            await dispatcher.run(task_status=task_status)
        finally:
            SESSION.reset(outer)

    @property
    def label(self) -> str:
        """The session's name in events and logs; no secret, and no way into the session."""
        return "" if self._dispatcher is None else self._dispatcher.label

    @property
    def in_flight(self) -> int:
        """Requests of the client that run now."""
        return 0 if self._dispatcher is None else len(self._dispatcher.peer.running)

    def deliver(self, notice: Notice | None) -> None:
        """Queue a change for the client, if it has opened the handshake. Never waits."""
        if notice is None or self.handshake.stage is Stage.NEW or self._dispatcher is None:
            return
        if self._mailbox.put(notice) and not self._flushing:
            # One task at a time: what comes while a client does not read waits, coalesced.
            self._flushing = True
            self._dispatcher.spawn(self._flush)

    def watch(self, uri: str) -> None:
        """Tell this client when a resource changes; see `context.Watcher`."""
        self._mailbox.watch(uri)

    def unwatch(self, uri: str) -> None:
        """Stop telling it."""
        self._mailbox.unwatch(uri)

    async def _flush(self) -> None:
        dispatcher = self._dispatcher
        if dispatcher is None:
            return
        try:
            while (notice := self._mailbox.take()) is not None:
                await dispatcher.notify(notice.method, notice.params())
        except MCPError:
            pass  # the client is gone, and its session with it
        finally:
            self._flushing = False

    @property
    def batches(self) -> bool:
        """Whether the negotiated revision has batches."""
        return self.handshake.revision.batches

    def admit(self, request: Request, headers: Mapping[str, str] | None) -> Runner:
        """Choose the era and let it accept the request. Raises as the era does."""
        facts = self.service.facts
        if headers is None and is_stateless(request):
            admitted = stateless.admit(request, None, facts)
        else:
            new = self.handshake.stage is Stage.NEW
            admitted = self.handshake.admit(request, facts)
            if new and self.handshake.stage is not Stage.NEW:
                self._mailbox = Mailbox(honoured(EVERYTHING, facts.capabilities))
                self._verdict = _Verdict()
        return self._runner(admitted)

    def _runner(self, admitted: Admitted) -> Runner:
        verdict = self._verdict

        async def answer(inbound: Inbound) -> Result | Error:
            inbound.scope.deadline = deadline_for(self.service, admitted)
            if self._dispatcher is not None:
                self._dispatcher.reaper.limit(inbound, inbound.scope.deadline)
            place = inbound.place
            if place.waiting and (refused := await place.turn()) is not None:
                return error_message(admitted.request.id, refused)
            who = self.principal if inbound.principal is None else inbound.principal
            context = make_context(
                self.service, admitted, inbound, inbound.scope, principal=who, caller=place.caller
            )
            if admitted.era is not self.handshake or admitted.method.name == "ping":
                return await dispatch(self.service, admitted, context)
            context.watcher = self
            if admitted.method.name == "initialize":
                return await self._open(admitted, context, verdict)
            # A client need not wait for the answer to `initialize`, so its calls do.
            if not verdict.given.is_set():
                await verdict.given.wait()
            if verdict.refused:
                refusal = NotInitializedError("Invalid request: initialize was refused")
                return error_message(admitted.request.id, refusal)
            return await dispatch(self.service, admitted, context)

        async def run(inbound: Inbound) -> Result | Error:
            # Over HTTP the task of a request is begun by that of a POST, which knows no session.
            outer = SESSION.set(self)
            try:
                return await answer(inbound)
            finally:
                SESSION.reset(outer)

        return run

    async def _open(
        self, admitted: Admitted, context: Context, verdict: _Verdict
    ) -> Result | Error:
        """Run `initialize`; any other end than a result closes the handshake again."""
        verdict.refused = True
        try:
            reply = await dispatch(self.service, admitted, context)
            verdict.refused = isinstance(reply, Error)
        finally:
            if verdict.refused:
                self.handshake.close()
            verdict.given.set()
        if not verdict.refused and verdict is self._verdict:
            self._verdict = _LET_IN
        return reply

    def notified(self, notification: Notification) -> None:
        """Take note of the end of the handshake; other notifications mean nothing here."""
        self.handshake.notified(notification)


SESSION: ContextVar[ServerSide | None] = ContextVar("mcp_trio_session", default=None)
"""The session that a task of a server belongs to, for those who show or log what goes on."""


def kind_of(transport: Transport) -> str:
    """What sessions on a transport are listed as: its `kind`, if it has one."""
    return str(getattr(transport, "kind", "line"))


async def serve_line(
    service: Service,
    transport: Transport,
    *,
    limits: SessionLimits | None = None,
    principal: Principal | None = None,
    address: str | None = None,
    task_status: trio.TaskStatus[Dispatcher] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve one client over one transport until it closes the line or this is cancelled.

    Args:
        service: the server.
        transport: the line; taken over and closed.
        limits: bounds of the session.
        principal: who the client is, if the line established it.
        address: where it comes from, as it counts against limits of each caller.
        task_status: reports the running session.
    """
    side = ServerSide(service, principal=principal)
    reporter = Reporter(service.events, "server")
    dispatcher = Dispatcher(
        transport, side, limits=limits, reporter=reporter, admission=service.admission
    )
    dispatcher.entrance.caller = caller_of(principal, address)
    side.attach(dispatcher)
    with service.notices.listening(side.deliver):
        async with trio.open_nursery() as nursery:
            await nursery.start(side.run, dispatcher)
            task_status.started(dispatcher)
