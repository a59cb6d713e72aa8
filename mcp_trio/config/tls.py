"""`[tls]`: the certificate of the service, and those of its clients."""

from __future__ import annotations

import os
from pathlib import Path
from typing import cast, get_args

import attrs

from mcp_trio.http.tls import ClientCertificates, TLSOptions
from mcp_trio.setting_rules import POSITIVE, Rule

WANTED = Rule(
    f"must be {' or '.join(get_args(ClientCertificates))}",
    lambda value: value in get_args(ClientCertificates),
)


@attrs.frozen(kw_only=True)
class TLSSection:
    """`[tls]`: TLS on the listener of `[server]`. Without this table it speaks plain HTTP.

    Files that change are read again; what cannot be used is logged, and the certificate in use
    stays.
    """

    cert_file: str
    """Certificate (PEM), followed by the ones that sign it, relative to the settings file."""
    key_file: str
    """Its key (PEM), not encrypted."""
    client_ca_file: str | None = None
    """Authorities (PEM) whose certificates clients may show."""
    client_certificates: str = attrs.field(default="none", validator=WANTED)
    """Whether clients are asked for a certificate (mTLS): `none`, `optional`, `required`."""
    reload_interval: float = attrs.field(default=10.0, validator=POSITIVE)
    """Seconds between looks whether a file has changed."""

    def options(self, folder: Path) -> TLSOptions:
        """What `MCPServer.serve_http` takes.

        Args:
            folder: what relative paths are relative to.

        Raises:
            ConfigurationError: an authority without a demand for certificates, or the other way.
        """
        ca = self.client_ca_file
        return TLSOptions(
            cert_file=os.fspath(folder / self.cert_file),
            key_file=os.fspath(folder / self.key_file),
            client_ca_file=None if ca is None else os.fspath(folder / ca),
            client_certificates=cast("ClientCertificates", self.client_certificates),
            reload_interval=self.reload_interval,
        )
