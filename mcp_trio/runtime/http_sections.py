"""The settings of upstreams that speak HTTP, and how connections are made of them."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import attrs

from mcp_trio.auth.keys import Algorithm, PrivateKey
from mcp_trio.errors import ConfigurationError
from mcp_trio.network_guard import NetworkPolicy
from mcp_trio.runtime.connections import ConnectionSection
from mcp_trio.runtime.http_connection import Auth, ClientCertificate, HttpConnection
from mcp_trio.runtime.upstream_tokens import ACCESS_TOKEN, TokenEndpoint
from mcp_trio.secrets import Secret, SecretSource
from mcp_trio.setting_rules import POSITIVE


@attrs.frozen(kw_only=True)
class AuthSection:
    """`[connections.NAME.auth]`: how we prove ourselves to an upstream."""

    kind: Literal["none", "bearer", "basic", "header", "query", "client_credentials"]
    """What is sent. With `client_credentials` it is a token that is asked for at `token_url`."""
    username: str = ""
    """For basic."""
    header: str = ""
    """Name of the header, for header."""
    parameter: str = ""
    """Name in the query, for query."""
    secret_env: str | None = None
    """Environment variable that holds the token, password or value, or the client's secret."""
    secret_file: str | None = None
    """File that holds it, relative to the settings file, and read again when it changes; white
    space around it is dropped."""
    token_url: str = ""
    """Token endpoint, for client_credentials."""
    client_id: str = ""
    """Who we are there."""
    auth_method: Literal["client_secret_basic", "client_secret_post"] = "client_secret_basic"
    """How the client's secret is shown."""
    private_key_file: str | None = None
    """A private key (PEM) in place of the secret (private_key_jwt)."""
    key_algorithm: Algorithm = "ES256"
    """Of the private key."""
    scopes: list[str] = attrs.field(factory=list[str])
    """To ask for."""
    audience: str | None = None
    """To ask for."""
    resource: str | None = None
    """To ask for (RFC 8707)."""
    allow_private: bool = False
    """Let the token endpoint have an address that is not public."""


@attrs.frozen(kw_only=True)
class ExchangeSection:
    """`[connections.NAME.on_behalf_of]`: where the token of a caller is exchanged (RFC 8693)."""

    token_url: str
    """Token endpoint."""
    client_id: str
    """Who we are there."""
    auth_method: Literal["client_secret_basic", "client_secret_post"] = "client_secret_basic"
    """How the client's secret is shown."""
    secret_env: str | None = None
    """Environment variable that holds the client's secret."""
    secret_file: str | None = None
    """File that holds it, read again when it changes."""
    private_key_file: str | None = None
    """A private key (PEM) in place of the secret (private_key_jwt)."""
    key_algorithm: Algorithm = "ES256"
    """Of the private key."""
    subject_token_type: str = ACCESS_TOKEN
    """What the caller's token is."""
    scopes: list[str] = attrs.field(factory=list[str])
    """To ask for."""
    audience: str | None = None
    """To ask for."""
    resource: str | None = None
    """To ask for (RFC 8707)."""
    allow_private: bool = False
    """Let the token endpoint have an address that is not public."""


