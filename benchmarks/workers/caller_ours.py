"""Our client over HTTP: `URL REVISION SECONDS`, one call after the other and then many at a time.

Prints one JSON object: by the number of calls at a time, calls in a second and microseconds of
this process for each. Every answer is looked at.
"""

from __future__ import annotations

import json
import sys
import time

import trio

from benchmarks.turns import WARM_UP, WIDTHS
from mcp_trio import ClientOptions, MCPClient


async def keep(client: MCPClient, width: int, seconds: float) -> tuple[float, float]:
    """Keep so many calls in flight for so long; calls in a second, and microseconds of each."""
    answered = 0
    began, used = time.perf_counter(), time.process_time()

    async def calling() -> None:
        nonlocal answered
        while time.perf_counter() < began + seconds:
            result = await client.call_tool("add", {"a": 2, "b": 40})
            if result.structured_content != {"result": 42}:
                raise AssertionError(result)
            answered += 1

    async with trio.open_nursery() as nursery:
        for _ in range(width):
            nursery.start_soon(calling)
    took, used = time.perf_counter() - began, time.process_time() - used
    return answered / took, 1e6 * used / answered


async def main(url: str, revision: str, seconds: str) -> None:
    """Measure and print."""
    figures: dict[int, tuple[float, float]] = {}
    async with MCPClient(url, options=ClientOptions(revisions=(revision,))) as client:
        for width in WIDTHS:
            await keep(client, width, WARM_UP)
            figures[width] = await keep(client, width, float(seconds))
    sys.stdout.write(json.dumps(figures))


if __name__ == "__main__":
    trio.run(main, sys.argv[1], sys.argv[2], sys.argv[3])
