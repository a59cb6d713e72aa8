"""What a service is like right now, as metrics for Prometheus: read, never counted here.

Needs the `prometheus` extra.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import trio.lowlevel
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
)

from mcp_trio.catalog.actor import CatalogActor
from mcp_trio.catalog.status import CatalogState
from mcp_trio.server.server import MCPServer
from mcp_trio.telemetry.line_writer import LineWriter


def server_gauges(server: MCPServer) -> Iterator[Metric]:
    """What goes on at the HTTP services of a server; sums, if there are several."""
    found = server.http_statistics()
    services, apps = [each[0] for each in found], [each[1] for each in found]
    refused = CounterMetricFamily(
        "mcp_refused", "Connections and requests that were refused, by reason.", labels=("reason",)
    )
    refused.add_metric(("connections",), sum(each.connections_refused for each in services))
    refused.add_metric(("address",), sum(each.address_refused for each in services))
    reasons = {reason for each in apps for reason in each.refusals}
    for reason in sorted(reasons):
        refused.add_metric((reason,), sum(each.refusals.get(reason, 0) for each in apps))
    load = server.admission.statistics()
    for limit, count in sorted(load.refusals.items()):
        refused.add_metric((limit,), count)
    yield refused
    yield CounterMetricFamily(
        "mcp_connections_accepted",
        "Connections served since the start.",
        sum(each.connections_accepted for each in services),
    )
    sessions = GaugeMetricFamily("mcp_sessions", "Sessions.", labels=("kind",))
    sessions.add_metric(("http",), sum(each.sessions - each.lines for each in apps))
    sessions.add_metric(("line",), sum(each.lines for each in apps))
    yield sessions
    for name, text, value in (
        ("mcp_connections", "Connections.", sum(each.connections for each in services)),
        ("mcp_requests_in_flight", "Requests that run.", sum(each.in_flight for each in apps)),
        ("mcp_requests_waiting", "Requests that wait for their turn.", load.waiting),
        ("mcp_listeners", "Clients that are told of changes.", sum(e.listeners for e in apps)),
        ("mcp_draining", "Whether the server goes down.", server.notices.draining),
        ("mcp_tasks", "Tasks.", trio.lowlevel.current_statistics().tasks_living),
    ):
        yield GaugeMetricFamily(name, text, value)
    ends = [each.certificate_expires for each in services if each.certificate_expires is not None]
    if ends:
        text = "When the certificate in use ends, in seconds since 1970."
        yield GaugeMetricFamily("mcp_certificate_expires_timestamp_seconds", text, min(ends))
    yield InfoMetricFamily(
        "mcp_server", "Who serves.", {"name": server.info.name, "version": server.info.version}
    )


def catalog_gauges(actor: CatalogActor) -> Iterator[Metric]:
    """How a catalog is doing."""
    status = actor.status()
    states = GaugeMetricFamily("mcp_catalog_state", "1 for the state it is in.", labels=("state",))
    for state in CatalogState:
        states.add_metric((str(state),), state is status.state)
    yield states
    counts = GaugeMetricFamily("mcp_catalog_operations", "Operations.", labels=("state",))
    counts.add_metric(("served",), status.operations)
    counts.add_metric(("published",), status.published)
    counts.add_metric(("quarantined",), len(status.quarantine))
    yield counts
    if status.age_seconds is not None:
        text = "Since the registry was seen to match."
        yield GaugeMetricFamily("mcp_catalog_age_seconds", text, status.age_seconds)
    yield GaugeMetricFamily("mcp_catalog_ready", "Whether it was ever read.", status.ready)
    yield GaugeMetricFamily(
        "mcp_catalog_failures", "Failed looks since the last good one.", status.consecutive_failures
    )
    yield CounterMetricFamily("mcp_catalog_swaps", "Changes put in place.", status.swaps)


def log_gauges(writers: Iterable[LineWriter]) -> Iterator[Metric]:
    """What became of lines of logs."""
    dropped = CounterMetricFamily("mcp_log_dropped", "Lines that were lost.", labels=("log",))
    failing = GaugeMetricFamily(
        "mcp_log_failing", "Whether it cannot be written just now.", labels=("log",)
    )
    for writer in writers:
        name = writer.name.removeprefix("the ")
        dropped.add_metric((name,), writer.dropped)
        failing.add_metric((name,), writer.trouble is not None)
    yield dropped
    yield failing
