"""Upstreams that speak HTTP: where they are, how we prove who we are, and the client of each.

What may be reached is `network_guard`'s question. What is asked is the adapters'.
"""

from __future__ import annotations

import base64
import re
import ssl
from collections.abc import Mapping
from http.cookiejar import DefaultCookiePolicy
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import attrs
import httpx2

from mcp_trio.errors import ConfigurationError
from mcp_trio.network_guard import Guard, GuardedBackend, GuardedTransport, NetworkPolicy
from mcp_trio.runtime.connections import Connection, Connections, ConnectionSection
from mcp_trio.secrets import Secret, SecretSource

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
"""A header name (RFC 9110, section 5.6.2)."""


@attrs.frozen(kw_only=True)
class Auth:
    """How a connection proves itself to its upstream."""

    kind: Literal["none", "bearer", "basic", "header"] = "none"
    secret: Secret | None = None
    """Token, password or header value. Required unless the kind is none."""
    username: str = ""
    """For basic only."""
    header: str = ""
    """The header's name, for the kind header only."""

    def __attrs_post_init__(self) -> None:
        if self.kind not in {"none", "bearer", "basic", "header"}:
            raise ConfigurationError("auth kind must be none, bearer, basic or header")
        if (self.kind == "none") != (self.secret is None):
            raise ConfigurationError(f"auth kind {self.kind} and its secret do not go together")
        if self.kind == "header" and not self.header:
            raise ConfigurationError("auth kind header needs the name of the header")

    def headers(self) -> dict[str, str]:
        """The headers to send, secrets revealed. For the wire only."""
        value = "" if self.secret is None else self.secret.reveal()
        match self.kind:
            case "none":
                return {}
            case "bearer":
                return {"authorization": f"Bearer {value}"}
            case "basic":
                return {"authorization": f"Basic {self._pair(value)}"}
            case "header":
                return {self.header.lower(): value}

    def secrets(self) -> tuple[Secret, ...]:
        """What must not be shown."""
        if self.secret is None:
            return ()
        if self.kind == "basic":
            return (self.secret, Secret(self._pair(self.secret.reveal())))
        return (self.secret,)

    def _pair(self, password: str) -> str:
        return base64.b64encode(f"{self.username}:{password}".encode()).decode()


@attrs.frozen(kw_only=True)
class HttpConnection(Connection):
    """One upstream behind an HTTP URL."""

    base_url: str
    """`http` or `https`, host, and a path prefix if any. No query, no user information."""
    auth: Auth = Auth()
    headers: Mapping[str, str | Secret] = attrs.field(factory=dict[str, "str | Secret"])
    """Sent with every request. An operation cannot change them."""
    verify_tls: bool | str = True
    """Check certificates; a string is the path of a file of authorities to trust instead."""
    network: NetworkPolicy = attrs.field(factory=NetworkPolicy)
    max_connections: int = 100
    """Sockets open to this upstream at once."""

    def __attrs_post_init__(self) -> None:
        url = urlsplit(self.base_url)
        if url.scheme not in {"http", "https"} or not url.hostname:
            raise ConfigurationError(f"connection {self.name}: base_url must be http or https")
        if url.username is not None or url.query or url.fragment:
            raise ConfigurationError(
                f"connection {self.name}: base_url must hold no user information, query or fragment"
            )
        for name, value in self.wire_headers().items():
            if not _TOKEN.fullmatch(name) or any(not " " <= c <= "~" for c in value):
                # The value is not repeated: it may be the secret.
                raise ConfigurationError(f"connection {self.name}: header {name!r} cannot be sent")

    @property
    def host(self) -> str:
        """The host of the base URL."""
        return urlsplit(self.base_url).hostname or ""

    @property
    def path_prefix(self) -> str:
        """The path of the base URL, without a slash at its end."""
        return urlsplit(self.base_url).path.rstrip("/")

    @property
    def header_names(self) -> frozenset[str]:
        """The headers that are the connection's own, in lower case."""
        return frozenset(self.wire_headers())

    def wire_headers(self, *, authenticate: bool = True) -> dict[str, str]:
        """The headers to send, secrets revealed, in lower case. For the wire only."""
        made = {
            name.lower(): value.reveal() if isinstance(value, Secret) else value
            for name, value in self.headers.items()
        }
        return {**made, **self.auth.headers()} if authenticate else made

    def secrets(self) -> tuple[Secret, ...]:
        """What must not be shown."""
        held = [value for value in self.headers.values() if isinstance(value, Secret)]
        return (*held, *self.auth.secrets())


