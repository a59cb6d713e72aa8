"""Telling observers how each call of a tool ended. Nothing is decided here."""

from __future__ import annotations

from types import TracebackType
from typing import Self

import trio

from mcp_trio.errors import OVERLOADED, ErrorCode, MCPError, OverloadedError, sole_cause
from mcp_trio.events import EventHub, Outcome, ToolCompleted
from mcp_trio.session.context import Context
from mcp_trio.wire import CallToolResult
from mcp_trio.wire.rounds import InputRequiredResult


class Telling:
    """Around one call: whatever ends the block, observers are told once.

    Without observers it costs two looks. A round that ends with a question is no end of the call,
    so nothing is told of it.
    """

    __slots__ = ("_began", "_context", "_hub", "_tool", "result")

    def __init__(self, hub: EventHub, context: Context, tool: str) -> None:
        self._hub = hub
        self._context = context
        self._tool = tool
        self._began = trio.current_time()
        self.result: CallToolResult | InputRequiredResult | None = None
        """What the tool has answered; None until it has."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._hub.active or self._is_asking():
            return
        outcome, code = self._end(error)
        context, result = self._context, self.result
        meta = result.meta if isinstance(result, CallToolResult) else None
        self._hub.emit(
            ToolCompleted(
                side="server",
                tool=self._tool,
                id=context.request_id,
                duration_ms=1000 * (trio.current_time() - self._began),
                outcome=outcome,
                subject=None if context.principal is None else context.principal.subject,
                code=code,
                meta=meta or {},
            )
        )

    def _is_asking(self) -> bool:
        if self.result is None:
            return self._context.asking.over
        return isinstance(self.result, InputRequiredResult)

    def _end(self, error: BaseException | None) -> tuple[Outcome, str | None]:
        if error is None:
            failed = isinstance(self.result, CallToolResult) and self.result.is_error
            return ("error" if failed else "success"), None
        if isinstance(error, trio.Cancelled):
            late = trio.current_time() >= self._context.scope.deadline
            return ("error", ErrorCode.TIMEOUT) if late else ("cancelled", None)
        cause = sole_cause(error)
        if isinstance(cause, OverloadedError):
            return "error", OVERLOADED
        # The `code` of another exception may be anything.
        return "error", cause.code if isinstance(cause, MCPError) else ErrorCode.HANDLER_FAILED
