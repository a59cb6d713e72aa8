"""Traces: a span for each request, and the trace context in `_meta` (ME3, SEP-414).

The span of a server is the child of what the client says in `traceparent`; what cannot be
read there is ignored. Below it is a span for each request to an upstream, which is told of it.
Names and attributes are those of OpenTelemetry's conventions for MCP.
Needs the `telemetry` extra.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping
from typing import cast

import trio
from opentelemetry import trace
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import Context as Trace
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from mcp_trio.client.layers import ClientNext
from mcp_trio.errors import MCPError
from mcp_trio.runtime.adapters.base import Answer
from mcp_trio.runtime.stages import Stage, StageError
from mcp_trio.runtime.watching import WATCHER, Told
from mcp_trio.server.server import MCPServer
from mcp_trio.session.context import Context
from mcp_trio.session.middleware import Next
from mcp_trio.session.serving import SESSION
from mcp_trio.telemetry.labels import method_label
from mcp_trio.telemetry.metrics import METER
from mcp_trio.telemetry.plain_text import cut
from mcp_trio.wire import CallToolResult, JSONObject

__all__ = ["Tracing"]

# The keys are W3C's whatever the process uses elsewhere (`_meta` reserves just these).
_PARENT = TraceContextTextMapPropagator()
_FIELDS = CompositePropagator([_PARENT, W3CBaggagePropagator()])


def remote_parent(meta: Mapping[str, object]) -> Trace:
    """The trace context that a message brings; an empty one if it has none that can be read."""
    carrier = {key: value for key in _FIELDS.fields if isinstance(value := meta.get(key), str)}
    return _FIELDS.extract(carrier, context=Trace())


def with_trace(params: JSONObject | None) -> JSONObject | None:
    """The parameters with the current trace context in their `_meta`; what stands there stays."""
    carrier: dict[str, str] = {}
    _FIELDS.inject(carrier)
    if not carrier:
        return params
    given = (params or {}).get("_meta")
    meta = cast("JSONObject", given) if isinstance(given, dict) else {}
    return {**(params or {}), "_meta": {**carrier, **meta}}


_TARGETS = {
    "tools/call": ("gen_ai.tool.name", "name"),
    "prompts/get": ("gen_ai.prompt.name", "name"),
    "resources/read": ("mcp.resource.uri", "uri"),
    "resources/subscribe": ("mcp.resource.uri", "uri"),
    "resources/unsubscribe": ("mcp.resource.uri", "uri"),
}
"""The attribute for what a method is about, and the parameter it is in."""


def _attributes(method: str, target: str | None, revision: str) -> dict[str, str]:
    found = {"mcp.method.name": method_label(method), "mcp.protocol.version": revision}
    if target is not None and method in _TARGETS:
        found[_TARGETS[method][0]] = target[:256]
    if method == "tools/call":
        found["gen_ai.operation.name"] = "execute_tool"
    return found


_LINES = {
    "http": ("tcp", "http"),
    "http+sse": ("tcp", "http"),
    "websocket": ("tcp", "websocket"),
    "stdio": ("pipe", None),
}
"""Transport and protocol by the kind of a session."""


def _line() -> dict[str, str]:
    """What is known of the session and of what carries it."""
    side = SESSION.get()
    # What belongs to no session came with a POST of its own.
    transport, protocol = _LINES.get("http" if side is None else side.kind, (None, None))
    known = {
        "mcp.session.id": None if side is None else side.label,
        "network.transport": transport,
        "network.protocol.name": protocol,
    }
    return {name: value for name, value in known.items() if value is not None}


def _span_name(method: str, target: str | None) -> str:
    # A URI has too many values for a name.
    named = target is not None and method in {"tools/call", "prompts/get"}
    return f"{method_label(method)} {cut(target)}" if named and target else method_label(method)


def _exists(context: Context) -> bool:
    """Whether the server has what is called: else a peer's own words would name the span."""
    server, target = context.server, context.target
    if not isinstance(server, MCPServer) or target is None:
        return False
    match context.method:
        case "tools/call":
            return server.tools.find(target) is not None
        case "prompts/get":
            return server.prompts.find(target) is not None
        case _:
            return False


