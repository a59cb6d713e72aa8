"""A whole settings file: its sections, and reading it."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path

import attrs

from mcp_trio.catalog.registries.opening import scheme_of
from mcp_trio.config.admin import AdminSection
from mcp_trio.config.auth import AuthSection
from mcp_trio.config.catalog import CatalogSection
from mcp_trio.config.faults import SettingsError
from mcp_trio.config.limits import LimitsSection
from mcp_trio.config.reading import structure
from mcp_trio.config.server import ServerSection
from mcp_trio.config.tls import TLSSection
from mcp_trio.config.toolsets import ToolsetName, ToolsetSection
from mcp_trio.errors import ConfigurationError
from mcp_trio.runtime.connections import Connection, ConnectionSection
from mcp_trio.secrets import SecretSource


@attrs.frozen(kw_only=True)
class Settings:
    """A whole settings file."""

    catalog: CatalogSection
    server: ServerSection = attrs.field(factory=ServerSection)
    tls: TLSSection | None = None
    limits: LimitsSection = attrs.field(factory=LimitsSection)
    admin: AdminSection | None = None
    auth: AuthSection | None = None
    toolsets: dict[ToolsetName, ToolsetSection] = attrs.field(
        factory=dict[ToolsetName, ToolsetSection]
    )
    """By name, which is the last part of their path."""
    connections: dict[str, ConnectionSection] = attrs.field(factory=dict[str, ConnectionSection])
    """By name; the key `kind` of a section chooses its class, `http` if there is none."""


def parse_settings(values: Mapping[str, object]) -> Settings:
    """Read settings from a mapping as TOML gives it.

    Raises:
        ConfigurationError: naming every key that does not fit.
    """
    made = structure(values, Settings)
    if isinstance(made, list):
        raise SettingsError(made)
    return made


def load_settings(path: Path) -> Settings:
    """Read a settings file; paths in it become absolute.

    Raises:
        ConfigurationError: it cannot be read, is no TOML, or does not fit.
    """
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} is not TOML: {error}") from error
    settings = parse_settings(values)
    registry = settings.catalog.registry
    if not scheme_of(registry):
        # As text: a slash at the end says that it is a folder.
        registry = os.path.join(path.parent.absolute(), registry)  # noqa: PTH118
    return attrs.evolve(settings, catalog=attrs.evolve(settings.catalog, registry=registry))


def make_connections(
    sections: Mapping[str, ConnectionSection],
    folder: Path,
    environment: Mapping[str, str] = os.environ,
) -> list[Connection]:
    """Turn the sections into connections, fetching their secrets.

    Args:
        sections: by connection name.
        folder: what relative paths are relative to.
        environment: where `secret_env` is looked up.

    Raises:
        ConfigurationError: a secret is missing, or a connection cannot be.
    """
    source = SecretSource(folder=folder, environment=environment)
    return [section.connection(name, source) for name, section in sections.items()]
