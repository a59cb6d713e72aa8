"""mcp_trio in memory: `N REVISION [TOOLS [LENGTH]]` times calls.

Client and server talk through the real codec. The server has so many tools more than the one that
is called, and the text that is handed over so many characters.
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


@server.tool
async def echo(text: str) -> str:
    """Give a text back."""
    return text


async def one_call(client: MCPClient, text: str) -> float:
    """Time one call, and see that the answer is right."""
    name, arguments, right = "add", {"a": 2, "b": 40}, {"result": 42}
    if text:
        name, arguments, right = "echo", {"text": text}, {"result": text}
    begun = time.perf_counter()
    result = await client.call_tool(name, arguments)
    took = time.perf_counter() - begun
    if result.structured_content != right:
        raise AssertionError(result)
    return took


async def main(count: int, revision: str, more: int, length: int) -> None:
    """Measure and print."""
    for number in range(more):
        server.add_tool(add, name=f"add_{number}")
    text = length * "x"
    options = ClientOptions(revisions=(BY_DATE[revision],))
    async with MCPClient(server, options=options) as client:
        for _ in range(WARM_UP):
            await one_call(client, text)
        sys.stdout.write(json.dumps([await one_call(client, text) for _ in range(count)]))


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]), sys.argv[2], *map(int, [*sys.argv[3:], 0, 0][:2]))
