"""Who we are at an authorization server: known by hand, by a document, or made known now.

In that order (AC5). What one server gave us is kept under its issuer and shown to no other (AC6).
"""

from __future__ import annotations

import json
from urllib.parse import urlsplit

from mcp_trio.auth.metadata import ServerMetadata
from mcp_trio.auth.steps import Ask, Flow, ask, load_client, read_object, save_client
from mcp_trio.auth.token_requests import error_code
from mcp_trio.auth.tokens import RegisteredClient, seconds
from mcp_trio.errors import ConfigurationError, UnauthorizedError
from mcp_trio.network_guard import is_loopback
from mcp_trio.secrets import Secret, shown_url


def check_document_url(url: str) -> str:
    """Judge the URL of a document about a client.

    Raises:
        ConfigurationError: it cannot be a client's name.
    """
    parts = urlsplit(url)
    segments = parts.path.split("/")
    good = parts.scheme == "https" and parts.hostname and parts.path.strip("/")
    if not good or "#" in url or parts.username is not None or {".", ".."} & set(segments):
        raise ConfigurationError(f"client_metadata_url has to be https with a path: {url[:200]!r}")
    return url


def check_issuer(client: RegisteredClient, server: ServerMetadata) -> RegisteredClient:
    """Make sure that a client is shown to its own server only.

    Raises:
        UnauthorizedError: this is another one.
    """
    if client.issuer is not None and client.issuer != server.issuer:
        raise UnauthorizedError(
            f"the client is registered at {client.issuer[:200]}, "
            f"but the server trusts {server.issuer[:200]}"
        )
    return client


def register(
    server: ServerMetadata, redirect_uri: str, *, client_name: str, now: float
) -> Flow[RegisteredClient]:
    """Take who we were at this server, or register anew (RFC 7591).

    Raises:
        UnauthorizedError: it registers nobody, or not us.
    """
    known = yield from load_client(server.issuer)
    if known is not None and _usable(known, redirect_uri, now):
        return known
    if server.registration_endpoint is None:
        raise UnauthorizedError(
            f"the authorization server {shown_url(server.issuer)} registers no clients: "
            "register one by hand and give it as `registered`"
        )
    method = _preferred(server)
    wanted = {
        "client_name": client_name,
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": method,
        "application_type": application_type(redirect_uri),
    }
    answer = yield from ask(
        Ask(
            method="POST",
            url=server.registration_endpoint,
            headers={"content-type": "application/json", "accept": "application/json"},
            body=json.dumps(wanted).encode(),
        )
    )
    if answer.status not in {200, 201}:
        told = error_code(answer)
        raise UnauthorizedError(
            f"the authorization server {shown_url(server.issuer)} does not register us "
            f"as a {wanted['application_type']} client: {told}"
        )
    client = _registered(read_object(answer, "the registration"), method, redirect_uri)
    yield from save_client(server.issuer, client)
    return client


def application_type(redirect_uri: str) -> str:
    """`web` for a client whose people come back to a site, else `native`."""
    parts = urlsplit(redirect_uri)
    web = parts.scheme == "https" and not is_loopback(parts.hostname or "")
    return "web" if web else "native"


def _usable(client: RegisteredClient, redirect_uri: str, now: float) -> bool:
    fresh = client.secret_expires_at is None or client.secret_expires_at > now
    return fresh and redirect_uri in client.redirect_uris


def _preferred(server: ServerMetadata) -> str:
    for method in ("none", "client_secret_basic", "client_secret_post"):
        if method in server.auth_methods:
            return method
    raise UnauthorizedError(
        f"the authorization server {shown_url(server.issuer)} takes no way of proving a client "
        f"that we have: {', '.join(server.auth_methods)[:200]}"
    )


def _registered(
    document: dict[str, object], asked_method: str, redirect_uri: str
) -> RegisteredClient:
    client_id = document.get("client_id")
    if not isinstance(client_id, str) or not client_id:
        raise UnauthorizedError("the registration names no client_id")
    secret = document.get("client_secret")
    method = document.get("token_endpoint_auth_method")
    expires = document.get("client_secret_expires_at")
    held = Secret(secret) if isinstance(secret, str) and secret else None
    chosen = method if isinstance(method, str) else asked_method
    return RegisteredClient(
        client_id=client_id,
        client_secret=held,
        auth_method=chosen if held is not None else "none",
        # 0 means never (RFC 7591, section 3.2.1).
        secret_expires_at=seconds(expires) if expires else None,
        redirect_uris=(redirect_uri,),
    )
