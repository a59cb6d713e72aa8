"""Named upstreams: what all kinds of them have, and who owns what is open to them.

Connections are server configuration; an operation refers to one by name. Their secrets
stay in `Secret` values until a request is built. Clients, pools and channels open on first
use and close with the `Connections` that hold them, whose nursery runs the tasks that some
of them need. What belongs to one kind of upstream stands with it: `http_connection` and
others, and beside the adapters.
"""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar, cast

import attrs
import httpcore2
import trio

from mcp_trio.catalog.operation import OperationError, execution_faults
from mcp_trio.client.block import leave
from mcp_trio.errors import ConfigurationError
from mcp_trio.network_guard import Resolve, resolve
from mcp_trio.secrets import Secret, SecretSource, mask
from mcp_trio.setting_rules import FINITE, POSITIVE
from mcp_trio.wire import JSONObject

CLOSE_TIMEOUT = 2.0
"""Seconds that closing everything may take."""


@attrs.frozen(kw_only=True)
class Timeouts:
    """Defaults for operations that set none, in seconds."""

    connect: float = attrs.field(default=5.0, validator=FINITE)
    """Resolving, connecting and TLS, and waiting for a place in the pool."""
    first_byte: float | None = attrs.field(default=None, validator=FINITE)
    """From the request to the head of the answer; None: only the total counts."""
    total: float = attrs.field(default=30.0, validator=FINITE)
    """The whole upstream part of a call, retries and waiting included."""


@attrs.frozen(kw_only=True)
class Connection:
    """One upstream, as configured. Each kind of upstream has a class of its own below this."""

    name: str
    timeouts: Timeouts = Timeouts()
    response_bytes: int = attrs.field(default=1 << 20, validator=POSITIVE)
    """Largest answer of an operation that sets no limit."""
    request_bytes: int = attrs.field(default=1 << 20, validator=POSITIVE)
    """Largest request body of an operation that sets no limit."""
    concurrency: int | None = attrs.field(default=None, validator=POSITIVE)
    """Calls at once of each operation that sets no limit; None for no limit."""
    vars: Mapping[str, object] = attrs.field(factory=dict[str, object])
    """Values without secrets that mappings may use as `vars`."""
    defaults: JSONObject = attrs.field(factory=dict[str, object])
    """What operations have that set no other: an `execution_config`, checked as one of those."""

    def secrets(self) -> tuple[Secret, ...]:
        """What must not be shown."""
        return ()

    def mask(self, text: str) -> str:
        """Take this connection's secrets out of a text."""
        return mask(text, self.secrets())


class Resource(Protocol):
    """Something open to an upstream: a client, a pool, a channel."""

    async def aclose(self) -> None:
        """Close it, and cut what is still running."""
        ...


R = TypeVar("R", bound=Resource)


class Connections:
    """The upstreams of one server, by name. An async context manager that owns what is open.

    Leaving the context cuts what is still running.

    Args:
        definitions: the upstreams.
        network: makes the sockets of HTTP, below the guard; httpcore2's own for Trio if None.
        resolver: finds the addresses the guard judges.
    """

    def __init__(
        self,
        definitions: Iterable[Connection] = (),
        *,
        network: httpcore2.AsyncNetworkBackend | None = None,
        resolver: Resolve = resolve,
    ) -> None:
        self._definitions: dict[str, Connection] = {}
        for definition in definitions:
            if definition.name in self._definitions:
                raise ConfigurationError(f"connection {definition.name} is defined twice")
            self._definitions[definition.name] = definition
        self.network = network
        self.resolver = resolver
        self._resources: dict[str, Resource] = {}
        self._open = False
        self._exits = contextlib.AsyncExitStack()
        self._nursery: trio.Nursery | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names, sorted."""
        return tuple(sorted(self._definitions))

    def get(self, name: str) -> Connection:
        """Look up a definition; may be called from any thread.

        Raises:
            OperationError: there is none of that name.
        """
        found = self._definitions.get(name)
        if found is None:
            raise OperationError(f"there is no connection {name[:80]!r}", place="target.connection")
        return found

    def resource(self, name: str, make: Callable[[], R]) -> R:
        """What is open under a name, made now if it was not.

        Args:
            name: of the connection, with a word behind it for a second thing that is open to it.
            make: makes it, without waiting.

        Raises:
            trio.ClosedResourceError: outside of the context.
        """
        if not self._open:
            raise trio.ClosedResourceError("the connections are closed")
        found = self._resources.get(name)
        if found is None:
            found = self._resources[name] = make()
        return cast("R", found)

    @property
    def nursery(self) -> trio.Nursery:
        """For the tasks of resources; they are cancelled when all resources are closed.

        Raises:
            trio.ClosedResourceError: outside of the context.
        """
        if self._nursery is None or not self._open:
            raise trio.ClosedResourceError("the connections are closed")
        return self._nursery

    async def __aenter__(self) -> Self:
        self._exits = contextlib.AsyncExitStack()
        self._nursery = await self._exits.enter_async_context(trio.open_nursery())
        self._exits.callback(self._nursery.cancel_scope.cancel)
        self._exits.push_async_callback(self._close)
        self._open = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return await leave(self._exits, kind, error, trace)

    async def _close(self) -> None:
        self._open = False
        resources, self._resources = list(self._resources.values()), {}
        with trio.move_on_after(CLOSE_TIMEOUT, shield=True):
            for resource in resources:
                await resource.aclose()


@attrs.frozen(kw_only=True)
class ConnectionSection(abc.ABC):
    """What every `[connections.NAME]` of the settings has; its key `kind` names the class.

    A class of another package is an attrs class too: its fields are the keys, each with a type
    and a default unless it is required.
    """

    connect_timeout: float = attrs.field(default=5.0, validator=POSITIVE)
    """Seconds to connect."""
    first_byte_timeout: float | None = attrs.field(default=None, validator=POSITIVE)
    """Seconds until an answer begins; none: only the total counts."""
    total_timeout: float = attrs.field(default=30.0, validator=POSITIVE)
    """Seconds for the whole upstream part of a call."""
    response_bytes: int = attrs.field(default=1 << 20, validator=POSITIVE)
    """Largest answer."""
    concurrency: int | None = attrs.field(default=None, validator=POSITIVE)
    """Calls at once of each operation that sets no limit."""
    vars: dict[str, Any] = attrs.field(factory=dict[str, Any])
    """Values without secrets for mappings."""
    defaults: dict[str, Any] = attrs.field(factory=dict[str, Any])
    """An `execution_config` for operations that set no other: retries, circuit, rate, limits."""

    @abc.abstractmethod
    def connection(self, name: str, source: SecretSource) -> Connection:
        """Make the connection, its secrets fetched.

        Raises:
            ConfigurationError: it cannot be.
        """

    def common(self) -> dict[str, Any]:
        """What every connection is made with, beside its name.

        Raises:
            ConfigurationError: the defaults are no `execution_config`.
        """
        faults = execution_faults(self.defaults, "defaults")
        if faults:
            raise ConfigurationError("; ".join(map(str, faults)))
        return {
            "defaults": self.defaults,
            "timeouts": Timeouts(
                connect=self.connect_timeout,
                first_byte=self.first_byte_timeout,
                total=self.total_timeout,
            ),
            "concurrency": self.concurrency,
            "response_bytes": self.response_bytes,
            "vars": self.vars,
        }
