"""One call of one operation: validate, map, send, map back, validate again.

The stages stand here in order; each one's work is done elsewhere. A failure of any stage
is a result and not an exception, and a cancellation is neither: it passes through.
"""

from __future__ import annotations

import datetime as dt
import logging
import uuid
from functools import partial
from typing import cast

import attrs
import trio
import trio.lowlevel

from mcp_trio.catalog.operation import Operation
from mcp_trio.errors import MCPError
from mcp_trio.json_schema import Validator
from mcp_trio.runtime.adapters.base import Call, Plan
from mcp_trio.runtime.connections import Connection
from mcp_trio.runtime.expressions import Scope
from mcp_trio.runtime.mapping import MappingError, check_context
from mcp_trio.runtime.output import Output
from mcp_trio.runtime.policies import Settings
from mcp_trio.runtime.result_cache import CachePolicy
from mcp_trio.runtime.sending import Sender
from mcp_trio.runtime.stages import (
    Stage,
    StageError,
    Whose,
    failed,
    log_level,
    log_text,
    told,
)
from mcp_trio.secrets import Secret, mask
from mcp_trio.session.context import Context
from mcp_trio.session.middleware import Authorizer
from mcp_trio.wire import CallToolResult, JSONObject, Tool

_log = logging.getLogger("mcp_trio.runtime")


@attrs.frozen(kw_only=True, eq=False)
class CompiledOperation:
    """An operation that can be called. Implements `ToolEntry`; immutable."""

    operation: Operation
    definition: Tool
    """The tool as it is listed."""
    connection: Connection | None
    settings: Settings
    plan: Plan
    sender: Sender
    authorize: Authorizer | None
    """Demands the scopes that the operation requires; None if it requires none."""
    cache: CachePolicy | None
    """How results are kept; None if they are not."""
    validator: Validator
    """Of the arguments."""
    output: Output

    @property
    def tags(self) -> tuple[str, ...]:
        """What the operation is filed under."""
        said = self.operation.tool_description
        return () if isinstance(said, str) else tuple(cast("list[str]", said.get("tags") or []))

    async def call(self, context: Context, arguments: JSONObject) -> CallToolResult:
        """Run the five stages.

        Cancelling closes the upstream's socket and raises `trio.Cancelled`. The deadline
        of the operation is set under that of the caller's scope.

        The caller has been authorized; see `authorize`.
        """
        principal = context.principal
        # The caller's own goes to an authorization server, which may repeat it.
        token = None if principal is None else principal.token
        shown = [] if token is None else [token]
        try:
            return await self._stages(context, arguments, shown)
        except trio.Cancelled:
            if trio.current_time() >= context.scope.deadline:
                # The answer is made elsewhere; nobody there knows the operation.
                _log.warning(
                    "operation %s, request %s: took longer than the server allows",
                    self.operation.operation_id,
                    context.request_id,
                )
            raise
        except StageError as error:
            return self._failed(error, context, shown)
        except MappingError as error:
            return self._failed(_mapping_error(error), context, shown)
        except MCPError:
            raise
        except trio.ClosedResourceError:
            return self._failed(_shutting_down(), context, shown)
        except Exception as error:  # noqa: BLE001  # the one boundary of a call
            # What is left is a bug of ours, told by reference.
            reference = uuid.uuid4().hex[:12]
            _log.exception(
                "operation %s failed inside, reference %s", self.operation.operation_id, reference
            )
            return self._failed(_bug(error, reference), context, shown)

    async def _stages(
        self, context: Context, arguments: JSONObject, shown: list[Secret]
    ) -> CallToolResult:
        self._validate(arguments)
        inputs = self._inputs(context, arguments)
        check_context(inputs, "input_mapping")
        key = None
        if self.cache is not None:
            key = self.cache.key(self.operation.revision, inputs, context.principal)
        results = self.sender.gatekeeper.results
        if key is not None and (kept := results.find(key, trio.current_time())) is not None:
            await trio.lowlevel.checkpoint()
            return kept
        asked = trio.current_time()
        call = Call(
            request_id=context.request_id,
            principal=context.principal,
            report=partial(self._report, context, shown),
            meta=context.meta,
            shown=shown,
        )
        answer = await self.sender.send(self.plan.prepare(inputs, call), context.principal)
        result = self.output.deliver(answer, arguments, partial(self._mask, shown))
        if key is not None and self.cache is not None:
            results.keep(key, result, asked + self.cache.ttl)
        return result

    def _validate(self, arguments: JSONObject) -> None:
        violations = self.validator.violations(arguments)
        if violations:
            places = "; ".join(f"{v.pointer or '/'} {v.message}" for v in violations[:5])
            raise StageError(
                Stage.SCHEMA_VALIDATION,
                f"the arguments do not fit the input schema: {places}",
                sub="input",
                violations=violations,
            )

    def _inputs(self, context: Context, arguments: JSONObject) -> JSONObject:
        principal = context.principal
        who: JSONObject | None = None
        if principal is not None:
            who = {
                **principal.claims,
                "sub": principal.subject,
                "scopes": sorted(principal.scopes),
            }
            if principal.issuer is not None:
                who["iss"] = principal.issuer
        return Scope(
            {
                "args": arguments,
                "principal": who,
                "request": {
                    "id": context.request_id,
                    "time": dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds"),
                },
                "vars": {} if self.connection is None else dict(self.connection.vars),
            }
        )

    def _mask(self, shown: list[Secret], text: str) -> str:
        held = () if self.connection is None else self.connection.secrets()
        return mask(text, (*held, *shown))

    async def _report(
        self,
        context: Context,
        shown: list[Secret],
        value: float,
        total: float | None = None,
        message: str | None = None,
    ) -> None:
        said = None if message is None else told(message, partial(self._mask, shown))
        await context.progress(value, total, said)

    def _failed(self, error: StageError, context: Context, shown: list[Secret]) -> CallToolResult:
        hide = partial(self._mask, shown)
        if error.sub != "bug":
            # That one is in the log already, with its traceback.
            _log.log(
                log_level(error),
                "operation %s, request %s: %s",
                self.operation.operation_id,
                context.request_id,
                log_text(error, hide),
            )
        return failed(
            error,
            Whose(
                operation_id=self.operation.operation_id,
                revision=self.operation.revision,
                request_id=context.request_id,
            ),
            hide,
        )


def _mapping_error(error: MappingError) -> StageError:
    return StageError(Stage.MAPPING, str(error), sub="mapping")


def _shutting_down() -> StageError:
    return StageError(
        Stage.INTERNAL_RUNTIME,
        "the connections to the upstream are closed",
        sub="shutdown",
        retryable=True,
    )


def _bug(error: Exception, reference: str) -> StageError:
    return StageError(
        Stage.INTERNAL_RUNTIME,
        f"the server failed inside; the reference is {reference}",
        sub="bug",
        code=type(error).__name__,
    )
