"""From a published view to something that can be called, or to the reason why not.

Adapters are found by `plugins`, so an installation has exactly the protocols it was given.
Everything that can be found wrong before the first call is found here.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import cast

from mcp_trio.catalog.operation import Operation, OperationError
from mcp_trio.framing.param_headers import ParamHeaderError, param_headers
from mcp_trio.json_schema import SchemaError, Validator
from mcp_trio.runtime.adapters.base import Adapter, Plan
from mcp_trio.runtime.connections import Connection, Connections
from mcp_trio.runtime.mapping import MappingError
from mcp_trio.runtime.output import Output, compile_output
from mcp_trio.runtime.pipeline import CompiledOperation
from mcp_trio.runtime.plugins import Adapters
from mcp_trio.runtime.policies import Gatekeeper, settings_of

_OPEN_ENDED = frozenset(
    {
        "$ref",
        "$dynamicRef",
        "allOf",
        "anyOf",
        "oneOf",
        "if",
        "then",
        "else",
        "not",
        "patternProperties",
        "dependentSchemas",
    }
)
"""Keywords at the root of a schema that may bring in properties not listed there."""


class Compiler:
    """Compiles operations. `compile` may run in any thread, one call at a time.

    Keeps what has to outlive a version of an operation: retry budgets and limiters.

    Args:
        connections: the upstreams that operations may name.
        adapters: by protocol; all that are installed if None, see `plugins`.
        chance: gives numbers from 0 to 1 for the jitter of retries.
    """

    def __init__(
        self,
        connections: Connections,
        adapters: Mapping[str, Adapter] | None = None,
        *,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._connections = connections
        self._adapters = Adapters(connections) if adapters is None else adapters
        self._gatekeeper = Gatekeeper(chance)

    def compile(self, operation: Operation) -> CompiledOperation:
        """Compile one operation.

        Raises:
            OperationError: this installation cannot run it; the text says where and why.
        """
        adapter = self._adapters.get(operation.protocol)
        if adapter is None:
            raise OperationError(
                f"protocol {operation.protocol} is not available in this installation"
            )
        connection = self._connection(operation, adapter)
        settings = settings_of(operation, connection)
        try:
            validator = Validator(operation.input_schema)
            param_headers(operation.input_schema)
        except (SchemaError, ParamHeaderError) as error:
            raise OperationError(str(error), place="input_schema") from error
        try:
            plan = adapter.compile(operation, connection, settings)
            output = compile_output(operation, settings.output_validation, adapter.output_names)
        except MappingError as error:
            raise OperationError(error.reason, place=error.path) from error
        _check_arguments(operation, plan, output)
        return CompiledOperation(
            operation=operation,
            definition=operation.to_tool(),
            connection=connection,
            settings=settings,
            plan=plan,
            validator=validator,
            output=output,
            gatekeeper=self._gatekeeper,
        )

    def _connection(self, operation: Operation, adapter: Adapter) -> Connection | None:
        kind = adapter.connection_type
        if kind is None:
            return None
        name = operation.target.get("connection")
        if not isinstance(name, str):
            raise OperationError("must name a connection", place="target.connection")
        found = self._connections.get(name)
        if not isinstance(found, kind):
            raise OperationError(
                f"{name!r} is a {type(found).__name__}; {operation.protocol} needs "
                f"a {kind.__name__}",
                place="target.connection",
            )
        return found


def _check_arguments(operation: Operation, plan: Plan, output: Output) -> None:
    """Refuse mappings that read an argument nobody can ever give."""
    schema = operation.input_schema
    if schema.keys() & _OPEN_ENDED:
        return
    known = cast("Mapping[str, object]", schema.get("properties") or {})
    mappers = [output.success_when, output.result, output.text, *output.errors.values()]
    reads = plan.reads.union(*(mapper.names for mapper in mappers if mapper is not None))
    strangers = sorted(
        key for name, key in reads if name == "args" and key is not None and key not in known
    )
    if strangers:
        raise OperationError(
            f"args.{strangers[0][:80]} is used but is not in input_schema.properties",
            place="input_mapping" if ("args", strangers[0]) in plan.reads else "output_mapping",
        )
