"""Opening a conversation: the handshake, and discovery where there is none (LC, V3)."""

from __future__ import annotations

import attrs

from mcp_trio.wire.basic import (
    ClientCapabilities,
    Implementation,
    JSONObject,
    ServerCapabilities,
)
from mcp_trio.wire.marks import defaulted, optional
from mcp_trio.wire.revisions import R2026_07_28


@attrs.frozen(kw_only=True)
class InitializeParams:
    """What a client says first."""

    protocol_version: str
    capabilities: ClientCapabilities
    client_info: Implementation
    meta: JSONObject | None = optional(name="_meta")


@attrs.frozen(kw_only=True)
class InitializeResult:
    """The revision the server chose, and what it offers."""

    protocol_version: str
    capabilities: ServerCapabilities
    server_info: Implementation
    instructions: str | None = optional()
    meta: JSONObject | None = optional(name="_meta")
    extra: JSONObject = attrs.field(factory=dict[str, object])


@attrs.frozen(kw_only=True)
class DiscoverResult:
    """What a server offers, without a handshake."""

    supported_versions: list[str]
    capabilities: ServerCapabilities
    instructions: str | None = optional()
    ttl_ms: int = defaulted(0, since=R2026_07_28)
    cache_scope: str = defaulted("private", since=R2026_07_28)
    result_type: str = defaulted("complete", since=R2026_07_28)
    meta: JSONObject | None = optional(name="_meta")
    extra: JSONObject = attrs.field(factory=dict[str, object])
