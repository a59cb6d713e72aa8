"""Which adapters and which kinds of connections there are: our own, and those of other packages.

Another package adds one by an entry point, and cannot replace one of ours:

    [project.entry-points."mcp_trio.adapters"]
    soap = "my_package.soap:SoapAdapter"

    [project.entry-points."mcp_trio.connections"]
    soap = "my_package.soap:SoapSection"

The first is called with the `Connections` and gives an `Adapter`; the second is a class of
`ConnectionSection`. Modules are loaded when an operation or a setting first needs them, so an
installation without an extra works for everything else.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import entry_points
from typing import cast

from mcp_trio.catalog.operation import OperationError
from mcp_trio.errors import ConfigurationError
from mcp_trio.runtime.adapters.base import Adapter
from mcp_trio.runtime.connections import Connections, ConnectionSection

ADAPTERS: Mapping[str, str] = {
    "grpc": "mcp_trio.runtime.adapters.grpc:GrpcAdapter",
    "graphql": "mcp_trio.runtime.adapters.graphql:GraphqlAdapter",
    "mcp": "mcp_trio.runtime.adapters.mcp:McpAdapter",
    "rest": "mcp_trio.runtime.adapters.rest:RestAdapter",
    "sql": "mcp_trio.runtime.adapters.sql:SqlAdapter",
    "static": "mcp_trio.runtime.adapters.static:StaticAdapter",
}
"""Our own adapters by protocol."""
HTTP = "http"
"""The kind of a section that names none."""
KINDS: Mapping[str, str] = {
    HTTP: "mcp_trio.runtime.http_sections:HttpSection",
    "grpc": "mcp_trio.runtime.grpc_connection:GrpcSection",
    "mcp": "mcp_trio.runtime.mcp_connection:McpSection",
    "sql": "mcp_trio.runtime.sql_connection:SqlSection",
}
"""Our own kinds of connections."""
EXTRAS: Mapping[str, str] = {}
"""Which extra of this package an adapter or a kind needs."""


class _MissingExtraError(Exception):
    """What was asked for exists, and a library it needs is not installed."""


def _load(group: str, own: Mapping[str, str], name: str) -> object:
    """Load what stands under a name; None if nothing does."""
    place = own.get(name)
    if place is None:
        found = next(iter(entry_points(group=group, name=name)), None)
        return None if found is None else found.load()
    module, _, attribute = place.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except ImportError as error:
        raise _MissingExtraError(
            f"{name} needs the extra: pip install 'mcp-trio[{EXTRAS.get(name, name)}]'"
        ) from error


class Adapters(Mapping[str, Adapter]):
    """All adapters of this installation, by protocol; each is made when it is first asked for."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._made: dict[str, Adapter] = {}

    def __getitem__(self, protocol: str) -> Adapter:
        """The adapter of a protocol.

        Raises:
            KeyError: there is none.
            OperationError: an extra of this package is needed.
        """
        if protocol not in self._made:
            try:
                make = _load("mcp_trio.adapters", ADAPTERS, protocol)
            except _MissingExtraError as error:
                raise OperationError(str(error), place="protocol") from error
            if make is None:
                raise KeyError(protocol)
            self._made[protocol] = cast("Callable[[Connections], Adapter]", make)(self._connections)
        return self._made[protocol]

    def __iter__(self) -> Iterator[str]:
        others = {point.name for point in entry_points(group="mcp_trio.adapters")}
        return iter(sorted({*ADAPTERS, *others}))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def connection_section(kind: str) -> type[ConnectionSection]:
    """The class of `[connections.NAME]` sections of a kind.

    Raises:
        ConfigurationError: there is none, or it needs an extra of this package.
    """
    try:
        found = _load("mcp_trio.connections", KINDS, kind)
    except _MissingExtraError as error:
        raise ConfigurationError(str(error)) from error
    if not (isinstance(found, type) and issubclass(found, ConnectionSection)):
        others = {point.name for point in entry_points(group="mcp_trio.connections")}
        known = ", ".join(sorted({*KINDS, *others}))
        raise ConfigurationError(f"{kind[:80]!r} is no kind of connection; there are {known}")
    return found
