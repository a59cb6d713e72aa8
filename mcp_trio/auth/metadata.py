"""What a protected resource and an authorization server publish about themselves.

Only what we use is read, and every URL in it is judged before anybody can use it. A field of the
wrong type counts as missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import attrs

from mcp_trio.auth.urls import Origin, check_named
from mcp_trio.errors import UnauthorizedError
from mcp_trio.secrets import shown_url


@attrs.frozen(kw_only=True)
class ResourceMetadata:
    """Of a protected resource (RFC 9728)."""

    resource: str
    """Exactly as published."""
    authorization_servers: tuple[str, ...]
    scopes_supported: tuple[str, ...] | None = None
    dpop_required: bool = False


@attrs.frozen(kw_only=True)
class ServerMetadata:
    """Of an authorization server (RFC 8414)."""

    issuer: str
    authorization_endpoint: str | None = None
    token_endpoint: str
    registration_endpoint: str | None = None
    scopes_supported: tuple[str, ...] = ()
    challenge_methods: tuple[str, ...] = ()
    auth_methods: tuple[str, ...] = ("client_secret_basic",)
    dpop_algorithms: tuple[str, ...] = ()
    takes_client_urls: bool = False
    """A client may be the URL of a document about itself."""
    names_itself: bool = False
    """Its answers carry `iss` (RFC 9207)."""


def read_resource(document: Mapping[str, object]) -> ResourceMetadata:
    """Read protected-resource metadata.

    Raises:
        UnauthorizedError: it lacks what we need.
    """
    resource = document.get("resource")
    servers = _texts(document, "authorization_servers")
    if not isinstance(resource, str):
        raise UnauthorizedError("the protected-resource metadata names no resource")
    if not servers:
        raise UnauthorizedError("the protected-resource metadata names no authorization server")
    return ResourceMetadata(
        resource=resource,
        authorization_servers=servers,
        scopes_supported=_texts(document, "scopes_supported"),
        dpop_required=document.get("dpop_bound_access_tokens_required") is True,
    )


def read_server(document: Mapping[str, object], issuer: str, near: Origin) -> ServerMetadata:
    """Read authorization-server metadata.

    Args:
        document: the metadata.
        issuer: as it has to call itself, to the letter.
        near: the MCP server, on whose word we came here.

    Raises:
        UnauthorizedError: it is somebody else's, lacks what we need, or leads where it must not.
    """
    said = document.get("issuer")
    if said != issuer:
        named = shown_url(said) if isinstance(said, str) else "nobody"
        if isinstance(said, str) and named == shown_url(issuer):
            named = said[:200]
        raise UnauthorizedError(
            f"the metadata of the authorization server {issuer[:200]} are those of {named}"
        )

    def endpoint(name: str) -> str | None:
        value = document.get(name)
        return check_named(value, near) if isinstance(value, str) else None

    token_endpoint = endpoint("token_endpoint")
    if token_endpoint is None:
        raise UnauthorizedError(
            f"the authorization server {shown_url(issuer)} has no token endpoint"
        )
    methods = _texts(document, "token_endpoint_auth_methods_supported")
    return ServerMetadata(
        issuer=issuer,
        authorization_endpoint=endpoint("authorization_endpoint"),
        token_endpoint=token_endpoint,
        registration_endpoint=endpoint("registration_endpoint"),
        scopes_supported=_texts(document, "scopes_supported") or (),
        challenge_methods=_texts(document, "code_challenge_methods_supported") or (),
        auth_methods=("client_secret_basic",) if methods is None else methods,
        dpop_algorithms=_texts(document, "dpop_signing_alg_values_supported") or (),
        takes_client_urls=document.get("client_id_metadata_document_supported") is True,
        names_itself=document.get("authorization_response_iss_parameter_supported") is True,
    )


def _texts(document: Mapping[str, object], name: str) -> tuple[str, ...] | None:
    value = document.get(name)
    if not isinstance(value, list):
        return None
    return tuple(item for item in cast("list[object]", value) if isinstance(item, str))
