"""Upstreams that speak gRPC: where they are, and as whom we ask."""

from __future__ import annotations

from urllib.parse import urlsplit

import attrs

from mcp_trio.errors import ConfigurationError
from mcp_trio.runtime.connections import Connection, ConnectionSection
from mcp_trio.runtime.http_connection import Auth, HttpConnection
from mcp_trio.runtime.http_sections import AuthSection, ExchangeSection, HttpSection
from mcp_trio.secrets import Secret, SecretSource


@attrs.frozen(kw_only=True)
class GrpcConnection(Connection):
    """One gRPC server."""

    http: HttpConnection
    """Its host and port as a URL, `https` for TLS; credentials, authorities, certificate."""

    def __attrs_post_init__(self) -> None:
        parts = urlsplit(self.http.base_url)
        if parts.port is None or parts.path.strip("/"):
            raise ConfigurationError(f"connection {self.name}: the address must be host:port")
        if isinstance(self.http.auth, Auth) and self.http.auth.kind == "query":
            raise ConfigurationError(f"connection {self.name}: gRPC has no query for a secret")
        if self.http.verify_tls is False:
            raise ConfigurationError(
                f"connection {self.name}: gRPC always checks certificates; give a ca_file"
            )

    @property
    def port(self) -> int:
        """The port."""
        return urlsplit(self.http.base_url).port or 443

    @property
    def tls(self) -> bool:
        """Whether it speaks TLS."""
        return urlsplit(self.http.base_url).scheme == "https"

    def secrets(self) -> tuple[Secret, ...]:
        """What must not be shown."""
        return self.http.secrets()


@attrs.frozen(kw_only=True)
class GrpcSection(ConnectionSection):
    """`[connections.NAME]` of the kind `grpc`."""

    address: str
    """Host and port, `host:port`."""
    tls: bool = True
    """Speak TLS, and check the certificate."""
    auth: AuthSection | None = None
    """How we prove ourselves, in metadata; nothing by default."""
    on_behalf_of: ExchangeSection | None = None
    """Where callers' tokens are exchanged, for operations with `auth` `on_behalf_of`."""
    metadata: dict[str, str] = attrs.field(factory=dict[str, str])
    """Metadata without secrets, sent with every call."""
    ca_file: str | None = None
    """Authorities to trust instead of the system's, relative to the settings file."""
    client_cert_file: str | None = None
    """Certificate (PEM) to show to the server (mTLS)."""
    client_key_file: str | None = None
    """Its key (PEM)."""
    allow_private: bool = False
    """Let the host resolve to private or loopback addresses. An address, or localhost, that is
    written into the address is allowed anyway."""

    def connection(self, name: str, source: SecretSource) -> GrpcConnection:
        """Make the connection, its secrets fetched.

        Raises:
            ConfigurationError: it cannot be.
        """
        if "/" in self.address or "@" in self.address:
            raise ConfigurationError(f"connection {name}: the address must be host:port")
        http = HttpSection(
            base_url=f"{'https' if self.tls else 'http'}://{self.address}",
            auth=self.auth,
            on_behalf_of=self.on_behalf_of,
            headers=self.metadata,
            ca_file=self.ca_file,
            client_cert_file=self.client_cert_file,
            client_key_file=self.client_key_file,
            allow_private=self.allow_private,
        ).connection(name, source)
        return GrpcConnection(name=name, http=http, **self.common())
