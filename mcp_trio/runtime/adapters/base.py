"""What an adapter is: it compiles an operation into a plan, and a plan sends requests.

The plan is split where the stages are: `prepare` is the end of mapping and does no input
or output; what it returns is adapter execution and may be called again for a retry.
Which adapters there are is the compiler's question.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

import attrs

from mcp_trio.catalog.operation import Operation
from mcp_trio.engine.envelope import Principal
from mcp_trio.runtime.connections import Connection
from mcp_trio.runtime.policies import Settings
from mcp_trio.secrets import Secret
from mcp_trio.wire import ContentBlock, RequestId

INPUT_NAMES = ("args", "principal", "request", "vars")
"""What an input mapping may read."""
OUTPUT_NAMES = ("status", "headers", "body", "args")
"""What an output mapping may read where the adapter offers nothing else."""

Report: TypeAlias = Callable[[float, "float | None", "str | None"], Awaitable[None]]
"""Tells the caller of progress: how far, of how much, and what is happening. Costs nothing if
the caller did not ask for it. The text may be the upstream's own: it is masked and cleaned here."""


@attrs.frozen(kw_only=True)
class Call:
    """The call that a request is made for. Its deadline is that of the current cancel scope."""

    request_id: RequestId
    principal: Principal | None
    """Who calls; None if that is not known."""
    report: Report
    meta: Mapping[str, object] = attrs.field(factory=dict[str, object])
    """The `_meta` that the caller's request came with."""
    shown: list[Secret] = attrs.field(factory=list[Secret], repr=False)
    """What the upstream got to see for this call beside the secrets of the connection, such as a
    token. An adapter adds to it; no text of the upstream gives it away."""


@attrs.frozen(kw_only=True)
class Answer:
    """What an upstream answered, well or badly."""

    ok: bool
    """Whether it is a success by the protocol's own rule."""
    body: object = None
    """JSON value, text, or None if there is none. The result, if the operation maps none."""
    status: int | None = None
    """The HTTP status, if it has one."""
    headers: Mapping[str, str] = attrs.field(factory=dict[str, str])
    """By name in lower case. Cookies are left out."""
    more: Mapping[str, object] = attrs.field(factory=dict[str, object])
    """What else output mappings may read, by the adapter's own `output_names`."""
    retry_after: float | None = None
    """Seconds the upstream asks to wait."""
    code: str | int | None = None
    """The protocol's own code of a failure; None: the status."""
    message: str | None = None
    """The protocol's own text of a failure; None: looked for in the body."""
    retryable: bool | None = None
    """Whether a failure may pass by itself; None: as the status says."""
    content: Sequence[ContentBlock] | None = None
    """The content of the result, where the upstream speaks of content itself."""
    cut: bool = False
    """Whether the adapter stopped at the limit of items, because the operation truncates."""


Send: TypeAlias = Callable[[], Awaitable[Answer]]
"""Sends one prepared request. May be called again; raises StageError."""
Prepare: TypeAlias = Callable[[Mapping[str, object], Call], Send]
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
    def connection_type(self) -> type[Connection] | None:
        """The class of connections that targets name; None if they name none."""
        ...

    @property
    def output_names(self) -> Sequence[str]:
        """What output mappings may read; `OUTPUT_NAMES` or more, or others."""
        ...

    def compile(
        self, operation: Operation, connection: Connection | None, settings: Settings
    ) -> Plan:
        """Make a plan.

        Args:
            operation: of this protocol; its target may hold anything if the protocol is not one
                of the format's own.
            connection: of the `connection_type`; None exactly if there is none.
            settings: of the operation, over the defaults of the connection.

        Raises:
            OperationError: the target or the mapping cannot work.
            MappingError: an input mapping does not compile.
        """
        ...
