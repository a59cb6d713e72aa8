"""Metrics for Prometheus: counted from events, and gauges that are read when somebody asks.

A listener of any number of hubs, with a registry of its own, so that nothing of another library
gets into it. Every label has few values, whatever clients send. Needs the `prometheus` extra.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import (
    CollectorRegistry,
    Counter,
    GCCollector,
    Histogram,
    ProcessCollector,
    Summary,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from mcp_trio.errors import ErrorCode
from mcp_trio.events import (
    CatalogFailed,
    CatalogRefreshed,
    Event,
    NotificationEmitted,
    NotificationReceived,
    RequestCompleted,
    ToolCompleted,
)
from mcp_trio.telemetry.failures import Failure
from mcp_trio.telemetry.labels import MAX_KINDS, MAX_STAGES, OTHER, Bounded, method_label
from mcp_trio.telemetry.recent import BOUNDS_MS

MAX_TOOLS = 200
"""Tools that have a label of their own, the first ones that are called."""
BUCKETS = tuple(bound / 1000 for bound in BOUNDS_MS)
MEDIA = CONTENT_TYPE_PLAIN_0_0_4.encode("ascii")

Read = Callable[[], Iterable[Metric]]
"""Gives metrics as they are now. It must not wait."""


class Prometheus:
    """The metrics of a process. Attach it to the hubs of its servers."""

    def __init__(self, *reads: Read) -> None:
        """Make the metrics.

        Args:
            *reads: asked for more metrics whenever they are shown.
        """
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        GCCollector(registry=self._registry)
        for read in reads:
            self._registry.register(_Asked(read))
        self._tools = Bounded(MAX_TOOLS)
        self._kinds = Bounded(MAX_KINDS)
        self._stages = Bounded(MAX_STAGES)
        self._requests = Counter(
            "mcp_request",
            "Requests that ended.",
            ("direction", "method", "status"),
            registry=self._registry,
        )
        self._duration = Histogram(
            "mcp_request_duration_seconds",
            "From a request to its end.",
            ("direction", "method"),
            registry=self._registry,
            buckets=BUCKETS,
        )
        self._cancelling = Histogram(
            "mcp_request_cancel_seconds",
            "From the moment that a received request was cancelled to its end.",
            registry=self._registry,
            buckets=BUCKETS,
        )
        self._notifications = Counter(
            "mcp_notification", "Notifications.", ("direction", "method"), registry=self._registry
        )
        self._calls = Counter(
            "mcp_tool_call",
            "Calls of tools that ended.",
            ("tool", "status"),
            registry=self._registry,
        )
        self._call_duration = Summary(
            "mcp_tool_call_seconds",
            "From a call of a tool to its end.",
            ("tool",),
            registry=self._registry,
        )
        self._failures = Counter(
            "mcp_tool_error",
            "Calls of tools that failed, by stage.",
            ("stage", "kind"),
            registry=self._registry,
        )
        self._looks = Counter(
            "mcp_catalog_look",
            "Looks of the catalog at its registry.",
            ("result",),
            registry=self._registry,
        )
        self._look: Event | None = None

    def show(self) -> bytes:
        """All metrics now, in the text format (`MEDIA`)."""
        return generate_latest(self._registry)

    def __call__(self, event: Event) -> None:
        """Count one event."""
        match event:
            case RequestCompleted():
                self._request(event)
            case ToolCompleted():
                self._tool(event)
            case NotificationEmitted(method=method):
                self._notifications.labels("outbound", method_label(method)).inc()
            case NotificationReceived(method=method):
                self._notifications.labels("inbound", method_label(method)).inc()
            case CatalogRefreshed() | CatalogFailed() if event is not self._look:
                # The servers of toolsets tell the same look of their one catalog, each.
                self._look = event
                self._looks.labels(_result(event)).inc()
            case _:
                pass

    def _request(self, event: RequestCompleted) -> None:
        method = method_label(event.method)
        self._requests.labels(event.direction, method, event.outcome).inc()
        self._duration.labels(event.direction, method).observe(event.duration_ms / 1000)
        if event.cancel_ms is not None:
            self._cancelling.observe(event.cancel_ms / 1000)

    def _tool(self, event: ToolCompleted) -> None:
        # Only names of tools that there are: a client may ask for any.
        tool = OTHER if event.code == ErrorCode.NOT_FOUND else self._tools(event.tool)
        self._calls.labels(tool, event.outcome).inc()
        self._call_duration.labels(tool).observe(event.duration_ms / 1000)
        if event.outcome == "error":
            told = Failure.of(event)
            kind = told.sub or event.code or ""
            self._failures.labels(self._stages(told.stage), self._kinds(kind)).inc()


def _result(look: CatalogRefreshed | CatalogFailed) -> str:
    if isinstance(look, CatalogFailed):
        return "failed"
    return "changed" if look.changed else "unchanged"


class _Asked(Collector):
    """A function in the shape of a collector."""

    def __init__(self, read: Read) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        """Ask it."""
        return self._read()

    def describe(self) -> Iterable[Metric]:
        """Tell nothing beforehand: there may be nothing to ask yet."""
        return ()
