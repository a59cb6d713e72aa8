"""Tests of `mcp_trio.transports`."""
