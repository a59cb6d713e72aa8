"""Upstreams that are MCP servers: where they are, as whom we ask, how they are started."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import attrs

from mcp_trio.errors import ConfigurationError
from mcp_trio.runtime.connections import Connection
from mcp_trio.runtime.http_connection import HttpConnection
from mcp_trio.runtime.http_sections import EndpointSection
from mcp_trio.secrets import Secret, SecretSource
from mcp_trio.setting_rules import POSITIVE
from mcp_trio.wire import REVISIONS, Revision


@attrs.frozen(kw_only=True)
class Program:
    """A program that serves on its standard streams."""

    arguments: tuple[str, ...]
    """The program and its arguments; no shell reads them."""
    env: Mapping[str, str | Secret] = attrs.field(factory=dict[str, "str | Secret"], repr=False)
    """Variables beside the few that are inherited."""
    cwd: Path | None = None


@attrs.frozen(kw_only=True)
class McpConnection(Connection):
    """One MCP server, behind a URL or as a program."""

    http: HttpConnection | None = None
    """The endpoint, and as whom it is asked."""
    program: Program | None = None
    session_per_caller: bool = False
    """A session of its own for each caller, also where all are asked as ourselves."""
    max_sessions: int = attrs.field(default=100, validator=POSITIVE)
    """Sessions at once; the one that was used longest ago ends for another one."""
    idle: float = attrs.field(default=300.0, validator=POSITIVE)
    """Seconds after which a session that nobody uses ends."""
    revisions: tuple[Revision, ...] = REVISIONS
    """Revisions of the protocol to try, newest first."""

    def __attrs_post_init__(self) -> None:
        if (self.http is None) is (self.program is None):
            raise ConfigurationError(f"connection {self.name}: give either a url or a command")

    def secrets(self) -> tuple[Secret, ...]:
        """What must not be shown."""
        if self.http is not None:
            return self.http.secrets()
        if self.program is None:  # pragma: no cover  # there is one of them
            return ()
        return tuple(value for value in self.program.env.values() if isinstance(value, Secret))


@attrs.frozen(kw_only=True)
class McpSection(EndpointSection):
    """`[connections.NAME]` of the kind `mcp`."""

    url: str | None = None
    """Endpoint of the server, `http` or `https`; else give a command."""
    command: list[str] | None = None
    """Program that serves on its standard streams, with its arguments; no shell reads them."""
    cwd: str | None = None
    """Its working directory, relative to the settings file; that of the server by default."""
    env: dict[str, str] = attrs.field(factory=dict[str, str])
    """Variables without secrets for the program, beside home, path, user, language and zone."""
    env_from: dict[str, str] = attrs.field(factory=dict[str, str])
    """Variables for the program that hold secrets: name there, and name in our environment."""
    headers: dict[str, str] = attrs.field(factory=dict[str, str])
    """Headers without secrets, sent with every request to the endpoint."""
    verify_tls: bool = True
    """Check certificates."""
    session_per_caller: bool = False
    """A session of its own for each caller. With `on_behalf_of` there always is one."""
    max_sessions: int = attrs.field(default=100, validator=POSITIVE)
    """Sessions at once; the one that was used longest ago ends for another one."""
    idle_timeout: float = attrs.field(default=300.0, validator=POSITIVE)
    """Seconds after which a session that nobody uses ends."""

    def connection(self, name: str, source: SecretSource) -> McpConnection:
        """Make the connection, its secrets fetched.

        Raises:
            ConfigurationError: it cannot be.
        """
        return McpConnection(
            name=name,
            http=None
            if self.url is None
            else self.endpoint(name, source, self.url, self.headers, verify_tls=self.verify_tls),
            program=None if self.command is None else self._program(name, self.command, source),
            session_per_caller=self.session_per_caller,
            max_sessions=self.max_sessions,
            idle=self.idle_timeout,
            **self.common(),
        )

    def _program(self, name: str, command: list[str], source: SecretSource) -> Program:
        if not command:
            raise ConfigurationError(f"connection {name}: the command is empty")
        if self.auth is not None or self.on_behalf_of is not None:
            raise ConfigurationError(f"connection {name}: a program takes env_from, and no auth")
        secrets = {
            there: source.secret(f"connection {name}", f"env_from.{there}", env=here, file=None)
            for there, here in self.env_from.items()
        }
        return Program(
            arguments=tuple(command),
            env={**self.env, **secrets},
            cwd=None if self.cwd is None else source.folder / self.cwd,
        )