@attrs.frozen(kw_only=True)
class EndpointSection(ConnectionSection):
    """What every `[connections.NAME]` has whose upstream is behind HTTP or its like."""

    auth: AuthSection | None = None
    """How we prove ourselves; nothing by default."""
    on_behalf_of: ExchangeSection | None = None
    """Where callers' tokens are exchanged, for operations with `auth` `on_behalf_of`."""
    ca_file: str | None = None
    """Authorities to trust instead of the system's, relative to the settings file."""
    client_cert_file: str | None = None
    """Certificate (PEM) to show to the upstream (mTLS); read again when it changes."""
    client_key_file: str | None = None
    """Its key (PEM)."""
    allow_private: bool = False
    """Let the host resolve to private or loopback addresses. An address, or localhost, that is
    written into the settings is allowed anyway."""

    def endpoint(
        self,
        name: str,
        source: SecretSource,
        base_url: str,
        headers: Mapping[str, str],
        *,
        verify_tls: bool = True,
        **options: Any,
    ) -> HttpConnection:
        """Make the connection to the endpoint, its secrets fetched.

        Args:
            name: of the connection.
            source: where secrets and files are.
            base_url: see `HttpConnection`, as are the following.
            headers: without secrets.
            verify_tls: whether certificates are checked, where there is no `ca_file`.
            options: what else the kind sets.

        Raises:
            ConfigurationError: it cannot be.
        """
        return HttpConnection(
            name=name,
            base_url=base_url,
            auth=_auth(name, self.auth, source),
            on_behalf_of=None
            if self.on_behalf_of is None
            else _endpoint(
                f"connection {name}: on_behalf_of",
                self.on_behalf_of,
                source,
                subject_token_type=self.on_behalf_of.subject_token_type,
            ),
            client_certificate=self._certificate(name, source.folder),
            headers=dict[str, "str | Secret"](headers),
            verify_tls=_authorities(name, source.folder / self.ca_file)
            if self.ca_file
            else verify_tls,
            network=NetworkPolicy(allow_private=self.allow_private),
            **options,
            **self.common(),
        )

    def _certificate(self, name: str, folder: Path) -> ClientCertificate | None:
        if (self.client_cert_file is None) is not (self.client_key_file is None):
            raise ConfigurationError(
                f"connection {name}: client_cert_file and client_key_file go together"
            )
        if self.client_cert_file is None or self.client_key_file is None:
            return None
        made = ClientCertificate(
            certificate=folder / self.client_cert_file, key=folder / self.client_key_file
        )
        try:
            made.load(ssl.create_default_context())
        except OSError as error:
            raise ConfigurationError(
                f"connection {name}: cannot use its client_cert_file and client_key_file"
            ) from error
        return made


@attrs.frozen(kw_only=True)
class HttpSection(EndpointSection):
    """`[connections.NAME]` of the kind `http`, which is the kind of one that names none."""

    base_url: str
    """Scheme, host and path prefix."""
    headers: dict[str, str] = attrs.field(factory=dict[str, str])
    """Headers without secrets, sent with every request."""
    verify_tls: bool = True
    """Check certificates."""
    max_connections: int = attrs.field(default=100, validator=POSITIVE)
    """Sockets open to this upstream at once."""
    deadline_header: str | None = None
    """Header that tells the upstream how many milliseconds are left of the call."""

    def connection(self, name: str, source: SecretSource) -> HttpConnection:
        """Make the connection, its secrets fetched.

        Raises:
            ConfigurationError: it cannot be.
        """
        return self.endpoint(
            name,
            source,
            self.base_url,
            self.headers,
            verify_tls=self.verify_tls,
            max_connections=self.max_connections,
            deadline_header=self.deadline_header,
        )


def _authorities(name: str, path: Path) -> str:
    try:
        ssl.create_default_context(cafile=path)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"connection {name}: cannot use its ca_file {path}") from error
    return str(path)


def _auth(name: str, section: AuthSection | None, source: SecretSource) -> Auth | TokenEndpoint:
    if section is None or section.kind == "none":
        return Auth()
    if section.kind == "client_credentials":
        return _endpoint(f"connection {name}: auth", section, source)
    secret = source.secret(
        f"connection {name}", "secret", env=section.secret_env, file=section.secret_file
    )
    return Auth(
        kind=section.kind,
        secret=secret,
        username=section.username,
        header=section.header,
        parameter=section.parameter,
    )


def _endpoint(
    whose: str,
    section: AuthSection | ExchangeSection,
    source: SecretSource,
    subject_token_type: str | None = None,
) -> TokenEndpoint:
    if not section.token_url or not section.client_id:
        raise ConfigurationError(f"{whose} needs token_url and client_id")
    secret = key = None
    if section.private_key_file is not None:
        pem = source.secret(whose, "private_key", env=None, file=section.private_key_file)
        key = PrivateKey(pem=pem, algorithm=section.key_algorithm)
    if key is None or section.secret_env is not None or section.secret_file is not None:
        secret = source.secret(whose, "secret", env=section.secret_env, file=section.secret_file)
    try:
        return TokenEndpoint(
            url=section.token_url,
            client_id=section.client_id,
            client_secret=secret,
            private_key=key,
            auth_method=section.auth_method,
            scopes=tuple(section.scopes),
            audience=section.audience,
            resource=section.resource,
            subject_token_type=subject_token_type,
            allow_private=section.allow_private,
        )
    except ConfigurationError as error:
        raise ConfigurationError(f"{whose}: {error}") from error
