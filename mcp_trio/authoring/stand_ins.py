"""Connections to compile against where nothing is going to be sent.

With the settings of a service these are its connections, their secrets made up; without, any
name is one.
"""

from __future__ import annotations

from pathlib import Path

import attrs

from mcp_trio.authoring.faults import AuthoringError
from mcp_trio.catalog.operation import Operation
from mcp_trio.config import AuthSection, ConnectionSection, load_settings, make_connections
from mcp_trio.errors import ConfigurationError
from mcp_trio.runtime.connections import Connection, Connections

_MADE_UP = "MADE_UP"


class StandIns:
    """Looks like `Connections`, and opens nothing.

    Args:
        config: settings whose connections are the only ones; None: every name is one.

    Raises:
        AuthoringError: the settings cannot be used.
    """

    ANY = "stand-in"
    """The name of a connection that is always there."""

    def __init__(self, config: Path | None = None) -> None:
        known = [_made_up(self.ANY)]
        self._closed = config is not None
        if config is not None:
            try:
                settings = load_settings(config)
                sections = {
                    name: _without_secrets(section)
                    for name, section in settings.connections.items()
                }
                known += make_connections(sections, config.parent, {_MADE_UP: "made-up"})
            except ConfigurationError as error:
                raise AuthoringError(str(error)) from error
        self._known = {each.name: each for each in known}
        self._strict = Connections(known)

    def expect(self, operation: Operation) -> None:
        """Make sure that the connection of an operation is there, unless settings decide."""
        name = operation.target.get("connection")
        if isinstance(name, str) and not self._closed:
            self._known.setdefault(name, _made_up(name))

    def get(self, name: str) -> Connection:
        """Look one up.

        Raises:
            OperationError: the settings have none of that name.
        """
        return self._known.get(name) or self._strict.get(name)


def _made_up(name: str) -> Connection:
    return Connection(name=name, base_url="http://stand-in.invalid")


def _without_secrets(section: ConnectionSection) -> ConnectionSection:
    auth = section.auth
    if auth is None or auth.kind == "none":
        return section
    made_up: AuthSection = attrs.evolve(auth, secret_env=_MADE_UP, secret_file=None)
    return attrs.evolve(section, auth=made_up)
