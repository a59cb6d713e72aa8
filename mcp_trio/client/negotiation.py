"""Finding out how a server wants to be spoken to: the two openings, tried in turn.

Which one comes next is decided by the table of `eras.negotiate`; here the messages are sent.
Nothing but openings is sent meanwhile, so no call is ever made twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, cast, runtime_checkable

import attrs
import trio

from mcp_trio.abc import Transport
from mcp_trio.client.options import ClientOptions
from mcp_trio.eras.negotiate import (
    ANEW,
    Known,
    Reply,
    Step,
    best_common,
    classify,
    following,
    nothing_common,
    supported_by,
)
from mcp_trio.eras.stamps import HandshakeStamp, StatelessStamp
from mcp_trio.errors import (
    METHOD_NOT_FOUND,
    UNSUPPORTED_VERSION,
    MCPError,
    RemoteError,
    RequestTimeoutError,
    TransportError,
    UnauthorizedError,
    VersionMismatchError,
)
from mcp_trio.framing.param_headers import ParamHeader
from mcp_trio.jsonrpc.messages import Notification
from mcp_trio.session.session import Dispatcher
from mcp_trio.wire import (
    DiscoverResult,
    Implementation,
    InitializeResult,
    JSONObject,
    Revision,
    ServerCapabilities,
)
from mcp_trio.wire.converter import from_wire, to_wire
from mcp_trio.wire.meta import SERVER_INFO
from mcp_trio.wire.revisions import BY_DATE


@runtime_checkable
class Listening(Protocol):
    """A transport with a stream for what belongs to no request, as Streamable HTTP has one.

    Told by its shape: importing the transport imports an HTTP client, which not every
    client needs.
    """

    session_id: str | None
    status: int | None
    expired: bool

    async def listen(self, headers: dict[str, str]) -> None:
        """Open that stream."""
        ...


@attrs.frozen(kw_only=True)
class Agreed:
    """What client and server have agreed on, and what the server says of itself."""

    step: Step
    """The one that did it."""
    revision: Revision
    capabilities: ServerCapabilities
    server_info: Implementation | None = None
    instructions: str | None = None


@attrs.frozen
class Anew:
    """This line leads nowhere: open another one and go on with a step."""

    step: Step
    error: MCPError
    """What this line has come to."""


@attrs.frozen(kw_only=True)
class Negotiation:
    """One try to open a conversation. Leaves the session stamped for what was agreed on."""

    transport: Transport
    session: Dispatcher
    options: ClientOptions
    declared: Callable[[Revision], JSONObject]
    """What the client offers to be asked for, as a revision spells it."""
    mirrored: Callable[[str], tuple[ParamHeader, ...]]
    """The arguments of a tool that are headers, too."""
    settled: Callable[[Revision], None]
    """Told the revision of a session, before the server hears that it may ask."""

    async def run(self, step: Step, known: Known | None) -> Agreed | Anew:
        """Find out the era, beginning with a step.

        Args:
            step: what is sent first.
            known: how the server was opened before, if the step is from there.

        Returns:
            What was agreed on, or that another line is needed.

        Raises:
            VersionMismatchError: no revision in common.
            UnauthorizedError: the server wants to know first who asks, and says no more.
            MCPError: whatever the server answered the last opening with.
        """
        ours = self.options.revisions
        stateless = next((r for r in ours if r.stateless), None)
        if known is not None and known.revision.stateless:
            stateless = known.revision
        while True:
            try:
                if step in {Step.DISCOVER, Step.DISCOVER_AGAIN}:
                    return await self._discover(cast("Revision", stateless), step)
                return await self._initialize(step)
            except MCPError as error:
                reply = self._read(error)
                stateless = best_common(supported_by(error), ours) or stateless
                step = following(step, reply)
                handshake = not all(r.stateless for r in ours)
                if step is Step.FAIL or not (handshake or step is Step.DISCOVER_AGAIN):
                    final = self._final(error, reply)
                    if final is error:
                        raise
                    raise final from error
                if step in ANEW:
                    return Anew(step, error)

    def _read(self, error: MCPError) -> Reply:
        status = self.transport.status if isinstance(self.transport, Listening) else None
        return classify(error, self.options.revisions, status=status, ended=self.session.closed)

    def _final(self, error: MCPError, reply: Reply) -> MCPError:
        if reply is Reply.UNAUTHORIZED and isinstance(error, TransportError):
            return UnauthorizedError(f"the server wants to know who asks: {error.message}")
        refused = error.rpc_code == UNSUPPORTED_VERSION or supported_by(error)
        if refused and not isinstance(error, VersionMismatchError):
            return nothing_common(self.options.revisions, supported_by(error))
        if _knows_no_discover(error, reply) and all(r.stateless for r in self.options.revisions):
            ours = ", ".join(revision.date for revision in self.options.revisions)
            return VersionMismatchError(
                f"the server speaks no revision without a handshake: it answered {error.message!r}",
                data={"supported": [], "requested": ours},
            )
        return error

    async def _discover(self, revision: Revision, step: Step) -> Agreed:
        self._stamp(revision)
        answer = await self.session.call("server/discover", timeout=self.options.opening_timeout)
        found = from_wire(answer, DiscoverResult, revision, where="result")
        ours = self.options.revisions
        chosen = best_common(found.supported_versions, (r for r in ours if r.stateless)) or revision
        if chosen.date not in found.supported_versions and best_common(
            found.supported_versions, ours
        ):
            # It answers the question, and says that it wants a handshake.
            raise nothing_common((revision,), found.supported_versions)
        if chosen is not revision:
            self._stamp(chosen)
        told = (found.meta or {}).get(SERVER_INFO)
        info = cast("JSONObject", told) if isinstance(told, dict) else None
        return Agreed(
            step=step,
            revision=chosen,
            capabilities=found.capabilities,
            server_info=None if info is None else from_wire(info, Implementation, chosen),
            instructions=found.instructions,
        )

    def _stamp(self, revision: Revision) -> None:
        info = to_wire(self.options.info, revision)
        self.session.stamp = StatelessStamp(revision, info, self.declared(revision), self.mirrored)

    async def _initialize(self, step: Step) -> Agreed:
        handshake = [r for r in self.options.revisions if not r.stateless]
        session, transport = self.session, self.transport
        session.stamp = HandshakeStamp(None)
        answer = await session.call(
            "initialize",
            {
                "protocolVersion": handshake[0].date,
                "capabilities": self.declared(handshake[0]),
                "clientInfo": to_wire(self.options.info, handshake[0]),
            },
            timeout=self.options.opening_timeout,
        )
        found = from_wire(answer, InitializeResult, handshake[0], where="result")
        revision = BY_DATE.get(found.protocol_version)
        if revision not in handshake:
            raise nothing_common(self.options.revisions, [found.protocol_version])
        stamp = session.stamp = HandshakeStamp(revision)
        # The server may ask as soon as it hears that we are ready, while we still tell it.
        self.settled(revision)
        initialized = Notification("notifications/initialized")
        limit = self.options.opening_timeout
        with trio.move_on_after(limit) as waiting:
            await session.notify(initialized.method)
        if waiting.cancelled_caught:
            raise RequestTimeoutError(f"{initialized.method} was not taken within {limit} s")
        if isinstance(transport, Listening) and transport.session_id is not None:
            await transport.listen(stamp.headers(initialized))
        return Agreed(
            step=step,
            revision=revision,
            capabilities=found.capabilities,
            server_info=found.server_info,
            instructions=found.instructions,
        )


def _knows_no_discover(error: MCPError, reply: Reply) -> bool:
    """Tell whether an answer to `server/discover` is one of a server that wants a handshake."""
    if not isinstance(error, RemoteError):
        return False
    return error.rpc_code == METHOD_NOT_FOUND or reply is Reply.NO_ENDPOINT
