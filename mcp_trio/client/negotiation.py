"""Finding out how a server wants to be spoken to: the two openings, tried in turn.

Which one comes next is decided by the table of `eras.negotiate`; here the messages are sent.
Nothing but openings is sent meanwhile, so no call is ever made twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import attrs

from mcp_trio.abc import Transport
from mcp_trio.client.options import ClientOptions
from mcp_trio.eras.negotiate import (
    Step,
    best_common,
    classify,
    following,
    nothing_common,
    supported_by,
)
from mcp_trio.eras.stamps import HandshakeStamp, StatelessStamp
from mcp_trio.errors import MCPError, ProtocolError
from mcp_trio.framing.param_headers import ParamHeader
from mcp_trio.jsonrpc.messages import Notification
from mcp_trio.session.session import Dispatcher
from mcp_trio.transports.streamable_http import StreamableHTTPTransport
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


@attrs.frozen(kw_only=True)
class Agreed:
    """What client and server have agreed on, and what the server says of itself."""

    revision: Revision
    capabilities: ServerCapabilities
    server_info: Implementation | None = None
    instructions: str | None = None


@attrs.frozen(kw_only=True)
class Negotiation:
    """One try to open a conversation. Leaves the session stamped for what was agreed on."""

    session: Dispatcher
    options: ClientOptions
    declared: Callable[[Revision], JSONObject]
    """What the client offers to be asked for, as a revision spells it."""
    mirrored: Callable[[str], tuple[ParamHeader, ...]]
    """The arguments of a tool that are headers, too."""

    async def run(self, transport: Transport) -> Agreed:
        """Find out the era.

        Args:
            transport: of the session.

        Raises:
            VersionMismatchError: no revision in common.
            MCPError: whatever the server answered the last opening with.
        """
        ours = self.options.revisions
        stateless = next((r for r in ours if r.stateless), None)
        step = Step.INITIALIZE if stateless is None else Step.DISCOVER
        error: MCPError | None = None
        while step not in {Step.STATELESS, Step.HANDSHAKE, Step.FAIL}:
            if step is Step.INITIALIZE:
                return await self._initialize(transport)
            try:
                return await self._discover(cast("Revision", stateless))
            except MCPError as failure:
                error = failure
                reply = classify(failure, ours)
                stateless = best_common(supported_by(failure), ours) or stateless
                step = following(step, reply)
                if step is Step.INITIALIZE and all(r.stateless for r in ours):
                    raise
        if error is not None and supported_by(error):
            raise nothing_common(ours, supported_by(error)) from error
        raise error or ProtocolError("the server's era could not be found out")

    async def _discover(self, revision: Revision) -> Agreed:
        self._stamp(revision)
        answer = await self.session.call("server/discover", timeout=self.options.opening_timeout)
        found = from_wire(answer, DiscoverResult, revision, where="result")
        ours = (r for r in self.options.revisions if r.stateless)
        chosen = best_common(found.supported_versions, ours) or revision
        if chosen is not revision:
            self._stamp(chosen)
        told = (found.meta or {}).get(SERVER_INFO)
        info = cast("JSONObject", told) if isinstance(told, dict) else None
        return Agreed(
            revision=chosen,
            capabilities=found.capabilities,
            server_info=None if info is None else from_wire(info, Implementation, chosen),
            instructions=found.instructions,
        )

    def _stamp(self, revision: Revision) -> None:
        info = to_wire(self.options.info, revision)
        self.session.stamp = StatelessStamp(revision, info, self.declared(revision), self.mirrored)

    async def _initialize(self, transport: Transport) -> Agreed:
        handshake = [r for r in self.options.revisions if not r.stateless]
        session = self.session
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
        initialized = Notification("notifications/initialized")
        await session.notify(initialized.method)
        if isinstance(transport, StreamableHTTPTransport) and transport.session_id is not None:
            await transport.listen(stamp.headers(initialized))
        return Agreed(
            revision=revision,
            capabilities=found.capabilities,
            server_info=found.server_info,
            instructions=found.instructions,
        )
