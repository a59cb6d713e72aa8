"""Operations without an upstream: the output mapping is the whole answer."""

from __future__ import annotations

from collections.abc import Mapping

import trio

from mcp_trio.catalog.operation import Operation, OperationError
from mcp_trio.runtime.adapters.base import OUTPUT_NAMES, Answer, Call, Plan, Send
from mcp_trio.runtime.connections import Connection, Connections
from mcp_trio.runtime.policies import Settings


async def _answer() -> Answer:
    await trio.lowlevel.checkpoint()
    return Answer(ok=True)


def _prepare(_context: Mapping[str, object], _call: Call) -> Send:
    return _answer


class StaticAdapter:
    """Gives what `output_mapping.result` says. Implements `Adapter`."""

    def __init__(self, _connections: Connections) -> None:
        """It uses none."""

    connection_type = None
    output_names = OUTPUT_NAMES

    def compile(
        self,
        operation: Operation,
        connection: Connection | None,  # noqa: ARG002  # part of the contract
        settings: Settings,
    ) -> Plan:
        """Make a plan that does nothing.

        Raises:
            OperationError: there is no result, or an input mapping that nobody would use.
        """
        settings.refuse_stream()
        if operation.output_mapping.get("result") is None:
            raise OperationError("a static operation needs it", place="output_mapping.result")
        if operation.input_mapping:
            raise OperationError(
                "a static operation sends nothing, so it must be empty", place="input_mapping"
            )
        return Plan(prepare=_prepare, reads=frozenset(), idempotent=True)
