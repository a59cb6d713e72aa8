"""What an adapter is: it compiles an operation into a plan, and a plan sends requests.

The plan is split where the stages are: `prepare` is the end of mapping and does no input
or output; what it returns is adapter execution and may be called again for a retry.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, TypeAlias

import attrs

from mcp_trio.catalog.operation import Operation
from mcp_trio.runtime.connections import Connection
from mcp_trio.runtime.policies import Settings

INPUT_NAMES = ("args", "principal", "request", "vars")
"""What an input mapping may read."""
OUTPUT_NAMES = ("status", "headers", "body", "args")
"""What an output mapping may read."""


@attrs.frozen(kw_only=True)
class Answer:
    """What an upstream answered, well or badly."""

    ok: bool
    """Whether it is a success by the protocol's own rule."""
    body: object = None
    """JSON value, text, or None if there is none."""
    status: int | None = None
    """The protocol's status, if it has one."""
    headers: Mapping[str, str] = attrs.field(factory=dict[str, str])
    """By name in lower case. Cookies are left out."""
    retry_after: float | None = None
    """Seconds the upstream asks to wait."""


Send: TypeAlias = Callable[[], Awaitable[Answer]]
"""Sends one prepared request. May be called again; raises StageError."""
Prepare: TypeAlias = Callable[[Mapping[str, object]], Send]
"""Makes a request from an input context, without waiting; raises MappingError."""


@attrs.frozen(kw_only=True, eq=False)
class Plan:
    """An operation as its adapter will run it. Immutable."""

    prepare: Prepare
    reads: frozenset[tuple[str, str | None]]
    """What the mappings read of the input context."""
    idempotent: bool
    """Whether the protocol itself says that sending twice does no harm."""


class Adapter(Protocol):
    """Runs the operations of one protocol. Used from any thread; compiles without waiting."""

    @property
    def needs_connection(self) -> bool:
        """Whether the target names a connection."""
        ...

    def compile(
        self, operation: Operation, connection: Connection | None, settings: Settings
    ) -> Plan:
        """Make a plan. `connection` is None exactly if the adapter needs none.

        Raises:
            OperationError: the target or the mapping cannot work.
            MappingError: an input mapping does not compile.
        """
        ...
