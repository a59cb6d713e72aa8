"""Lines for messages. None reads a method name; each passes `mcp_trio.testing.battery`."""
