"""The settings of `mcp-trio serve`: one TOML file, read once, every fault explained.

Unknown keys are errors. Secrets never stand in the file: it names an environment
variable or a file that holds them.
"""

from __future__ import annotations

import base64
import math
import os
import re
import tomllib
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, cast

import attrs
import cattrs

from mcp_trio.abc import Registry
from mcp_trio.catalog.registries.json_document import MAX_DOCUMENT_BYTES
from mcp_trio.catalog.registries.opening import open_registry, scheme_of
from mcp_trio.catalog.registries.options import RegistryOptions
from mcp_trio.catalog.toolsets import Choice
from mcp_trio.eras.rounds import KEY_BYTES
from mcp_trio.errors import ConfigurationError
from mcp_trio.framing.gate import GatePolicy
from mcp_trio.http.options import HTTPOptions
from mcp_trio.http.probes import PROBES
from mcp_trio.http.serving_settings import ServingSettings
from mcp_trio.runtime.connections import Connection, ConnectionSection
from mcp_trio.runtime.plugins import HTTP, connection_section
from mcp_trio.secrets import SecretSource
from mcp_trio.server.server import ServerOptions

TOOLSET = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""Names of toolsets: they are part of a path."""


@attrs.frozen(kw_only=True)
class ServerSection:
    """`[server]`: who we are, where we listen, and what we allow. All keys are optional."""

    name: str = "mcp-trio"
    """How the server calls itself to clients."""
    version: str = "0"
    """The version it tells them."""
    instructions: str | None = None
    """Advice for the model."""
    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = 8000
    """Port to listen on; 0 picks a free one."""
    path: str = "/mcp"
    """Path of the endpoint."""
    legacy_sse: bool = True
    """Serve clients of the HTTP+SSE transport at `/sse` and `/messages`."""
    allowed_hosts: list[str] = attrs.field(factory=list[str])
    """Host names served besides those of the address; `*` for every name."""
    allowed_origins: list[str] = attrs.field(factory=list[str])
    """Web origins served besides the server's own."""
    request_timeout: float = 60.0
    """Seconds a request may take."""
    page_size: int = 200
    """Tools on one page of a listing."""
    max_body: int = 4 * 1024 * 1024
    """Bytes of a request body."""
    max_depth: int = 64
    """Nesting of a JSON body."""
    max_connections: int = 1000
    """TCP connections."""
    max_sessions: int = 1000
    """Sessions of clients that speak a handshake revision, and WebSockets."""
    max_in_flight: int = 1000
    """Requests that run at once."""
    session_idle_timeout: float = 1800.0
    """Seconds of silence after which a session ends."""
    header_timeout: float = 10.0
    """Seconds for the head of a request to arrive."""
    body_timeout: float = 30.0
    """Seconds for the body of a request to arrive."""
    write_timeout: float = 30.0
    """Seconds that a client may take without reading anything of its answer."""
    listener_patience: float = 30.0
    """Seconds a client that listens for changes may leave one untaken."""
    state_keys: list[str] = attrs.field(factory=list[str])
    """Keys that seal what a question of a tool remembers, each as `env:NAME` or `file:PATH` of 32
    random bytes in hex or base64. The first one seals, every one opens; share them between
    replicas, and to rotate put a new one first."""
    cursor_key: str | None = None
    """Key that seals cursors of listings, in the same form; share it between replicas."""
    cleanup_timeout: float = 5.0
    """Seconds a cancelled request may shield itself for cleanup."""
    grace_period: float = 10.0
    """Seconds that running requests may go on after SIGTERM."""

    def http_options(self) -> HTTPOptions:
        """The settings of the endpoint."""
        return HTTPOptions(
            path=self.path,
            legacy_sse_path=HTTPOptions.legacy_sse_path if self.legacy_sse else None,
            allowed_hosts=frozenset(self.allowed_hosts),
            allowed_origins=frozenset(self.allowed_origins),
            max_body=self.max_body,
            body_timeout=self.body_timeout,
            max_depth=self.max_depth,
            max_sessions=self.max_sessions,
            max_in_flight=self.max_in_flight,
            session_idle_timeout=self.session_idle_timeout,
            cleanup_timeout=self.cleanup_timeout,
        )

    def serving_settings(self) -> ServingSettings:
        """The settings of the socket layer."""
        return ServingSettings(
            max_connections=self.max_connections,
            header_timeout=self.header_timeout,
            # The endpoint gives up first, with an answer that says why.
            body_timeout=self.body_timeout + 1,
            write_timeout=self.write_timeout,
            grace_period=self.grace_period,
        )

    def server_options(
        self, folder: Path, environment: Mapping[str, str] = os.environ
    ) -> ServerOptions:
        """The settings of the server itself, with their keys fetched.

        Args:
            folder: what relative paths are relative to.
            environment: where `env:` keys are looked up.

        Raises:
            ConfigurationError: a key is missing or is none.
        """
        keys = [_key(text, "server.state_keys", folder, environment) for text in self.state_keys]
        cursor = self.cursor_key
        return ServerOptions(
            request_timeout=self.request_timeout,
            page_size=self.page_size,
            cleanup_timeout=self.cleanup_timeout,
            max_in_flight=self.max_in_flight,
            listener_patience=self.listener_patience,
            state_keys=tuple(keys),
            cursor_secret=None
            if cursor is None
            else _key(cursor, "server.cursor_key", folder, environment),
        )


