"""The era without sessions: 2026-07-28. Each request says who asks and in which revision.

One object per revision, shared by every request; it holds no state (B9).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from mcp_trio.eras.admission import (
    Admitted,
    ServerFacts,
    admit_params,
    info_on_wire,
    lookup,
    meta_of,
    progress_token,
    unsupported,
)
from mcp_trio.errors import (
    HeaderMismatchError,
    InvalidParamsError,
    MCPError,
    MethodNotFoundError,
)
from mcp_trio.framing import headers as names
from mcp_trio.framing.headers import HeaderValueError, decode_value
from mcp_trio.framing.param_headers import mismatch
from mcp_trio.jsonrpc.messages import Request
from mcp_trio.wire import DiscoverResult, JSONObject, Method, Revision
from mcp_trio.wire.converter import to_wire
from mcp_trio.wire.meta import (
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    LOG_LEVEL,
    PROTOCOL_VERSION,
    SERVER_INFO,
)
from mcp_trio.wire.notices import LOG_LEVELS
from mcp_trio.wire.revisions import BY_DATE

__all__ = ["StatelessEra", "admit", "era_for", "unsupported"]

DISCOVER_TTL_MS = 60_000


class StatelessEra:
    """One revision of the stateless era, server side."""

    def __init__(self, revision: Revision) -> None:
        self.revision = revision
        self._info: tuple[ServerFacts, JSONObject] | None = None

    def seal(self, method: Method, result: object, facts: ServerFacts) -> JSONObject:  # noqa: ARG002 - the contract
        """Add who answers, which every result of this era carries."""
        sealed = to_wire(result, self.revision)
        meta = sealed.get("_meta")
        info = {SERVER_INFO: self._server_info(facts)}
        sealed["_meta"] = {**cast("JSONObject", meta), **info} if meta else info
        return sealed

    def fault(self, error: MCPError) -> MCPError:
        """Give it back: the codes of the exceptions are this era's."""
        return error

    def _server_info(self, facts: ServerFacts) -> JSONObject:
        if self._info is None or self._info[0] is not facts:
            self._info = (facts, info_on_wire(facts, self.revision))
        return self._info[1]

    def own(self, method: str, facts: ServerFacts) -> object | None:
        """Answer what belongs to the era itself."""
        if method != "server/discover":
            return None
        return DiscoverResult(
            supported_versions=[revision.date for revision in facts.revisions],
            capabilities=facts.capabilities,
            instructions=facts.instructions,
            ttl_ms=DISCOVER_TTL_MS,
            cache_scope="public",
        )


_ERAS: dict[Revision, StatelessEra] = {}


def era_for(revision: Revision) -> StatelessEra:
    """The one era object of a revision."""
    found = _ERAS.get(revision)
    if found is None:
        found = _ERAS[revision] = StatelessEra(revision)
    return found


def admit(request: Request, headers: Mapping[str, str] | None, facts: ServerFacts) -> Admitted:
    """Accept one request, checking in the order that the refusals demand.

    Args:
        request: the message.
        headers: HTTP header fields, None on transports that have none.
        facts: what the server offers now.

    Raises:
        HeaderMismatchError: a header is missing or contradicts the body (N8 to N10, N16).
        InvalidParamsError: the required `_meta` fields or the parameters do not fit (B10).
        VersionMismatchError: a revision this server does not speak statelessly (V2).
        MethodNotFoundError: no such method here (N11, V6).
    """
    meta = meta_of(request)
    version = meta.get(PROTOCOL_VERSION)
    if headers is not None:
        _check_version_header(headers, version)
    if type(version) is not str:
        raise InvalidParamsError(f"_meta must hold {PROTOCOL_VERSION}")
    capabilities = meta.get(CLIENT_CAPABILITIES)
    if not isinstance(capabilities, dict):
        raise InvalidParamsError(f"_meta must hold {CLIENT_CAPABILITIES}")
    revision = BY_DATE.get(version)
    if revision is None or not revision.stateless or revision not in facts.revisions:
        raise unsupported(version, facts)
    try:
        method = lookup(request.method, revision, facts)
    except MethodNotFoundError:
        raise MethodNotFoundError(f"Method not found in {revision}") from None
    if headers is not None:
        _check_mirrors(request, method, headers, facts)
    level = meta.get(LOG_LEVEL)
    if level is not None and (not isinstance(level, str) or level not in LOG_LEVELS):
        raise InvalidParamsError(f"{LOG_LEVEL} must be one of {', '.join(LOG_LEVELS)}")
    info = meta.get(CLIENT_INFO)
    return Admitted(
        request=request,
        method=method,
        params=admit_params(request, method, revision),
        era=era_for(revision),
        meta=meta,
        progress_token=progress_token(meta),
        client_info=cast("JSONObject", info) if isinstance(info, dict) else None,
        client_capabilities=cast("JSONObject", capabilities),
        log_level=lambda: level,
    )


def _check_version_header(headers: Mapping[str, str], version: object) -> None:
    received = headers.get(names.VERSION)
    if received is None:
        raise HeaderMismatchError("Header mismatch: MCP-Protocol-Version is missing")
    if type(version) is str and received.strip() != version:
        raise HeaderMismatchError("Header mismatch: MCP-Protocol-Version differs from _meta")


def _check_mirrors(
    request: Request, method: Method, headers: Mapping[str, str], facts: ServerFacts
) -> None:
    received = headers.get(names.METHOD)
    if received is None:
        raise HeaderMismatchError("Header mismatch: Mcp-Method is missing")
    if received.strip() != request.method:
        raise HeaderMismatchError("Header mismatch: Mcp-Method differs from the body")
    if method.named_by is None:
        return
    params = request.params or {}
    name = params.get(method.named_by)
    if type(name) is not str:
        return  # the parameters will be refused for it
    given = headers.get(names.NAME)
    if given is None:
        raise HeaderMismatchError("Header mismatch: Mcp-Name is missing")
    try:
        same = decode_value(given) == name
    except HeaderValueError as error:
        raise HeaderMismatchError(f"Header mismatch: Mcp-Name has {error}") from error
    if not same:
        raise HeaderMismatchError("Header mismatch: Mcp-Name differs from the body")
    annotations = facts.tool_headers(name) if request.method == "tools/call" else ()
    if annotations:
        arguments = params.get("arguments")
        given_by_name = cast("JSONObject", arguments) if isinstance(arguments, dict) else {}
        fault = mismatch(annotations, given_by_name, headers)
        if fault is not None:
            raise HeaderMismatchError(f"Header mismatch: {fault}")
