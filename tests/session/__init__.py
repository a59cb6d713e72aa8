"""Tests of `mcp_trio.session`."""
