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
from mcp_trio.runtime.adapters.base import INPUT_NAMES, Adapter, Plan
from mcp_trio.runtime.connections import Connection, Connections
from mcp_trio.runtime.expressions import ExpressionError, compile_expression
from mcp_trio.runtime.mapping import MappingError
from mcp_trio.runtime.output import Output, compile_output
from mcp_trio.runtime.pipeline import CompiledOperation
from mcp_trio.runtime.plugins import Adapters
from mcp_trio.runtime.policies import Gatekeeper, Settings, settings_of
from mcp_trio.runtime.result_cache import CachePolicy
from mcp_trio.runtime.sending import Sender
from mcp_trio.session.middleware import Authorizer, RequiresScopes

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
                f"{operation.protocol} is not available in this installation", place="protocol"
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
            output = compile_output(operation, settings, adapter.output_names)
        except MappingError as error:
            raise OperationError(error.reason, place=error.path) from error
        _check_arguments(operation, plan, output)
        declared = settings.idempotent
        idempotent = plan.idempotent if declared is None else declared
        return CompiledOperation(
            operation=operation,
            definition=operation.to_tool(),
            connection=connection,
            settings=settings,
            plan=plan,
            sender=Sender(
                operation_id=operation.operation_id,
                upstream="" if connection is None else connection.name,
                settings=settings,
                idempotent=idempotent,
                gatekeeper=self._gatekeeper,
            ),
            authorize=_authorizer(operation, settings),
            cache=_cache(settings, plan, output, idempotent=idempotent),
            validator=validator,
            output=output,
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
    reads = plan.reads | output.reads
    strangers = sorted(
        key for name, key in reads if name == "args" and key is not None and key not in known
    )
    if strangers:
        raise OperationError(
            f"args.{strangers[0][:80]} is used but is not in input_schema.properties",
            place="input_mapping" if ("args", strangers[0]) in plan.reads else "output_mapping",
        )


def _authorizer(operation: Operation, settings: Settings) -> Authorizer | None:
    scopes = settings.required_scopes
    return RequiresScopes(scopes, f"the tool {operation.name}") if scopes else None


def _cache(
    settings: Settings, plan: Plan, output: Output, *, idempotent: bool
) -> CachePolicy | None:
    """How good results are kept, if the operation asks for it."""
    if settings.cache_ttl is None:
        return None
    place = "execution_config.cache"
    if not idempotent:
        raise OperationError("only for an operation that is idempotent", place=place)
    reads = plan.reads | output.reads
    if any(name == "request" for name, _ in reads):
        raise OperationError("not where a mapping reads the request", place=place)
    try:
        vary = tuple(compile_expression(source) for source in settings.cache_vary)
    except ExpressionError as error:
        raise OperationError(str(error), place=f"{place}.vary") from error
    strangers = sorted({name for each in vary for name, _ in each.names} - {*INPUT_NAMES})
    if strangers:
        raise OperationError(f"there is no {strangers[0][:80]!r} here", place=f"{place}.vary")
    claims = frozenset(key for name, key in reads if name == "principal")
    return CachePolicy(
        ttl=settings.cache_ttl,
        vary=vary,
        claims=claims,
        by_token=settings.auth == "on_behalf_of",
    )
