"""`[telemetry]` of `mcp-trio serve`: what is sent to a collector, if anything is."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext

from mcp_trio.config import Settings
from mcp_trio.errors import ConfigurationError
from mcp_trio.server.server import MCPServer


def exporting(
    settings: Settings, servers: Sequence[MCPServer]
) -> AbstractAsyncContextManager[None]:
    """Trace and measure servers as the settings say, while the block runs.

    Raises:
        ConfigurationError: that is wanted, and its libraries are not there.
    """
    section = settings.telemetry
    if section is None:
        return nullcontext()
    try:
        from mcp_trio.telemetry import otlp  # noqa: PLC0415 - needs an extra
    except ModuleNotFoundError as error:
        if (error.name or "mcp_trio").startswith("mcp_trio"):
            raise
        advice = "pip install 'mcp-trio[otlp]'"
        raise ConfigurationError(f"telemetry needs {error.name}: {advice}") from error
    collector = otlp.Collector(
        endpoint=section.endpoint,
        service=section.service or settings.server.name,
        version=settings.server.version,
        interval=section.metrics_interval,
        sampled=section.sampled,
    )
    return otlp.exporting(collector, servers)
