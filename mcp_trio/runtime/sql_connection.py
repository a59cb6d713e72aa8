"""Upstreams that speak SQL: which database, as whom, and the pool of each."""

from __future__ import annotations

import os
from typing import Any, cast
from urllib.parse import urlsplit

import attrs

from mcp_trio.errors import ConfigurationError
from mcp_trio.runtime.adapters.sql_statement import POSTGRES, SQLITE
from mcp_trio.runtime.connections import Connection, Connections, ConnectionSection
from mcp_trio.runtime.sql_pool import Driver, SqlPool
from mcp_trio.runtime.sql_sqlite import SqliteDriver
from mcp_trio.secrets import Secret, SecretSource, shown_url
from mcp_trio.setting_rules import POSITIVE

_POSTGRES_SCHEMES = frozenset({"postgresql", "postgres"})


@attrs.frozen(kw_only=True)
class SqlConnection(Connection):
    """One database."""

    address: str
    """A path of a SQLite file, or a `postgresql://` URL without a password."""
    password: Secret | None = None
    """For PostgreSQL."""
    ca_file: str | None = None
    """Authorities to trust instead of the system's, for PostgreSQL."""
    max_connections: int = attrs.field(default=4, validator=POSITIVE)
    """Sessions at once."""

    def __attrs_post_init__(self) -> None:
        if self.dialect == POSTGRES:
            self.driver()  # takes the address apart
        elif "://" in self.address:
            raise ConfigurationError(
                f"connection {self.name}: {shown_url(self.address)} is neither a file "
                "nor a postgresql:// URL"
            )
        elif self.password is not None or self.ca_file is not None:
            raise ConfigurationError(
                f"connection {self.name}: a SQLite file has neither password nor ca_file"
            )

    @property
    def dialect(self) -> str:
        """`sqlite` or `postgres`."""
        return POSTGRES if urlsplit(self.address).scheme in _POSTGRES_SCHEMES else SQLITE

    def secrets(self) -> tuple[Secret, ...]:
        """What must not be shown."""
        return () if self.password is None else (self.password,)

    def driver(self) -> Driver:
        """What opens sessions."""
        if self.dialect == SQLITE:
            return SqliteDriver(os.path.abspath(self.address))  # noqa: PTH100  # no file access
        return cast(
            "Driver",
            _postgres().PostgresDriver(
                self.name, self.address, password=self.password, ca_file=self.ca_file
            ),
        )


def _postgres() -> Any:
    """The module of PostgreSQL, loaded by those who have such a connection.

    Raises:
        ConfigurationError: its library is not installed.
    """
    try:
        from mcp_trio.runtime import sql_postgres  # noqa: PLC0415  # needs an extra
    except ImportError as error:
        raise ConfigurationError(
            "PostgreSQL needs the extra: pip install 'mcp-trio[postgres]'"
        ) from error
    return sql_postgres


def sql_pool(connections: Connections, connection: SqlConnection) -> SqlPool:
    """The pool of a database, made now if it was not.

    Raises:
        trio.ClosedResourceError: outside of the context of the connections.
    """
    return connections.resource(
        connection.name, lambda: SqlPool(connection.driver(), connection.max_connections)
    )


@attrs.frozen(kw_only=True)
class SqlSection(ConnectionSection):
    """`[connections.NAME]` of the kind `sql`."""

    address: str
    """A SQLite file, relative to the settings file, or a `postgresql://` URL without a password."""
    secret_env: str | None = None
    """Environment variable that holds the password, for PostgreSQL."""
    secret_file: str | None = None
    """File that holds it; read again when it changes, for new sessions."""
    ca_file: str | None = None
    """Authorities to trust instead of the system's, relative to the settings file, for
    PostgreSQL. Beyond this machine its certificate is always checked, unless the URL has an
    `sslmode` that says otherwise."""
    max_connections: int = attrs.field(default=4, validator=POSITIVE)
    """Sessions open to this database at once."""

    def connection(self, name: str, source: SecretSource) -> SqlConnection:
        """Make the connection, its password fetched.

        Raises:
            ConfigurationError: it cannot be.
        """
        password = None
        if self.secret_env is not None or self.secret_file is not None:
            password = source.secret(
                f"connection {name}", "secret", env=self.secret_env, file=self.secret_file
            )
        url = "://" in self.address
        return SqlConnection(
            name=name,
            address=self.address if url else str(source.folder / self.address),
            password=password,
            ca_file=None if self.ca_file is None else str(source.folder / self.ca_file),
            max_connections=self.max_connections,
            **self.common(),
        )
