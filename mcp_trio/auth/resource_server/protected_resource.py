"""What a protected resource publishes about itself (RFC 9728, section 2), and where."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from mcp_trio.auth.urls import well_known
from mcp_trio.wire import JSONObject

NOT_LISTED = frozenset({"offline_access"})
"""Scopes that are no affair of a resource (AR3)."""


@attrs.frozen(kw_only=True)
class ProtectedResource:
    """The metadata of one endpoint."""

    resource: str
    authorization_servers: tuple[str, ...]
    scopes_supported: tuple[str, ...] | None = None
    """None for the scopes that everybody needs."""
    name: str | None = None
    documentation: str | None = None
    dpop_algorithms: tuple[str, ...] = ()
    dpop_required: bool = False

    @property
    def url(self) -> str:
        """Where they are."""
        return well_known(self.resource.rstrip("/"), "oauth-protected-resource")

    def document(self, scopes: Iterable[str]) -> JSONObject:
        """The metadata.

        Args:
            scopes: that everybody needs.
        """
        listed = self.scopes_supported
        named = sorted(scopes) if listed is None else listed
        found: JSONObject = {
            "resource": self.resource,
            "authorization_servers": list(self.authorization_servers),
            "bearer_methods_supported": ["header"],
        }
        supported = [scope for scope in named if scope not in NOT_LISTED]
        if supported:
            found["scopes_supported"] = supported
        if self.name is not None:
            found["resource_name"] = self.name
        if self.documentation is not None:
            found["resource_documentation"] = self.documentation
        found["dpop_signing_alg_values_supported"] = list(self.dpop_algorithms)
        if self.dpop_required:
            found["dpop_bound_access_tokens_required"] = True
        return found