@attrs.frozen(kw_only=True)
class CatalogSection:
    """`[catalog]`: where the published operations are."""

    registry: str
    """Where they are: a SQLite file, a JSON document (`*.json`), a folder of them (`folder/`), an
    `https://` document, or a `postgresql://` database. Paths are relative to the settings file."""
    interval: float = 30.0
    """Seconds between looks for a change."""
    search_above: int | None = None
    """Above so many tools a list holds three tools in their place, to search, describe and call
    them; none: never."""
    secret_env: str | None = None
    """Environment variable that holds the token of the document or the password of the database."""
    secret_file: str | None = None
    """File that holds it, relative to the settings file; read anew each time, so it may rotate."""
    header: str | None = None
    """Header that carries the token of a document; `Authorization: Bearer` by default."""
    ca_file: str | None = None
    """Authorities to trust instead of the system's, relative to the settings file."""
    allow_private: bool = False
    """Let the host of a document resolve to private or loopback addresses."""
    allow_http: bool = False
    """Fetch a document without TLS from elsewhere than this machine."""
    max_bytes: int = MAX_DOCUMENT_BYTES
    """Largest document, or all documents of a folder together."""
    connect_timeout: float = 5.0
    """Seconds to connect to the server of a document or database."""
    total_timeout: float = 30.0
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
            secret = partial(
                source.secret, "catalog", "secret", env=self.secret_env, file=self.secret_file
            )
            # A mistake is told at the start; a file that goes away later is an outage.
            secret()
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


@attrs.frozen(kw_only=True)
class AdminSection:
    """`[admin]`: a listener for operators, apart from what clients reach. Off without this table.

    It asks nobody who he is.
    """

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = 8001
    """Port to listen on; 0 picks a free one."""
    allowed_hosts: list[str] = attrs.field(factory=list[str])
    """Host names served besides those of the address; `*` for every name."""

    def policy(self) -> GatePolicy:
        """Which Host values are served."""
        return HTTPOptions(allowed_hosts=frozenset(self.allowed_hosts)).gate(self.host)


@attrs.frozen(kw_only=True)
class ToolsetSection:
    """`[toolsets.NAME]`: some of the tools, at a path of their own, `server.path` and the name."""

    names: list[str] = attrs.field(factory=list[str])
    """Names of tools that belong to it; `*` stands for anything."""
    tags: list[str] = attrs.field(factory=list[str])
    """Tags of operations that belong to it."""
    required_scopes: list[str] = attrs.field(factory=list[str])
    """Scopes that a caller needs for anything at that path."""
    instructions: str | None = None
    """Advice for the model, in place of `server.instructions`."""
    search_above: int | None = None
    """As `catalog.search_above`, which counts if this is none."""

    def choice(self) -> Choice:
        """The rule that says what belongs to it."""
        return Choice(names=tuple(self.names), tags=frozenset(self.tags))


@attrs.frozen(kw_only=True)
class Settings:
    """A whole settings file."""

    catalog: CatalogSection
    server: ServerSection = attrs.field(factory=ServerSection)
    admin: AdminSection | None = None
    toolsets: dict[str, ToolsetSection] = attrs.field(factory=dict[str, ToolsetSection])
    """By name, which is the last part of their path."""
    connections: dict[str, ConnectionSection] = attrs.field(factory=dict[str, ConnectionSection])
    """By name; the key `kind` of a section chooses its class, `http` if there is none."""


def _plain(*kinds: type) -> Any:
    """Make a hook that coerces nothing: a TOML value has a type of its own."""

    def structure(value: object, _: object) -> object:
        if type(value) not in kinds:
            raise TypeError(f"must be {' or '.join(kind.__name__ for kind in kinds)}")
        return value

    return structure


def _finite(value: object, _: object) -> float:
    if type(value) in {int, float} and math.isfinite(cast("float", value)):
        return cast("float", value)
    raise TypeError("must be a finite number")


