"""`[catalog]`: the registry that is published, and how to reach it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import attrs

from mcp_trio.abc import Registry
from mcp_trio.catalog.registries.json_document import MAX_DOCUMENT_BYTES
from mcp_trio.catalog.registries.opening import open_registry
from mcp_trio.catalog.registries.options import RegistryOptions
from mcp_trio.secrets import SecretSource
from mcp_trio.setting_rules import NOT_EMPTY, NOT_NEGATIVE, POSITIVE


@attrs.frozen(kw_only=True)
class CatalogSection:
    """`[catalog]`: where the published operations are."""

    registry: str = attrs.field(validator=NOT_EMPTY)
    """Where they are: a SQLite file, a JSON document (`*.json`), a folder of them (`folder/`), an
    `https://` document, or a `postgresql://` database. Paths are relative to the settings file."""
    interval: float = attrs.field(default=30.0, validator=POSITIVE)
    """Seconds between looks for a change."""
    search_above: int | None = attrs.field(default=None, validator=NOT_NEGATIVE)
    """Above so many tools a list holds three tools in their place, to search, describe and call
    them; none: never."""
    secret_env: str | None = None
    """Environment variable that holds the token of the document or the password of the database."""
    secret_file: str | None = None
    """File that holds it, relative to the settings file; read again when it changes."""
    header: str | None = None
    """Header that carries the token of a document; `Authorization: Bearer` by default."""
    ca_file: str | None = None
    """Authorities to trust instead of the system's, relative to the settings file."""
    allow_private: bool = False
    """Let the host of a document resolve to private or loopback addresses."""
    allow_http: bool = False
    """Fetch a document without TLS from elsewhere than this machine."""
    max_bytes: int = attrs.field(default=MAX_DOCUMENT_BYTES, validator=POSITIVE)
    """Largest document, or all documents of a folder together."""
    connect_timeout: float = attrs.field(default=5.0, validator=POSITIVE)
    """Seconds to connect to the server of a document or database."""
    total_timeout: float = attrs.field(default=30.0, validator=POSITIVE)
    """Seconds for one look at a document or database on a server."""

    def open_registry(self, folder: Path, environment: Mapping[str, str] = os.environ) -> Registry:
        """Make the registry. Nothing is opened before its first use.

        Args:
            folder: what relative paths of files are relative to.
            environment: where `secret_env` is looked up.

        Raises:
            ConfigurationError: there is no such registry, it has no such option, or the
                secret is not there.
        """
        secret = None
        if self.secret_env is not None or self.secret_file is not None:
            source = SecretSource(folder=folder, environment=environment)
            secret = source.secret("catalog", "secret", env=self.secret_env, file=self.secret_file)
        options = RegistryOptions(
            secret=secret,
            header=self.header,
            ca_file=None if self.ca_file is None else str(folder / self.ca_file),
            allow_private=self.allow_private,
            allow_http=self.allow_http,
            max_bytes=self.max_bytes,
            connect_timeout=self.connect_timeout,
            total_timeout=self.total_timeout,
        )
        return open_registry(self.registry, options)