def _failed(span: Span, kind: str, text: str) -> None:
    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR, text))


class Tracing:
    """The spans of servers and clients."""

    def __init__(self, provider: trace.TracerProvider | None = None) -> None:
        """Make the tracer.

        Args:
            provider: of tracers; the process's own by default.
        """
        self._tracer = trace.get_tracer(METER, tracer_provider=provider)

    async def serve(self, context: Context, call_next: Next) -> object:
        """Be the middleware of a server: a span around each request."""
        target = context.target
        attributes = _attributes(context.method, target, context.revision.date)
        attributes["jsonrpc.request.id"] = cut(str(context.request_id))
        attributes.update(_line())
        name = _span_name(context.method, target if _exists(context) else None)
        parent = remote_parent(context.meta)
        with (
            self._span(name, SpanKind.SERVER, attributes, parent, context.scope) as span,
            self._watching(),
        ):
            result = await call_next(context)
            if isinstance(result, CallToolResult) and result.is_error:
                _failed(span, "tool_error", "")
            return result

    async def call(
        self, method: str, params: JSONObject | None, call_next: ClientNext
    ) -> JSONObject:
        """Be the middleware of a client: a span around each call, told to the server."""
        place = _TARGETS.get(method)
        found = None if place is None else (params or {}).get(place[1])
        target = found if isinstance(found, str) else None
        attributes = {"mcp.method.name": method_label(method)}
        if place is not None and target is not None:
            attributes[place[0]] = target[:256]
        with self._span(_span_name(method, target), SpanKind.CLIENT, attributes) as span:
            result = await call_next(method, with_trace(params))
            if result.get("isError") is True:
                _failed(span, "tool_error", "")
            return result

    @contextlib.contextmanager
    def _watching(self) -> Generator[None, None, None]:
        """Have the requests to upstreams that are made in the block traced, too."""
        outer = WATCHER.set(self)
        try:
            yield
        finally:
            WATCHER.reset(outer)

    @contextlib.contextmanager
    def attempt(self, operation_id: str, upstream: str) -> Generator[Told, None, None]:
        """Be the `Watcher` of upstreams: a span around one attempt."""
        attributes = {"mcp_trio.operation.id": operation_id, "mcp_trio.connection": upstream}
        name = f"{upstream} {operation_id}".strip()
        with self._span(name, SpanKind.CLIENT, attributes) as span:

            def told(answer: Answer) -> None:
                if answer.status is not None:
                    span.set_attribute("http.response.status_code", answer.status)
                if not answer.ok:
                    # An upstream's own code may be any text.
                    _failed(span, str(answer.status or Stage.EXTERNAL_SERVICE), "")

            yield told

    def fields(self) -> Mapping[str, str]:
        """Give `traceparent` and `tracestate` of the attempt; baggage is not for upstreams."""
        carrier: dict[str, str] = {}
        _PARENT.inject(carrier)
        return carrier

    @contextlib.contextmanager
    def _span(
        self,
        name: str,
        kind: SpanKind,
        attributes: dict[str, str],
        parent: Trace | None = None,
        scope: trio.CancelScope | None = None,
    ) -> Generator[Span, None, None]:
        """A span around the block, marked with how the block fails.

        Args:
            name: of the span.
            kind: whose side it is.
            attributes: what is known beforehand.
            parent: where the trace comes from; the current one if None.
            scope: of the request, whose deadline tells a timeout from a cancellation.
        """
        with self._tracer.start_as_current_span(
            name,
            context=parent,
            kind=kind,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except MCPError as error:
                span.set_attribute("rpc.response.status_code", str(error.rpc_code))
                _failed(span, str(error.rpc_code), error.message)
                raise
            except StageError as error:
                # Its text may repeat what an upstream said.
                _failed(span, error.sub, "")
                raise
            except Exception as error:
                # Its text may hold what nobody else should see.
                _failed(span, type(error).__name__, "")
                raise
            except trio.Cancelled:
                late = scope is not None and scope.deadline <= trio.current_time()
                _failed(span, "timeout" if late else "cancelled", "")
                raise
