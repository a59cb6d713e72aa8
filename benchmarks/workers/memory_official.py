"""The official SDK in memory: `N MODE` times calls.

Runs in the peers' environment. Mode `legacy` is its stream transport with the handshake, `auto`
its direct path without any encoding. The third argument chooses the event loop.
"""

from __future__ import annotations

import json
import sys
import time

import anyio
from mcp.client import Client
from mcp.server.mcpserver import MCPServer

WARM_UP = 200

server = MCPServer("bench", log_level="ERROR")


@server.tool()
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def one_call(client: Client) -> float:
    """Time one call, and see that the answer is right."""
    begun = time.perf_counter()
    result = await client.call_tool("add", {"a": 2, "b": 40})
    took = time.perf_counter() - begun
    if result.structured_content != {"result": 42}:
        raise AssertionError(result)
    return took


async def main(count: int, mode: str) -> None:
    """Measure and print."""
    async with Client(server, mode=mode) as client:
        for _ in range(WARM_UP):
            await one_call(client)
        sys.stdout.write(json.dumps([await one_call(client) for _ in range(count)]))


if __name__ == "__main__":
    anyio.run(main, int(sys.argv[1]), sys.argv[2], backend=sys.argv[3])