def _strings(value: object, _: object) -> list[str]:
    if isinstance(value, list) and all(type(item) is str for item in cast("list[object]", value)):
        return cast("list[str]", value)
    raise TypeError("must be a list of strings")


def _converter() -> cattrs.Converter:
    converter = cattrs.Converter(forbid_extra_keys=True)
    for kind in (str, bool, int):
        converter.register_structure_hook(kind, _plain(kind))
    converter.register_structure_hook(float, _finite)
    converter.register_structure_hook_func(lambda t: t == list[str], _strings)

    def connection(value: object, _: object) -> object:
        """Read a section as its kind wants it; the kind itself is read by nobody else."""
        if not isinstance(value, dict):
            raise TypeError("must be a table")
        held = dict(cast("dict[str, object]", value))
        kind = held.pop("kind", HTTP)
        if not isinstance(kind, str):
            raise TypeError("kind must be a string")
        return converter.structure(held, connection_section(kind))

    converter.register_structure_hook_func(lambda t: t is ConnectionSection, connection)
    return converter


def parse_settings(values: Mapping[str, object]) -> Settings:
    """Read settings from a mapping as TOML gives it.

    Raises:
        ConfigurationError: naming every key that does not fit.
    """
    try:
        settings = _converter().structure(values, Settings)
    except cattrs.BaseValidationError as error:
        faults = cattrs.transform_error(error, path="settings", format_exception=_explain)
        raise ConfigurationError("; ".join(faults)) from error
    _check_ranges(settings.server)
    _check_toolsets(settings)
    if settings.admin is not None and not 0 <= settings.admin.port <= 65535:
        raise ConfigurationError("admin.port must be 0 to 65535")
    for name in ("interval", "max_bytes", "connect_timeout", "total_timeout"):
        if getattr(settings.catalog, name) <= 0:
            raise ConfigurationError(f"catalog.{name} must be greater than 0")
    return settings


def _explain(error: BaseException, _: type | None) -> str:
    if isinstance(error, cattrs.ForbiddenExtraKeysError):
        return f"unknown keys {', '.join(sorted(error.extra_fields))}"
    if isinstance(error, KeyError):
        return f"missing key {error}"
    return str(error)


def _check_toolsets(settings: Settings) -> None:
    for name, section in settings.toolsets.items():
        if TOOLSET.fullmatch(name) is None:
            raise ConfigurationError(f"toolsets.{name[:80]} must match ^{TOOLSET.pattern}$")
        if not section.names and not section.tags:
            raise ConfigurationError(f"toolsets.{name} has neither names nor tags")
    bounds = {"catalog": settings.catalog.search_above} | {
        f"toolsets.{name}": section.search_above for name, section in settings.toolsets.items()
    }
    for where, above in bounds.items():
        if above is not None and above < 0:
            raise ConfigurationError(f"{where}: search_above must be 0 or more")


def _check_ranges(server: ServerSection) -> None:
    if not 0 <= server.port <= 65535:
        raise ConfigurationError("server.port must be 0 to 65535")
    if not server.path.startswith("/"):
        raise ConfigurationError("server.path must begin with a slash")
    if server.path.rstrip("/") in PROBES:
        raise ConfigurationError(f"server.path must not be one of {', '.join(sorted(PROBES))}")
    for field in attrs.fields(ServerSection):
        value = getattr(server, field.name)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if field.name != "port" and number and value <= 0:
            raise ConfigurationError(f"server.{field.name} must be greater than 0")


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


def _key(text: str, where: str, folder: Path, environment: Mapping[str, str]) -> bytes:
    """Fetch a key. What it holds is never told."""
    kind, _, place = text.partition(":")
    match kind:
        case "env":
            found = environment.get(place, "")
            if not found:
                raise ConfigurationError(f"{where}: {place} is not set")
        case "file":
            try:
                found = (folder / place).read_text(encoding="ascii")
            except (OSError, ValueError) as error:
                raise ConfigurationError(f"{where}: cannot read {place}") from error
        case _:
            # The text itself may be a key that somebody put there.
            raise ConfigurationError(f"{where}: a key is given as env:NAME or file:PATH")
    key = _as_key(found.strip())
    if key is None:
        raise ConfigurationError(f"{where}: {place} must hold {KEY_BYTES} bytes in hex or base64")
    return key


def _as_key(text: str) -> bytes | None:
    for read in (bytes.fromhex, partial(base64.b64decode, validate=True)):
        try:
            key = read(text)
        except ValueError:
            continue
        if len(key) == KEY_BYTES:
            return key
    return None
