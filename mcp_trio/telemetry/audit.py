"""Who called which tool, and how it ended: one line of JSON for each call, refused ones included.

Arguments are not written. A keyed digest of them tells whether two calls had the same, and with
the key whether a call had certain ones; without it not even `true` can be found out by trying.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import secrets
from collections.abc import Callable

import trio

from mcp_trio.catalog.operation import canonical
from mcp_trio.errors import (
    OVERLOADED,
    ErrorCode,
    MCPError,
    OverloadedError,
    UnauthorizedError,
    sole_cause,
)
from mcp_trio.runtime.stages import ERROR_KEY
from mcp_trio.session.context import Context
from mcp_trio.session.middleware import Next
from mcp_trio.session.serving import SESSION
from mcp_trio.telemetry.access_log import now
from mcp_trio.telemetry.called import Called
from mcp_trio.telemetry.callers import client_name, who_calls
from mcp_trio.telemetry.failures import Failure
from mcp_trio.telemetry.line_writer import LineWriter
from mcp_trio.telemetry.plain_text import cut, json_line
from mcp_trio.wire import CallToolParams, CallToolResult, JSONObject
from mcp_trio.wire.rounds import InputRequiredResult

PATIENCE = 5.0
"""Seconds that a call waits for its beginning to be written, where that is required."""


class AuditLog:
    """The middleware of a server that writes its calls of tools. Add it before all others."""

    def __init__(
        self,
        writer: LineWriter,
        *,
        key: bytes | None = None,
        required: bool = False,
        clock: Callable[[], dt.datetime] = now,
    ) -> None:
        """Make one.

        Args:
            writer: takes the lines.
            key: of the digests; by default one that nobody knows and that is gone with the
                process.
            required: write a line before each call, too, and make no call whose line is not
                written within `PATIENCE` seconds.
            clock: tells the time of day.
        """
        self._writer = writer
        self._key = key or secrets.token_bytes(32)
        self._key_id = self._digest(b"key id")[:8]
        self._required = required
        self._clock = clock

    async def __call__(self, context: Context, call_next: Next) -> object:
        """Be the middleware.

        Raises:
            OverloadedError: the call cannot be written, and that is required.
        """
        params = context.params
        if context.method != "tools/call" or not isinstance(params, CallToolParams):
            return await call_next(context)
        began = trio.current_time()
        # As it came, and before it is called: a handler may change its arguments.
        told = self._call(context, params)
        if self._required:
            await self._announce(told)
        try:
            result = await call_next(context)
            told.update(_ended(result))
            return result
        except BaseException as error:
            told.update(_failed(error, context))
            raise
        finally:
            told["duration_ms"] = round(1000 * (trio.current_time() - began), 3)
            self._writer.put(self._line("tool.end", told))

    async def _announce(self, told: JSONObject) -> None:
        line = self._line("tool.begin", told)
        if not await self._writer.put_and_wait(line, PATIENCE):
            raise OverloadedError("Calls cannot be recorded just now, so none is made")

    def _line(self, event: str, told: JSONObject) -> bytes:
        at = self._clock().isoformat(timespec="milliseconds")
        return json_line({"at": at, "event": event, **told}).encode("ascii") + b"\n"

    def _call(self, context: Context, params: CallToolParams) -> JSONObject:
        side, called = SESSION.get(), Called.of(context)
        told: JSONObject = {
            "request_id": cut(str(context.request_id)),
            "session": None if side is None else side.label,
            "revision": context.revision.date,
            **who_calls(context.principal),
            "client": client_name(context.client_info),
            "arguments_hmac": self._digest(canonical(params.arguments or {})),
            "hmac_key": self._key_id,
        }
        if called is not None:
            told["tool"], told["through"] = called.tool, called.through
            if called.operation is not None:
                told["operation_id"] = called.operation.operation_id
                told["operation_revision"] = called.operation.revision
        return told

    def _digest(self, data: bytes) -> str:
        return hmac.new(self._key, data, hashlib.sha256).hexdigest()


def _ended(result: object) -> JSONObject:
    if isinstance(result, InputRequiredResult):
        return {"outcome": "input_required"}
    if not isinstance(result, CallToolResult) or not result.is_error:
        return {"outcome": "success"}
    failure = Failure.read((result.meta or {}).get(ERROR_KEY))
    return {"outcome": "error", "stage": failure.stage, "kind": failure.sub, "code": failure.code}


def _failed(error: BaseException, context: Context) -> JSONObject:
    if isinstance(error, trio.Cancelled):
        if trio.current_time() >= context.scope.deadline:
            return {"outcome": "error", "code": ErrorCode.TIMEOUT}
        # A handler that asks ends its round so, too.
        return {"outcome": "input_required" if context.asking.over else "cancelled"}
    cause = sole_cause(error)
    if isinstance(cause, OverloadedError):
        return {"outcome": "refused", "code": OVERLOADED, "limit": cause.limit}
    code = cause.code if isinstance(cause, MCPError) else ErrorCode.HANDLER_FAILED
    refused = isinstance(cause, UnauthorizedError)
    return {"outcome": "refused" if refused else "error", "code": code}
