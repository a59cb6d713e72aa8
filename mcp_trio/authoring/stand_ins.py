"""Connections to compile against where nothing is going to be sent.

With the settings of a service these are its connections, their secrets made up; without, any
name is one, of whatever kind the operation needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import attrs

from mcp_trio.authoring.faults import AuthoringError
from mcp_trio.catalog.operation import Operation, OperationError
from mcp_trio.config import load_settings
from mcp_trio.errors import ConfigurationError
from mcp_trio.runtime.connections import Connection, Connections
from mcp_trio.runtime.http_connection import HttpConnection
from mcp_trio.runtime.plugins import Adapters
from mcp_trio.secrets import Secret, SecretSource

_URL = "http://stand-in.invalid:80"
_VALUES: Mapping[str, object] = {
    "base_url": _URL,
    "http": HttpConnection(name="stand-in", base_url=_URL),
}
"""What fields of connections get, by name; required ones that are not here get a text."""
_OTHER_DATABASE: Mapping[str, object] = {"address": "postgresql://stand-in.invalid/stand-in"}
"""What else they may get: a database is one or the other, and its statements are judged so."""


class _MadeUp(SecretSource):
    """Has every secret, and none of them is one."""

    def secret(
        self,
        whose: str,  # noqa: ARG002  # its signature
        name: str,  # noqa: ARG002
        *,
        env: str | None,  # noqa: ARG002
        file: str | None,  # noqa: ARG002
    ) -> Secret:
        """Make one up."""
        return Secret("made-up")


class StandIns(Connections):
    """Looks like `Connections`, and opens nothing.

    Args:
        config: settings whose connections are the only ones; None: every name is one.

    Raises:
        AuthoringError: the settings cannot be used.
    """

    def __init__(self, config: Path | None = None) -> None:
        super().__init__(() if config is None else _of(config))
        self._closed = config is not None
        self._known: dict[str, Connection] = {}
        self._waived: set[str] = set()
        self._adapters = Adapters(self)
        self._others: dict[str, Connection] = {}

    def waive(self, name: str) -> None:
        """Have a connection of this name from now on, whatever the settings say."""
        self._waived.add(name)

    def expect(self, operation: Operation) -> None:
        """Be ready for the connection that an operation names.

        Raises:
            OperationError: it is of a kind that cannot be made up.
        """
        name = operation.target.get("connection")
        if not isinstance(name, str) or (self._closed and name not in self._waived):
            return
        adapter = self._adapters.get(operation.protocol)
        kind = None if adapter is None else adapter.connection_type
        if kind is not None and not isinstance(self._known.get(name), kind):
            self._known[name] = _stand_in(kind, name)

    def turn(self, operation: Operation) -> bool:
        """Let the connection of a sql operation be of the other kind of database; whether it can.

        Two turns lead back.
        """
        name = operation.target.get("connection")
        if operation.protocol != "sql" or not isinstance(name, str) or name not in self._known:
            return False
        now = self._known[name]
        other = self._others.get(name)
        if other is None:
            try:
                other = attrs.evolve(now, **cast("Any", _OTHER_DATABASE))
            except ConfigurationError:
                # Its driver is not installed, so nothing is known of its statements.
                return False
        self._known[name], self._others[name] = other, now
        return True

    def get(self, name: str) -> Connection:
        """Look one up.

        Raises:
            OperationError: the settings have none of that name.
        """
        return self._known.get(name) or super().get(name)


def _of(config: Path) -> list[Connection]:
    source = _MadeUp(folder=config.parent)
    try:
        sections = load_settings(config).connections
        return [section.connection(name, source) for name, section in sections.items()]
    except ConfigurationError as error:
        raise AuthoringError(str(error)) from error


def _stand_in(kind: type[Connection], name: str) -> Connection:
    values: dict[str, Any] = {
        field.name: _VALUES.get(field.name, "stand-in")
        for field in attrs.fields(kind)
        if field.default is attrs.NOTHING or field.name in _VALUES
    }
    make = cast("Callable[..., Connection]", kind)
    try:
        return make(**{**values, "name": name})
    except (ConfigurationError, TypeError, ValueError) as error:
        raise OperationError(
            f"a {kind.__name__} cannot be made up; give the settings that have it",
            place="target.connection",
        ) from error
