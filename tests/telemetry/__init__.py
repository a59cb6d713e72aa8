"""Tests of `mcp_trio.telemetry`."""
