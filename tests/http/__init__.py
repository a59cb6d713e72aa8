"""Tests of `mcp_trio.http`."""
