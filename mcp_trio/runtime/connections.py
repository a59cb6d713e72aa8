"""Named upstreams: where they are, how to prove who we are, and what they may cost.

Connections are server configuration; an operation refers to one by name. Their secrets
stay in `Secret` values until a request is built. Clients open on first use and close with
the `Connections` that made them. What may be reached is `network_guard`'s question.
"""

from __future__ import annotations

import base64
import re
import ssl
from collections.abc import Iterable, Mapping
from http.cookiejar import DefaultCookiePolicy
from types import TracebackType
from typing import Literal, Self
from urllib.parse import urlsplit

import attrs
import httpcore2
import httpx2
import trio

from mcp_trio.catalog.operation import OperationError
from mcp_trio.errors import ConfigurationError
from mcp_trio.network_guard import (
    Guard,
    GuardedBackend,
    GuardedTransport,
    NetworkPolicy,
    Resolve,
    resolve,
)
from mcp_trio.secrets import Secret, mask

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
"""A header name (RFC 9110, section 5.6.2)."""
CLOSE_TIMEOUT = 2.0
"""Seconds that closing all clients may take."""


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
class Timeouts:
    """Defaults for operations that set none, in seconds."""

    connect: float = 5.0
    """Resolving, connecting and TLS, and waiting for a place in the pool."""
    first_byte: float | None = None
    """From the request to the head of the answer; None: only the total counts."""
    total: float = 30.0
    """The whole upstream part of a call, retries and waiting included."""


@attrs.frozen(kw_only=True)
class Connection:
    """One upstream, as configured."""

    name: str
    base_url: str
    """`http` or `https`, host, and a path prefix if any. No query, no user information."""
    auth: Auth = Auth()
    headers: Mapping[str, str | Secret] = attrs.field(factory=dict[str, "str | Secret"])
    """Sent with every request. An operation cannot change them."""
    verify_tls: bool | str = True
    """Check certificates; a string is the path of a file of authorities to trust instead."""
    timeouts: Timeouts = Timeouts()
    network: NetworkPolicy = attrs.field(factory=NetworkPolicy)
    max_connections: int = 100
    """Sockets open to this upstream at once."""
    response_bytes: int = 1 << 20
    """Largest answer of an operation that sets no limit."""
    request_bytes: int = 1 << 20
    """Largest request body of an operation that sets no limit."""
    concurrency: int | None = None
    """Calls at once of each operation that sets no limit; None for no limit."""
    vars: Mapping[str, object] = attrs.field(factory=dict[str, object])
    """Values without secrets that mappings may use as `vars`."""

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

    def mask(self, text: str) -> str:
        """Take this connection's secrets out of a text."""
        held = [value for value in self.headers.values() if isinstance(value, Secret)]
        return mask(text, [*held, *self.auth.secrets()])


def _tls(connection: Connection) -> ssl.SSLContext | None:
    if urlsplit(connection.base_url).scheme != "https":
        return None
    if isinstance(connection.verify_tls, str):
        return ssl.create_default_context(cafile=connection.verify_tls)
    return httpx2.create_ssl_context(verify=connection.verify_tls, trust_env=False)


class Connections:
    """The upstreams of one server, by name. An async context manager that owns their sockets.

    Clients are opened on first use. Leaving the context cuts what is still running.

    Args:
        definitions: the upstreams.
        network: makes the sockets, below the guard; httpcore2's own for Trio if None.
        resolver: finds the addresses the guard judges.
    """

    def __init__(
        self,
        definitions: Iterable[Connection] = (),
        *,
        network: httpcore2.AsyncNetworkBackend | None = None,
        resolver: Resolve = resolve,
    ) -> None:
        self._definitions: dict[str, Connection] = {}
        for definition in definitions:
            if definition.name in self._definitions:
                raise ConfigurationError(f"connection {definition.name} is defined twice")
            self._definitions[definition.name] = definition
        self._network = network
        self._resolver = resolver
        self._clients: dict[str, httpx2.AsyncClient] = {}
        self._open = False

    @property
    def names(self) -> tuple[str, ...]:
        """The names, sorted."""
        return tuple(sorted(self._definitions))

    def get(self, name: str) -> Connection:
        """Look up a definition; may be called from any thread.

        Raises:
            OperationError: there is none of that name.
        """
        found = self._definitions.get(name)
        if found is None:
            raise OperationError(f"there is no connection {name[:80]!r}", place="target.connection")
        return found

    def client(self, connection: Connection) -> httpx2.AsyncClient:
        """The client of an upstream, opened now if it was not.

        Raises:
            trio.ClosedResourceError: outside of the context.
        """
        if not self._open:
            raise trio.ClosedResourceError("the connections are closed")
        client = self._clients.get(connection.name)
        if client is None:
            guard = Guard(host=connection.host, policy=connection.network)
            backend = GuardedBackend(guard, self._network, self._resolver)
            client = httpx2.AsyncClient(
                transport=GuardedTransport(
                    backend, _tls(connection), max_connections=connection.max_connections
                ),
                trust_env=False,
                follow_redirects=False,
            )
            # A jar would carry one caller's session into the next call.
            client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))
            self._clients[connection.name] = client
        return client

    async def __aenter__(self) -> Self:
        self._open = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open = False
        clients, self._clients = list(self._clients.values()), {}
        with trio.move_on_after(CLOSE_TIMEOUT, shield=True):
            for client in clients:
                await client.aclose()
