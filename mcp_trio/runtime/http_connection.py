"""Upstreams that speak HTTP: where they are, as whom we ask, and the client of each.

What may be reached is `network_guard`'s question. What is asked is the adapters'.
"""

from __future__ import annotations

import base64
import logging
import ssl
from collections.abc import Callable, Mapping
from http.cookiejar import DefaultCookiePolicy
from pathlib import Path
from typing import Literal, cast
from urllib.parse import urlsplit

import attrs
import httpx2
import trio
import trio.lowlevel

from mcp_trio.auth.outward import Outward
from mcp_trio.engine.envelope import Principal
from mcp_trio.errors import ConfigurationError
from mcp_trio.framing.headers import is_field_name, is_printable
from mcp_trio.network_guard import Guard, GuardedBackend, GuardedTransport, NetworkPolicy
from mcp_trio.runtime.connections import Connection, Connections
from mcp_trio.runtime.stages import Stage, StageError
from mcp_trio.runtime.upstream_tokens import TokenEndpoint, Tokens
from mcp_trio.secrets import Secret
from mcp_trio.setting_rules import POSITIVE

_log = logging.getLogger("mcp_trio.runtime")


@attrs.frozen(kw_only=True)
class Auth:
    """How a connection proves itself to its upstream."""

    kind: Literal["none", "bearer", "basic", "header", "query"] = "none"
    secret: Secret | None = None
    """Token, password or value. Required unless the kind is none."""
    username: str = ""
    """For basic only."""
    header: str = ""
    """The header's name, for the kind header only."""
    parameter: str = ""
    """The name in the query, for the kind query only."""

    def __attrs_post_init__(self) -> None:
        if self.kind not in {"none", "bearer", "basic", "header", "query"}:
            raise ConfigurationError("auth kind must be none, bearer, basic, header or query")
        if (self.kind == "none") != (self.secret is None):
            raise ConfigurationError(f"auth kind {self.kind} and its secret do not go together")
        if self.kind == "header" and not self.header:
            raise ConfigurationError("auth kind header needs the name of the header")
        if self.kind == "query" and not self.parameter:
            raise ConfigurationError("auth kind query needs the name of the parameter")

    def headers(self) -> dict[str, str]:
        """The headers to send, secrets revealed. For the wire only."""
        value = "" if self.secret is None else self.secret.reveal()
        match self.kind:
            case "none" | "query":
                return {}
            case "bearer":
                return {"authorization": f"Bearer {value}"}
            case "basic":
                return {"authorization": f"Basic {self._pair(value)}"}
            case "header":
                return {self.header.lower(): value}

    def query(self) -> dict[str, str]:
        """What belongs into the query, secrets revealed. For the wire only."""
        if self.kind != "query" or self.secret is None:
            return {}
        return {self.parameter: self.secret.reveal()}

    def secrets(self) -> tuple[Secret, ...]:
        """What must not be shown."""
        if self.secret is None:
            return ()
        if self.kind == "basic":
            pairs = [Secret(self._pair(value)) for value in self.secret.known()]
            return (self.secret, *pairs)
        return (self.secret,)

    def _pair(self, password: str) -> str:
        return base64.b64encode(f"{self.username}:{password}".encode()).decode()


