"""Traces and metrics of a service to a collector, by OTLP over HTTP. Needs the `otlp` extra.

The SDK batches and sends in threads of its own: a collector that is slow or gone holds up
nothing, and what it missed is lost. Environment variables of OpenTelemetry (`OTEL_*`) have their
say where settings say nothing; secrets of a collector belong there, too.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import AsyncGenerator, Callable, Sequence
from time import monotonic

import attrs
import trio
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

from mcp_trio.server.server import MCPServer
from mcp_trio.telemetry.instrument import instrument

logger = logging.getLogger("mcp_trio.telemetry")

FLUSH_TIMEOUT = 5.0
"""Seconds that what waits at the end may take."""
SILENCE = 60.0
"""Seconds between two lines of the log about a collector that takes nothing."""


@attrs.frozen(kw_only=True)
class Collector:
    """Where to send, and how much."""

    endpoint: str | None
    """Base URL; None leaves it to `OTEL_EXPORTER_OTLP_ENDPOINT`, else it is this machine."""
    service: str
    """What the service is called there."""
    version: str
    """Its version."""
    interval: float
    """Seconds between two sendings of metrics."""
    sampled: float
    """Part of the traces that begin here; who began one elsewhere decides about that one."""


@contextlib.asynccontextmanager
async def exporting(
    collector: Collector, servers: Sequence[MCPServer]
) -> AsyncGenerator[None, None]:
    """Trace and measure servers while the block runs; at its end send what is left.

    That may take `FLUSH_TIMEOUT`, and is not cut short by cancelling.

    Args:
        collector: where to.
        servers: what is traced.
    """
    resource = Resource.create(
        {"service.name": collector.service, "service.version": collector.version}
    )
    base = None if collector.endpoint is None else collector.endpoint.rstrip("/")
    traces, metrics = (None if base is None else f"{base}/v1/{x}" for x in ("traces", "metrics"))
    tracers = TracerProvider(
        resource=resource,
        sampler=ParentBased(TraceIdRatioBased(collector.sampled)),
        shutdown_on_exit=False,
    )
    tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=traces)))
    reader = PeriodicExportingMetricReader(
        OTLPMetricExporter(endpoint=metrics), export_interval_millis=1000 * collector.interval
    )
    meters = MeterProvider(resource=resource, metric_readers=[reader], shutdown_on_exit=False)
    seldom = [(logging.getLogger(each.__module__), _Seldom()) for each in _EXPORTERS]
    for log, each in seldom:
        log.addFilter(each)
    try:
        with instrument(*servers, meter_provider=meters, tracer_provider=tracers):
            yield
    finally:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + FLUSH_TIMEOUT):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_shut, tracers.shutdown)
                nursery.start_soon(_shut, meters.shutdown)
        for log, each in seldom:
            log.removeFilter(each)


_EXPORTERS = (OTLPSpanExporter, OTLPMetricExporter)


class _Seldom(logging.Filter):
    """Lets one line through in `SILENCE` seconds: each try of each batch says the same."""

    def __init__(self) -> None:
        super().__init__()
        self._again = -math.inf
        self._kept_back = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Say whether a line may go, and how many did not since the last one."""
        now = monotonic()
        if now < self._again:
            self._kept_back += 1
            return False
        if self._kept_back:
            text = f"{record.getMessage()} ({self._kept_back} lines before it are left out)"
            record.msg, record.args = text, ()
        self._again, self._kept_back = now + SILENCE, 0
        return True


async def _shut(shutdown: Callable[[], object]) -> None:
    try:
        await trio.to_thread.run_sync(shutdown, abandon_on_cancel=True)
    except Exception as error:  # noqa: BLE001 - whatever a collector does ends no service
        logger.warning("the last traces or metrics could not be sent: %s", error)
