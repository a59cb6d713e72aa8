"""mcp_trio in memory: `call N REVISION` times calls, `cancel N REVISION` the way to a `finally`.

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
moments: dict[str, trio.Event] = {}
ended_at = [0.0]


@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool
async def hold() -> str:
    """Run until cancelled."""
    moments["began"].set()
    try:
        await trio.sleep_forever()
    finally:
        ended_at[0] = time.perf_counter()
        moments["ended"].set()
    raise AssertionError


async def one_call(client: MCPClient) -> float:
    """Time one call, and see that the answer is right."""
    begun = time.perf_counter()
    result = await client.call_tool("add", {"a": 2, "b": 40})
    took = time.perf_counter() - begun
    if result.structured_content != {"result": 42}:
        raise AssertionError(result)
    return took


async def one_cancel(client: MCPClient) -> float:
    """Time from cancelling a call to the `finally` of its handler."""
    moments.update(began=trio.Event(), ended=trio.Event())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.call_tool, "hold")
        await moments["began"].wait()
        cancelled = time.perf_counter()
        nursery.cancel_scope.cancel()
    await moments["ended"].wait()
    return ended_at[0] - cancelled


async def main(what: str, count: int, revision: str) -> None:
    """Measure and print."""
    measure = {"call": one_call, "cancel": one_cancel}[what]
    options = ClientOptions(revisions=(BY_DATE[revision],))
    async with MCPClient(server, options=options) as client:
        for _ in range(WARM_UP):
            await measure(client)
        sys.stdout.write(json.dumps([await measure(client) for _ in range(count)]))


if __name__ == "__main__":
    trio.run(main, sys.argv[1], int(sys.argv[2]), sys.argv[3])
