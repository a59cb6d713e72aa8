"""Switching metrics and traces on, for servers and clients. Needs the `telemetry` extra."""

from __future__ import annotations

import contextlib
from collections.abc import Generator

from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import TracerProvider

from mcp_trio.client.client import MCPClient
from mcp_trio.server.server import MCPServer
from mcp_trio.telemetry.metrics import Metrics
from mcp_trio.telemetry.tracing import Tracing


@contextlib.contextmanager
def instrument(
    *targets: MCPServer | MCPClient,
    meter_provider: MeterProvider | None = None,
    tracer_provider: TracerProvider | None = None,
) -> Generator[None, None, None]:
    """Measure and trace servers and clients while the block runs.

    A server's span is around all of its middleware that is registered later. Without
    providers those of the process are used; without an OpenTelemetry SDK they do nothing.

    Args:
        *targets: what is measured.
        meter_provider: where the three instruments go; see `Metrics`.
        tracer_provider: where the spans go; see `Tracing`.
    """
    metrics, tracing = Metrics(meter_provider), Tracing(tracer_provider)
    with contextlib.ExitStack() as stack:
        for target in targets:
            stack.enter_context(target.events.attach(metrics))
            if isinstance(target, MCPServer):
                target.add_middleware(tracing.serve)
                stack.callback(target.remove_middleware, tracing.serve)
            else:
                target.add_middleware(tracing.call)
                stack.callback(target.remove_middleware, tracing.call)
        yield
