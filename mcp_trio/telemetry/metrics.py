"""Metrics, made of events: what was asked, how it ended, how long it took.

Only listens; nothing here is asked by anybody. Needs the `telemetry` extra.
"""

from __future__ import annotations

import trio
from opentelemetry import metrics

from mcp_trio.events import (
    ConnectionClosed,
    ConnectionOpened,
    Event,
    NotificationEmitted,
    NotificationReceived,
    RequestCompleted,
    RequestRefused,
    ToolCompleted,
)
from mcp_trio.telemetry.failures import Failure
from mcp_trio.telemetry.labels import MAX_KINDS, MAX_STAGES, Bounded, method_label

METER = "mcp_trio"


class Metrics:
    """The instruments of one meter, as a listener of any number of hubs.

    `mcp_request_total{direction, method, status}` counts requests that ended, `status` being
    success, error or cancelled; `mcp_request_refused_total{method, limit}` those that were over a
    limit of load; `mcp_notification_total{direction, method}` counts
    notifications; `mcp_request_duration_ms{direction, method}` is a histogram. The durations
    are kept in seconds, too, under the names of OpenTelemetry's conventions for MCP, and so are
    those of sessions. `mcp_tool_error_total{stage, kind}` counts calls of tools that failed.
    """

    def __init__(self, provider: metrics.MeterProvider | None = None) -> None:
        """Make the instruments.

        Args:
            provider: of meters; the process's own by default.
        """
        meter = metrics.get_meter(METER, meter_provider=provider)
        self._requests = meter.create_counter(
            "mcp_request_total", unit="{request}", description="Requests that ended"
        )
        self._notifications = meter.create_counter(
            "mcp_notification_total", unit="{notification}", description="Notifications"
        )
        self._refused = meter.create_counter(
            "mcp_request_refused_total", unit="{request}", description="Requests over a limit"
        )
        self._duration = meter.create_histogram(
            "mcp_request_duration_ms", unit="ms", description="From a request to its end"
        )
        self._failures = meter.create_counter(
            "mcp_tool_error_total", unit="{call}", description="Calls of tools that failed"
        )
        self._stages, self._kinds = Bounded(MAX_STAGES), Bounded(MAX_KINDS)
        self._began: dict[str, float] = {}  # sessions, by dispatcher
        self._sessions = {
            side: meter.create_histogram(
                f"mcp.{side}.session.duration", unit="s", description="From its begin to its end"
            )
            for side in ("server", "client")
        }
        self._operations = {
            side: meter.create_histogram(
                f"mcp.{side}.operation.duration", unit="s", description="From a request to its end"
            )
            for side in ("server", "client")
        }

    def __call__(self, event: Event) -> None:
        """Count one event."""
        match event:
            case RequestCompleted():
                self._completed(event)
            case ToolCompleted(outcome="error"):
                told = Failure.of(event)
                kind = self._kinds(told.sub or event.code or "")
                self._failures.add(1, {"stage": self._stages(told.stage), "kind": kind})
            case ConnectionOpened(dispatcher_id=session):
                self._began[session] = trio.current_time()
            case ConnectionClosed():
                self._closed(event)
            case RequestRefused():
                labels = {"method": method_label(event.method), "limit": event.limit}
                self._refused.add(1, labels)
            case NotificationEmitted(method=method):
                self._notified("outbound", method)
            case NotificationReceived(method=method):
                self._notified("inbound", method)
            case _:
                pass

    def _closed(self, event: ConnectionClosed) -> None:
        began = self._began.pop(event.dispatcher_id, None)
        if began is not None and event.side in self._sessions:
            self._sessions[event.side].record(trio.current_time() - began, {})

    def _notified(self, direction: str, method: str) -> None:
        self._notifications.add(1, {"direction": direction, "method": method_label(method)})

    def _completed(self, event: RequestCompleted) -> None:
        labels = {"direction": event.direction, "method": method_label(event.method)}
        self._requests.add(1, {**labels, "status": event.outcome})
        self._duration.record(event.duration_ms, labels)
        # In the conventions the receiver of a request is the server of the operation.
        side = "server" if event.direction == "inbound" else "client"
        attributes = {"mcp.method.name": labels["method"]}
        if event.outcome != "success":
            attributes["error.type"] = event.outcome
        self._operations[side].record(event.duration_ms / 1000, attributes)