@attrs.frozen(kw_only=True)
class HttpConnection(Connection):
    """One upstream behind an HTTP URL."""

    base_url: str
    """`http` or `https`, host, and a path prefix if any. No query, no user information."""
    auth: Auth | TokenEndpoint = Auth()
    """How we prove who we are."""
    on_behalf_of: TokenEndpoint | None = None
    """Where a caller's token is exchanged, for operations that act on behalf of their caller."""
    headers: Mapping[str, str | Secret] = attrs.field(factory=dict[str, "str | Secret"])
    """Sent with every request. An operation cannot change them."""
    verify_tls: bool | str = True
    """Check certificates; a string is the path of a file of authorities to trust instead."""
    client_certificate: ClientCertificate | None = None
    """What we prove ourselves with to an upstream that asks for it (mTLS)."""
    network: NetworkPolicy = attrs.field(factory=NetworkPolicy)
    max_connections: int = attrs.field(default=100, validator=POSITIVE)
    """Sockets open to this upstream at once."""
    deadline_header: str | None = None
    """Header that tells the upstream how many milliseconds are left of the call."""

    def __attrs_post_init__(self) -> None:
        url = urlsplit(self.base_url)
        if url.scheme not in {"http", "https"} or not url.hostname:
            raise ConfigurationError(f"connection {self.name}: base_url must be http or https")
        if url.username is not None or url.query or url.fragment:
            raise ConfigurationError(
                f"connection {self.name}: base_url must hold no user information, query or fragment"
            )
        if self.client_certificate is not None and url.scheme != "https":
            raise ConfigurationError(f"connection {self.name}: a certificate needs https")
        told = {} if self.deadline_header is None else {self.deadline_header: "1"}
        for name, value in {**self.wire_headers(), **told}.items():
            if not is_field_name(name) or not is_printable(value):
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
        own = [self.deadline_header.lower()] if self.deadline_header is not None else []
        if isinstance(self.auth, TokenEndpoint) or self.on_behalf_of is not None:
            own.append("authorization")
        return frozenset((*self.wire_headers(), *own))

    def plain_headers(self) -> dict[str, str]:
        """The headers beside credentials, secrets revealed, in lower case. For the wire only."""
        return {
            name.lower(): value.reveal() if isinstance(value, Secret) else value
            for name, value in self.headers.items()
        }

    def wire_headers(self) -> dict[str, str]:
        """The headers that never change, secrets revealed, in lower case. For the wire only."""
        made = self.plain_headers()
        return made if isinstance(self.auth, TokenEndpoint) else {**made, **self.auth.headers()}

    def secrets(self) -> tuple[Secret, ...]:
        """What must not be shown."""
        held = [value for value in self.headers.values() if isinstance(value, Secret)]
        exchange = () if self.on_behalf_of is None else self.on_behalf_of.secrets()
        return (*held, *self.auth.secrets(), *exchange)


@attrs.frozen(kw_only=True)
class ClientCertificate:
    """A certificate with its key, as files; loaded again when they change."""

    certificate: Path
    """PEM, with the chain if there is one."""
    key: Path
    """PEM, not encrypted."""

    def stamp(self) -> tuple[int, ...]:
        """Changes when the files do."""
        found = [path.stat() for path in (self.certificate, self.key)]
        return tuple(n for each in found for n in (each.st_mtime_ns, each.st_ino, each.st_size))

    def load(self, context: ssl.SSLContext) -> None:
        """Use it for handshakes from now on.

        Raises:
            OSError: it cannot be read, or certificate and key are no pair.
        """
        context.load_cert_chain(self.certificate, self.key)


class HttpClient:
    """The client of one upstream, and the certificate it shows. A resource of `Connections`.

    Args:
        connections: whose network and resolver it uses.
        connection: where to, and what may be reached there.
        around: puts something around what sends the requests.
        timeout: of requests that name none.
        keep_alive: seconds that a connection is kept for the next request.
    """

    def __init__(
        self,
        connections: Connections,
        connection: HttpConnection,
        *,
        around: Callable[[GuardedTransport], httpx2.AsyncBaseTransport] | None = None,
        timeout: float | None = None,
        keep_alive: float = 30.0,
    ) -> None:
        self._certificate = connection.client_certificate
        self._tls = _tls(connection)
        self._stamp = () if self._certificate is None else self._certificate.stamp()
        guard = Guard(host=connection.host, policy=connection.network)
        backend = GuardedBackend(guard, connections.network, connections.resolver)
        transport = GuardedTransport(
            backend,
            self._tls,
            max_connections=connection.max_connections,
            keep_alive=keep_alive,
        )
        self._client = httpx2.AsyncClient(
            transport=transport if around is None else around(transport),
            timeout=timeout,
            trust_env=False,
            follow_redirects=False,
        )
        # A jar would carry one caller's session into the next call.
        self._client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))

    def now(self) -> httpx2.AsyncClient:
        """The client, with the certificate that the files hold now."""
        if self._certificate is not None and self._tls is not None:
            try:
                stamp = self._certificate.stamp()
                if stamp != self._stamp:
                    self._certificate.load(self._tls)
                    self._stamp = stamp
            except OSError as error:
                # Half of a pair is replaced before the other; the next call looks again.
                _log.warning("%s: %s; the last one stays", self._certificate.certificate, error)
        return self._client

    async def aclose(self) -> None:
        """Close its sockets."""
        await self._client.aclose()


