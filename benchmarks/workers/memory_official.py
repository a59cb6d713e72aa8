"""The official SDK (`official`) or FastMCP (`fastmcp`) in memory: `N WHOSE MODE LOOP` times calls.

Each runs in its own environment. Mode `legacy` is a stream transport with the handshake; `auto` is
the newest revision, in which the official client hands objects over directly, without encoding
them, and FastMCP's still has streams. The last argument chooses the event loop.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import anyio

WARM_UP = 200


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def official(mode: str) -> Any:
    """The official client, on a server."""
    from mcp.client import Client
    from mcp.server.mcpserver import MCPServer

    server = MCPServer("bench", log_level="ERROR")
    server.add_tool(add)
    return Client(server, mode=mode)


def fastmcp(mode: str) -> Any:
    """FastMCP's client, on a server."""
    from fastmcp import Client, FastMCP

    server = FastMCP("bench")
    server.add_tool(add)
    return Client(server, mode=mode)


async def one_call(client: Any) -> float:
    """Time one call, and see that the answer is right."""
    begun = time.perf_counter()
    result = await client.call_tool("add", {"a": 2, "b": 40})
    took = time.perf_counter() - begun
    if result.structured_content != {"result": 42}:
        raise AssertionError(result)
    return took


async def main(count: int, whose: str, mode: str) -> None:
    """Measure and print."""
    async with {"official": official, "fastmcp": fastmcp}[whose](mode) as client:
        for _ in range(WARM_UP):
            await one_call(client)
        sys.stdout.write(json.dumps([await one_call(client) for _ in range(count)]))


if __name__ == "__main__":
    anyio.run(main, int(sys.argv[1]), *sys.argv[2:4], backend=sys.argv[4])
