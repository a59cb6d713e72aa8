"""Walks over all tools of a server in memory by our client: `COUNT ROUNDS REVISION`.

Prints the processor seconds of each walk as a JSON array; the first one, which fills what is kept
for the next ones, comes first. Nothing is kept by the client.
"""

from __future__ import annotations

import json
import sys
import time

import trio

import mcp_trio
from mcp_trio import ClientOptions, MCPClient


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def walk(client: MCPClient, count: int) -> float:
    """List everything, and see that it is everything."""
    used = time.process_time()
    tools = [tool async for tool in client.tools()]
    used = time.process_time() - used
    if {tool.name for tool in tools} != {f"add_{number}" for number in range(count)}:
        raise AssertionError(f"{len(tools)} tools listed, not {count}")
    return used


async def main(count: str, rounds: str, revision: str) -> None:
    """Measure and print."""
    server = mcp_trio.MCPServer("bench", version="1.0.0")
    for number in range(int(count)):
        server.add_tool(add, name=f"add_{number}")
    options = ClientOptions(revisions=(revision,), cache=None)
    async with MCPClient(server, options=options) as client:
        walks = [await walk(client, int(count)) for _ in range(int(rounds))]
    sys.stdout.write(json.dumps(walks))


if __name__ == "__main__":
    trio.run(main, sys.argv[1], sys.argv[2], sys.argv[3])