def http_client(connections: Connections, connection: HttpConnection) -> httpx2.AsyncClient:
    """The client of an upstream, opened now if it was not.

    Raises:
        trio.ClosedResourceError: outside of the context of the connections.
    """
    return connections.resource(connection, lambda: _open(connections, connection))


def _open(connections: Connections, connection: HttpConnection) -> httpx2.AsyncClient:
    guard = Guard(host=connection.host, policy=connection.network)
    backend = GuardedBackend(guard, connections.network, connections.resolver)
    client = httpx2.AsyncClient(
        transport=GuardedTransport(
            backend, _tls(connection), max_connections=connection.max_connections
        ),
        trust_env=False,
        follow_redirects=False,
    )
    # A jar would carry one caller's session into the next call.
    client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))
    return client


def _tls(connection: HttpConnection) -> ssl.SSLContext | None:
    if urlsplit(connection.base_url).scheme != "https":
        return None
    if isinstance(connection.verify_tls, str):
        return ssl.create_default_context(cafile=connection.verify_tls)
    return httpx2.create_ssl_context(verify=connection.verify_tls, trust_env=False)


@attrs.frozen(kw_only=True)
class AuthSection:
    """`[connections.NAME.auth]`: how we prove ourselves to an upstream."""

    kind: Literal["none", "bearer", "basic", "header"]
    """What is sent."""
    username: str = ""
    """For basic."""
    header: str = ""
    """Name of the header, for header."""
    secret_env: str | None = None
    """Environment variable that holds the token, password or value."""
    secret_file: str | None = None
    """File that holds it, relative to the settings file; white space around it is dropped."""


@attrs.frozen(kw_only=True)
class HttpSection(ConnectionSection):
    """`[connections.NAME]` of the kind `http`, which is the kind of one that names none."""

    base_url: str
    """Scheme, host and path prefix."""
    auth: AuthSection | None = None
    """How we prove ourselves; nothing by default."""
    headers: dict[str, str] = attrs.field(factory=dict[str, str])
    """Headers without secrets, sent with every request."""
    verify_tls: bool = True
    """Check certificates."""
    ca_file: str | None = None
    """Authorities to trust instead of the system's, relative to the settings file."""
    allow_private: bool = False
    """Let the host resolve to private or loopback addresses. An address, or localhost, that is
    written into base_url is allowed anyway."""

    def connection(self, name: str, source: SecretSource) -> HttpConnection:
        """Make the connection, its secrets fetched.

        Raises:
            ConfigurationError: it cannot be.
        """
        return HttpConnection(
            name=name,
            base_url=self.base_url,
            auth=_auth(name, self.auth, source),
            headers=dict[str, "str | Secret"](self.headers),
            verify_tls=_authorities(name, source.folder / self.ca_file)
            if self.ca_file
            else self.verify_tls,
            network=NetworkPolicy(allow_private=self.allow_private),
            **self.common(),
        )


def _authorities(name: str, path: Path) -> str:
    try:
        ssl.create_default_context(cafile=path)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"connection {name}: cannot use its ca_file {path}") from error
    return str(path)


def _auth(name: str, section: AuthSection | None, source: SecretSource) -> Auth:
    if section is None or section.kind == "none":
        return Auth()
    secret = source.secret(
        f"connection {name}", "secret", env=section.secret_env, file=section.secret_file
    )
    return Auth(kind=section.kind, secret=secret, username=section.username, header=section.header)
