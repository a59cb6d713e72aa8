"""A whole settings file: its sections, and reading it."""

from __future__ import annotations

import copy
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import cast

import attrs

from mcp_trio.catalog.registries.opening import scheme_of
from mcp_trio.config.admin import AdminSection
from mcp_trio.config.auth import AuthSection
from mcp_trio.config.catalog import CatalogSection
from mcp_trio.config.draft import Draft, Override, read_file
from mcp_trio.config.environment import apply_environment
from mcp_trio.config.faults import Fault, SettingsError
from mcp_trio.config.hints import hinted
from mcp_trio.config.limits import LimitsSection
from mcp_trio.config.load import RatesSection, ToolSection, load_limits
from mcp_trio.config.logs import AccessLogSection, AuditSection, LoggingSection
from mcp_trio.config.reading import MISSING, structure
from mcp_trio.config.schema import member
from mcp_trio.config.server import ServerSection
from mcp_trio.config.telemetry import TelemetrySection
from mcp_trio.config.tls import TLSSection
from mcp_trio.config.toolsets import ToolsetName, ToolsetSection
from mcp_trio.runtime.connections import Connection, ConnectionSection
from mcp_trio.secrets import SecretSource
from mcp_trio.session.limits import LoadLimits

NO_REGISTRY = "(none)"
"""Stands for a registry where the settings that name it are faulty."""


@attrs.frozen(kw_only=True)
class Settings:
    """A whole settings file."""

    catalog: CatalogSection
    server: ServerSection = attrs.field(factory=ServerSection)
    tls: TLSSection | None = None
    limits: LimitsSection = attrs.field(factory=LimitsSection)
    admin: AdminSection | None = None
    auth: AuthSection | None = None
    logging: LoggingSection = attrs.field(factory=LoggingSection)
    access_log: AccessLogSection | None = None
    audit: AuditSection | None = None
    telemetry: TelemetrySection | None = None
    toolsets: dict[ToolsetName, ToolsetSection] = attrs.field(
        factory=dict[ToolsetName, ToolsetSection]
    )
    """By name, which is the last part of their path."""
    connections: dict[str, ConnectionSection] = attrs.field(factory=dict[str, ConnectionSection])
    """By name; the key `kind` of a section chooses its class, `http` if there is none."""
    rates: RatesSection = attrs.field(factory=RatesSection)
    tools: dict[str, ToolSection] = attrs.field(factory=dict[str, ToolSection])
    """By name, in which `*` stands for anything."""

    @property
    def load(self) -> LoadLimits:
        """How much the service does at once, and how often."""
        return load_limits(self.server, self.limits, self.rates, self.tools)


def parse_settings(values: Mapping[str, object]) -> Settings:
    """Read settings from a mapping as TOML gives it; the environment has no say.

    Raises:
        SettingsError: with every key that does not fit.
    """
    made = structure(values, Settings)
    if isinstance(made, list):
        raise SettingsError(hinted(each, Settings, values) for each in made)
    return made


def draft_file(
    path: Path, environment: Mapping[str, str] = os.environ, options: Iterable[Override] = ()
) -> Draft:
    """Read a settings file, with what stands above it, and judge nothing yet.

    Args:
        path: the file.
        environment: variables that override its keys.
        options: of the command line, which override both.

    Raises:
        SettingsError: it cannot be read, or is no TOML.
    """
    return overridden(read_file(path), environment, options)


def overridden(
    draft: Draft, environment: Mapping[str, str], options: Iterable[Override] = ()
) -> Draft:
    """Put in place what stands above a file; gives the draft back."""
    apply_environment(draft, Settings, environment)
    for option in options:
        draft.override(option)
    return draft


def read_draft(draft: Draft) -> tuple[Settings, list[Fault]]:
    """Read a draft, and tell all that does not fit.

    The settings are made of the rest: a table that lacks something is left out, and a catalog
    that does has `NO_REGISTRY`.
    """
    made = structure(draft.values, Settings)
    faults = [*draft.faults, *(made if isinstance(made, list) else ())]
    values = draft.values
    seen: Counter[Fault] = Counter()
    while isinstance(made, list):
        values = _without(values, made, seen)
        seen.update(made)
        # What is told from now on may come of what was put aside.
        made = structure(values, Settings)
    told = (hinted(each, Settings, draft.values) for each in faults)
    return _absolute(made, draft.folder), draft.located(told)


def _without(
    values: dict[str, object], faults: Iterable[Fault], seen: Counter[Fault]
) -> dict[str, object]:
    """The values without what is faulty, and what is around it for each time it was seen before."""
    held = copy.deepcopy(values)
    for fault in faults:
        if fault.path in {("catalog",), ("catalog", "registry")}:
            catalog = held.get("catalog")
            there = cast("dict[str, object]", catalog) if isinstance(catalog, dict) else {}
            held["catalog"] = {**there, "registry": NO_REGISTRY}
            continue
        path = fault.path[:-1] if fault.reason == MISSING else fault.path
        *tables, last = path[: max(1, len(path) - seen[fault])]
        node: object = held
        for part in tables:
            node = member(node, part)
        if isinstance(node, dict):
            cast("dict[str, object]", node).pop(last, None)
    return held


def _absolute(settings: Settings, folder: Path) -> Settings:
    registry = settings.catalog.registry
    if scheme_of(registry) or registry == NO_REGISTRY:
        return settings
    # As text: a slash at the end says that it is a folder.
    registry = os.path.join(folder.absolute(), registry)  # noqa: PTH118
    return attrs.evolve(settings, catalog=attrs.evolve(settings.catalog, registry=registry))


def load_settings(path: Path, environment: Mapping[str, str] = os.environ) -> Settings:
    """Read a settings file, and what the environment puts above it; paths become absolute.

    Raises:
        SettingsError: it cannot be read, is no TOML, or does not fit.
    """
    settings, faults = read_draft(draft_file(path, environment))
    if faults:
        raise SettingsError(faults)
    return settings


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
