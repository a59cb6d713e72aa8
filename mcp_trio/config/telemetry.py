"""`[telemetry]`: traces and metrics for a collector."""

from __future__ import annotations

import attrs

from mcp_trio.config.addresses import COLLECTOR
from mcp_trio.setting_rules import POSITIVE, Rule

PART = Rule("must be 0 to 1", lambda part: 0 <= part <= 1)


@attrs.frozen(kw_only=True)
class TelemetrySection:
    """`[telemetry]`: traces and metrics by OTLP over HTTP. Off without this table.

    Needs the extra `otlp`. Header fields with secrets are given in `OTEL_EXPORTER_OTLP_HEADERS`.
    """

    endpoint: str | None = attrs.field(default=None, validator=COLLECTOR)
    """Base URL of the collector; else `OTEL_EXPORTER_OTLP_ENDPOINT`, else
    `http://localhost:4318`."""
    service: str | None = None
    """What the service is called there; `server.name` by default."""
    metrics_interval: float = attrs.field(default=60.0, validator=POSITIVE)
    """Seconds between two sendings of metrics."""
    sampled: float = attrs.field(default=1.0, validator=PART)
    """Part of the traces that begin here; about others decides who began them."""
