"""As `caller_ours`, for the clients of the official SDK (`official`) and of FastMCP (`fastmcp`).

The first argument says whose; each runs in its own environment, on asyncio, its default.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import anyio

WARM_UP = 0.5
WIDTHS = (1, 16)


def make(whose: str, url: str, revision: str) -> Any:
    """The client, not connected yet."""
    mode = "legacy" if revision < "2026" else revision
    if whose == "fastmcp":
        from fastmcp import Client as FastMCPClient

        return FastMCPClient(url, mode=mode)
    from mcp import Client

    return Client(url, mode=mode)


async def keep(client: Any, width: int, seconds: float) -> tuple[float, float]:
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

    async with anyio.create_task_group() as tasks:
        for _ in range(width):
            tasks.start_soon(calling)
    took, used = time.perf_counter() - began, time.process_time() - used
    return answered / took, 1e6 * used / answered


async def main(whose: str, url: str, revision: str, seconds: str) -> None:
    """Measure and print."""
    figures: dict[int, tuple[float, float]] = {}
    async with make(whose, url, revision) as client:
        for width in WIDTHS:
            await keep(client, width, WARM_UP)
            figures[width] = await keep(client, width, float(seconds))
    sys.stdout.write(json.dumps(figures))


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
