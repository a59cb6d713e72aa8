"""From an address to a registry: the one place that knows which kinds there are."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import cast

import attrs

from mcp_trio.abc import Registry
from mcp_trio.catalog.registries.document import DocumentRegistry
from mcp_trio.catalog.registries.http import HttpRegistry
from mcp_trio.catalog.registries.options import RegistryOptions
from mcp_trio.catalog.registries.sqlite import SqliteRegistry
from mcp_trio.errors import ConfigurationError
from mcp_trio.secrets import shown_url

_SERVER = frozenset({"secret", "ca_file", "connect_timeout", "total_timeout"})
_USES = {
    "SQLite file": frozenset[str](),
    "JSON document": frozenset({"max_bytes"}),
    "HTTPS document": _SERVER | {"header", "allow_private", "allow_http", "max_bytes"},
    "PostgreSQL": _SERVER,
}
"""By kind, the options that it heeds; any other one is a mistake."""


def open_registry(address: str, options: RegistryOptions | None = None) -> Registry:
    """Make the registry of an address. Nothing is opened before the first use.

    `https://...` is a document on a server, `postgresql://...` a database, a name that ends
    in `.json` a document, one that ends in a slash or is a folder a folder of documents, and
    any other name a SQLite file.

    Args:
        address: a path, or a URL without secrets in it.
        options: credentials, trust and bounds, as far as the kind heeds them.

    Raises:
        ConfigurationError: there is no such kind, or it has no such option; the extra it
            needs is not installed.
    """
    options = options or RegistryOptions()
    kind = kind_of(address)
    given = (f.name for f in attrs.fields(RegistryOptions) if getattr(options, f.name) != f.default)
    for name in given:
        if name not in _USES[kind]:
            raise ConfigurationError(f"a registry of the kind {kind} has no {name}")
    match kind:
        case "HTTPS document":
            return HttpRegistry(address, options)
        case "PostgreSQL":
            return _postgres(address, options)
        case "JSON document":
            return DocumentRegistry(address, max_bytes=options.max_bytes)
        case _:
            return SqliteRegistry(address)


def kind_of(address: str) -> str:
    """The kind of registry that an address means.

    Raises:
        ConfigurationError: none.
    """
    scheme = scheme_of(address)
    if scheme in {"http", "https"}:
        return "HTTPS document"
    if scheme in {"postgresql", "postgres"}:
        return "PostgreSQL"
    if scheme:
        raise ConfigurationError(f"there is no registry of the kind {scheme!r}")
    path = Path(address)
    if path.suffix in {".yaml", ".yml"}:
        raise ConfigurationError(f"{address}: a service reads no YAML; publish it in a registry")
    if address.endswith("/") or path.suffix == ".json" or path.is_dir():
        return "JSON document"
    return "SQLite file"


def scheme_of(address: str) -> str:
    """The scheme of a URL in lower case; empty for a path."""
    scheme, mark, _ = address.partition("://")
    return scheme.lower() if mark else ""


def shown(address: str) -> str:
    """An address as it may be shown: without user information and query."""
    return shown_url(address) if scheme_of(address) else address


def _postgres(address: str, options: RegistryOptions) -> Registry:
    try:
        # An extra: most services have no such registry, and no driver for it.
        module = importlib.import_module("mcp_trio.catalog.registries.postgres")
    except ImportError as error:
        raise ConfigurationError(
            "a PostgreSQL registry needs psycopg: install mcp-trio[postgres]"
        ) from error
    return cast("Registry", module.PostgresRegistry(address, options))
