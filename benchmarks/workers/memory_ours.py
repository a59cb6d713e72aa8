"""mcp_trio in memory: `N REVISION` times calls.

Client and server talk through the real codec.
"""

from __future__ import annotations

import json
import sys
import time

import trio

import mcp_trio
from mcp_trio.client.client import ClientOptions, MCPClient
from mcp_trio.wire.revisions import BY_DATE

WARM_UP = 200

server = mcp_trio.MCPServer("bench", version="1.0.0")


@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def one_call(client: MCPClient) -> float:
    """Time one call, and see that the answer is right."""
    begun = time.perf_counter()
    result = await client.call_tool("add", {"a": 2, "b": 40})
    took = time.perf_counter() - begun
    if result.structured_content != {"result": 42}:
        raise AssertionError(result)
    return took


async def main(count: int, revision: str) -> None:
    """Measure and print."""
    options = ClientOptions(revisions=(BY_DATE[revision],))
    async with MCPClient(server, options=options) as client:
        for _ in range(WARM_UP):
            await one_call(client)
        sys.stdout.write(json.dumps([await one_call(client) for _ in range(count)]))


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]), sys.argv[2])
