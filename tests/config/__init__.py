"""Tests of `mcp_trio.config`."""
