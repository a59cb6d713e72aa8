"""Operations without an upstream: the output mapping is the whole answer."""

from __future__ import annotations

from collections.abc import Mapping

import trio

from mcp_trio.catalog.operation import Operation, OperationError
from mcp_trio.runtime.adapters.base import Answer, Plan, Send
from mcp_trio.runtime.connections import Connection
from mcp_trio.runtime.policies import Settings


async def _answer() -> Answer:
    await trio.lowlevel.checkpoint()
    return Answer(ok=True)


def _prepare(_context: Mapping[str, object]) -> Send:
    return _answer


class StaticAdapter:
    """Gives what `output_mapping.result` says. Implements `Adapter`."""

    @property
    def needs_connection(self) -> bool:
        """No."""
        return False

    def compile(
        self,
        operation: Operation,
        connection: Connection | None,  # noqa: ARG002  # part of the contract
        settings: Settings,  # noqa: ARG002  # part of the contract
    ) -> Plan:
        """Make a plan that does nothing.

        Raises:
            OperationError: there is no result, or an input mapping that nobody would use.
        """
        if operation.output_mapping.get("result") is None:
            raise OperationError("a static operation needs it", place="output_mapping.result")
        if operation.input_mapping:
            raise OperationError(
                "a static operation sends nothing, so it must be empty", place="input_mapping"
            )
        return Plan(prepare=_prepare, reads=frozenset(), idempotent=True)
