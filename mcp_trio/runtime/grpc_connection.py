"""Upstreams that speak gRPC: where they are, and as whom we ask."""

from __future__ import annotations

from urllib.parse import urlsplit

import attrs

from mcp_trio.errors import ConfigurationError
from mcp_trio.runtime.connections import Connection
from mcp_trio.runtime.http_connection import Auth, HttpConnection
from mcp_trio.runtime.http_sections import EndpointSection
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
class GrpcSection(EndpointSection):
    """`[connections.NAME]` of the kind `grpc`."""

    address: str
    """Host and port, `host:port`."""
    tls: bool = True
    """Speak TLS, and check the certificate."""
    metadata: dict[str, str] = attrs.field(factory=dict[str, str])
    """Metadata without secrets, sent with every call."""

    def connection(self, name: str, source: SecretSource) -> GrpcConnection:
        """Make the connection, its secrets fetched.

        Raises:
            ConfigurationError: it cannot be.
        """
        if "/" in self.address or "@" in self.address:
            raise ConfigurationError(f"connection {name}: the address must be host:port")
        url = f"{'https' if self.tls else 'http'}://{self.address}"
        http = self.endpoint(name, source, url, self.metadata)
        return GrpcConnection(name=name, http=http, **self.common())
