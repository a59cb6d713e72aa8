"""Tests of `mcp_trio.client`."""
