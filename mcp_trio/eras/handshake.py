"""The era of sessions: 2024-11-05 to 2025-11-25, opened by `initialize` (LC).

One object per session. `admit` runs in wire order, in the reader, so a call that
follows `initialize` without waiting finds the session open.
"""

from __future__ import annotations

from typing import cast

from mcp_trio.engine.lifecycle import Event, Stage, advance
from mcp_trio.eras.admission import (
    Admitted,
    ServerFacts,
    admit_params,
    lookup,
    meta_of,
    progress_token,
    unsupported,
)
from mcp_trio.errors import (
    InvalidParamsError,
    MCPError,
    MethodNotFoundError,
    MissingCapabilityError,
)
from mcp_trio.jsonrpc.messages import Notification, Request
from mcp_trio.wire import InitializeResult, JSONObject, Method, Revision
from mcp_trio.wire.basic import EmptyResult
from mcp_trio.wire.converter import to_wire
from mcp_trio.wire.lifecycle import InitializeParams
from mcp_trio.wire.notices import LOG_LEVELS, SetLevelParams
from mcp_trio.wire.revisions import BY_DATE, HANDSHAKE

_EVENTS = {"initialize": Event.INITIALIZE, "ping": Event.PING}


class HandshakeEra:
    """One session of the handshake era, server side."""

    def __init__(self) -> None:
        self.stage = Stage.NEW
        self.revision: Revision = HANDSHAKE[0]
        """The newest until `initialize` settles it."""
        self.client_info: JSONObject | None = None
        self.client_capabilities: JSONObject = {}
        self._level = "info"

    def admit(self, request: Request, facts: ServerFacts) -> Admitted:
        """Accept a request, and take note of what it settles.

        Raises:
            NotInitializedError: it needs the handshake first.
            ProtocolError: a second `initialize`.
            VersionMismatchError: the server speaks no revision that has a handshake (V7).
            MethodNotFoundError, InvalidParamsError: as named.
        """
        event = _EVENTS.get(request.method, Event.OTHER)
        following = advance(self.stage, event)
        method = lookup(request.method, self.revision, facts)
        params = admit_params(request, method, self.revision)
        if isinstance(params, InitializeParams):
            self._open(params, request, facts)
        elif isinstance(params, SetLevelParams):
            if params.level not in LOG_LEVELS:
                raise InvalidParamsError(f"level must be one of {', '.join(LOG_LEVELS)}")
            self._level = params.level
        self.stage = following
        meta = meta_of(request)
        return Admitted(
            request=request,
            method=method,
            params=params,
            era=self,
            meta=meta,
            progress_token=progress_token(meta),
            client_info=self.client_info,
            client_capabilities=self.client_capabilities,
            log_level=lambda: self._level,
        )

    def _open(self, params: InitializeParams, request: Request, facts: ServerFacts) -> None:
        # An unknown version is not an error here: the answer names one we speak (V1).
        spoken = tuple(r for r in facts.revisions if not r.stateless)
        if not spoken:
            raise unsupported(params.protocol_version, facts)
        wanted = BY_DATE.get(params.protocol_version)
        self.revision = wanted if wanted in spoken else spoken[0]
        raw = cast("JSONObject", request.params)
        self.client_info = cast("JSONObject", raw["clientInfo"])
        self.client_capabilities = cast("JSONObject", raw["capabilities"])

    def close(self) -> None:
        """Begin anew: `initialize` was admitted, and then refused."""
        self.stage = Stage.NEW
        self.client_info, self.client_capabilities = None, {}

    def notified(self, notification: Notification) -> None:
        """Take note of a notification. One that comes at the wrong time is ignored."""
        if notification.method == "notifications/initialized" and self.stage is not Stage.NEW:
            self.stage = advance(self.stage, Event.INITIALIZED)

    def own(self, method: str, facts: ServerFacts) -> object | None:
        """Answer what belongs to the handshake itself."""
        match method:
            case "initialize":
                return InitializeResult(
                    protocol_version=self.revision.date,
                    capabilities=facts.capabilities,
                    server_info=facts.info,
                    instructions=facts.instructions,
                )
            case "ping" | "logging/setLevel":
                return EmptyResult()
            case _:
                return None

    def seal(
        self,
        method: Method,  # noqa: ARG002 - the contract
        result: object,
        facts: ServerFacts,  # noqa: ARG002 - the contract
    ) -> JSONObject:
        """Project the result onto the revision; nothing is added in this era."""
        return to_wire(result, self.revision)

    def fault(self, error: MCPError) -> MCPError:
        """Say in codes of this era that the client lacks something: the method, or a part of it."""
        if not isinstance(error, MissingCapabilityError):
            return error
        required = cast("JSONObject", (error.data or {}).get("requiredCapabilities", {}))
        kind = MethodNotFoundError if not any(required.values()) else InvalidParamsError
        fault = kind(error.message, data=error.data)
        fault.__cause__ = error
        return fault
