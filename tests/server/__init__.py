"""Tests of `mcp_trio.server`."""