def http_client(connections: Connections, connection: HttpConnection) -> httpx2.AsyncClient:
    """The client of an upstream, opened now if it was not.

    Raises:
        trio.ClosedResourceError: outside of the context of the connections.
    """
    return connections.resource(connection.name, lambda: HttpClient(connections, connection)).now()


@attrs.frozen(kw_only=True)
class Credentials:
    """What goes with one request to prove who asks, secrets revealed. For the wire only."""

    headers: Mapping[str, str] = attrs.field(factory=dict[str, str], repr=False)
    query: Mapping[str, str] = attrs.field(factory=dict[str, str], repr=False)


@attrs.frozen(kw_only=True, eq=False)
class Identity:
    """As whom the requests of one call are sent."""

    connections: Connections
    connection: HttpConnection
    as_whom: str
    """`connection`, `on_behalf_of` or `none`."""
    principal: Principal | None
    shown: list[Secret]
    """Takes every token that is sent, so that it can be masked."""

    async def credentials(self) -> Credentials:
        """What to send; a token is got first where one is needed.

        Raises:
            StageError: there is none to be had.
        """
        made = await self._made()
        if not all(map(is_printable, made.headers.values())):
            # Those of the settings were checked when they were read; this is a rotated one.
            raise StageError(
                Stage.ADAPTER_EXECUTION,
                "the credentials for the upstream cannot be sent in a header",
                sub="credentials",
                code="unusable",
                step="operator",
            )
        return made

    async def _made(self) -> Credentials:
        plain = self.connection.plain_headers()
        if self.as_whom == "none":
            await trio.lowlevel.checkpoint()
            return Credentials(headers=plain)
        tokens = self._tokens()
        if tokens is not None:
            token = await tokens.token(self.principal)
            if token not in self.shown:
                self.shown.append(token)
            return Credentials(headers={**plain, "authorization": f"Bearer {token.reveal()}"})
        await trio.lowlevel.checkpoint()
        auth = cast("Auth", self.connection.auth)
        return Credentials(headers={**plain, **auth.headers()}, query=auth.query())

    async def again(self, refused: Credentials) -> Credentials | None:
        """What to send after a 401 in place of what was refused; None if there is nothing else."""
        if self.as_whom == "none":
            return None
        tokens = self._tokens()
        if tokens is not None:
            token = refused.headers["authorization"].removeprefix("Bearer ")
            tokens.refused(self.principal, Secret(token))
        fresh = await self.credentials()
        return None if fresh == refused else fresh

    def _tokens(self) -> Tokens | None:
        connection = self.connection
        own = connection.auth if isinstance(connection.auth, TokenEndpoint) else None
        endpoint = connection.on_behalf_of if self.as_whom == "on_behalf_of" else own
        if endpoint is None:
            return None
        return self.connections.resource(
            f"{connection.name} {self.as_whom}", lambda: self._open_tokens(endpoint)
        )

    def _open_tokens(self, endpoint: TokenEndpoint) -> Tokens:
        policy = NetworkPolicy(allow_private=endpoint.allow_private)
        host = urlsplit(endpoint.url).hostname
        return Tokens(endpoint, Outward(policy, resolver=self.connections.resolver, host=host))


def _tls(connection: HttpConnection) -> ssl.SSLContext | None:
    if urlsplit(connection.base_url).scheme != "https":
        return None
    if isinstance(connection.verify_tls, str):
        context = ssl.create_default_context(cafile=connection.verify_tls)
    else:
        context = httpx2.create_ssl_context(verify=connection.verify_tls, trust_env=False)
    if connection.client_certificate is not None:
        connection.client_certificate.load(context)
    return context
