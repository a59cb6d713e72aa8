"""The official SDK in memory: `call N MODE` times calls, `cancel N MODE` the way to a `finally`.

Runs in the peers' environment. Mode `legacy` is its stream transport with the handshake, `auto`
its direct path without any encoding. A third argument chooses the event loop.
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
moments: dict[str, anyio.Event] = {}
ended_at = [0.0]


@server.tool()
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
async def hold() -> str:
    """Run until cancelled."""
    moments["began"].set()
    try:
        await anyio.sleep_forever()
    finally:
        ended_at[0] = time.perf_counter()
        moments["ended"].set()
    raise AssertionError


async def one_call(client: Client) -> float:
    """Time one call, and see that the answer is right."""
    begun = time.perf_counter()
    result = await client.call_tool("add", {"a": 2, "b": 40})
    took = time.perf_counter() - begun
    if result.structured_content != {"result": 42}:
        raise AssertionError(result)
    return took


async def one_cancel(client: Client) -> float:
    """Time from cancelling a call to the `finally` of its handler."""
    moments.update(began=anyio.Event(), ended=anyio.Event())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(client.call_tool, "hold")
        await moments["began"].wait()
        cancelled = time.perf_counter()
        tasks.cancel_scope.cancel()
    await moments["ended"].wait()
    return ended_at[0] - cancelled


async def main(what: str, count: int, mode: str) -> None:
    """Measure and print."""
    measure = {"call": one_call, "cancel": one_cancel}[what]
    async with Client(server, mode=mode) as client:
        for _ in range(WARM_UP):
            await measure(client)
        sys.stdout.write(json.dumps([await measure(client) for _ in range(count)]))


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], int(sys.argv[2]), sys.argv[3], backend=sys.argv[4])
