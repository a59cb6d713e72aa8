"""Letting the peer's requests into one session: a place, an id that is free, and the handler's yes.

All of it is synchronous and in wire order; what was let in is run by `session`.
"""

from __future__ import annotations

import attrs
import trio

from mcp_trio.engine.envelope import Envelope
from mcp_trio.engine.peer import Peer
from mcp_trio.eras.admission import error_message
from mcp_trio.errors import MCPError
from mcp_trio.events import Reporter
from mcp_trio.jsonrpc.messages import Error, Request
from mcp_trio.session.admission import Admission, caller_of
from mcp_trio.session.call import PendingCall
from mcp_trio.session.inbound import Inbound, Line, Runner, SessionHandler
from mcp_trio.session.limits import LoadLimits
from mcp_trio.session.places import Place, SessionLoad


@attrs.frozen
class Accepted:
    """A request that was let in; whoever runs it gives its place back."""

    inbound: Inbound
    runner: Runner


class Entrance:
    """The way into one session."""

    def __init__(
        self,
        line: Line,
        peer: Peer[PendingCall, Inbound],
        handler: SessionHandler,
        reporter: Reporter,
        admission: Admission | None,
        most: int,
    ) -> None:
        """Make one.

        Args:
            line: the way back.
            peer: the books.
            handler: says what a request means.
            reporter: tells observers.
            admission: decides beside other sessions; None if this one is alone.
            most: requests that may run at once, if it is alone.
        """
        self._line = line
        self._peer = peer
        self._handler = handler
        self._reporter = reporter
        self._admission = admission or Admission(LoadLimits(max_in_flight=most))
        self.load = SessionLoad(self._admission.limits.max_in_flight_per_session)
        """What runs in this session, as the admission counts it."""
        self.caller: str | None = None
        """What the peer counts as where a message does not say who sent it; see `caller_of`."""

    def admit(
        self,
        request: Request,
        envelope: Envelope,
        place: Place | None = None,
        *,
        closed: MCPError | None = None,
    ) -> Accepted | Error:
        """Let a request in, or answer why not.

        Args:
            request: the message, or one of a batch.
            envelope: what it came in.
            place: that was given to it already; taken over.
            closed: why nothing can run any more; HTTP may bring a request all the same.
        """
        self._reporter.received(request.method, request.id)
        try:
            if closed is not None:
                raise closed
            if place is None:
                place = self._admission.enter(
                    request.method, self._caller(envelope), self.load, self._reporter
                )
            return Accepted(*self._begin(request, envelope, place))
        except MCPError as error:
            if place is not None:
                place.release()
            now = trio.current_time()
            self._reporter.completed(request.method, request.id, "error", began=now)
            return error_message(request.id, error)

    def _caller(self, envelope: Envelope) -> str | None:
        known = envelope.principal
        return self.caller if known is None else caller_of(known, None)

    def _begin(self, request: Request, envelope: Envelope, place: Place) -> tuple[Inbound, Runner]:
        inbound = Inbound(self._line, request, place)
        inbound.principal, inbound.related = envelope.principal, envelope.related
        self._peer.begin(request.id, inbound)
        try:
            return inbound, self._handler.admit(request, envelope.headers)
        except MCPError:
            self._peer.finish(request.id)
            raise
