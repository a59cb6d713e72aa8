"""Tests of `mcp_trio.cli`."""
