"""A server of ours for other people's clients: adding, progress, failing, and being cancelled.

What happens inside is visible through a tool, not through files: `wait_for` answers once a named
moment has come. Run with `stdio` or `http`; over HTTP the URL is printed on standard error.
"""

from __future__ import annotations

import functools
import sys
from collections import defaultdict

import trio

import mcp_trio
from mcp_trio import Context, ToolError

PATIENCE = 10.0
"""Seconds `wait_for` waits for a moment."""

server = mcp_trio.MCPServer("interop", version="1.0.0")


@functools.cache
def moments() -> defaultdict[str, trio.Event]:
    """The moments of this process by name; made on first use, inside the Trio run."""
    return defaultdict(trio.Event)


@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool
async def count(ctx: Context, to: int) -> str:
    """Count, reporting each step."""
    for step in range(1, to + 1):
        await ctx.progress(step, to, f"step {step}")
    return f"counted to {to}"


@server.tool
async def refuse() -> str:
    """Fail with a text for the model."""
    raise ToolError("this tool never works")


@server.tool
async def hold(name: str) -> str:
    """Run until cancelled. The moments are `NAME began` and `NAME ended`."""
    moments()[f"{name} began"].set()
    try:
        await trio.sleep_forever()
    finally:
        moments()[f"{name} ended"].set()
    raise AssertionError


@server.tool
async def wait_for(moment: str) -> bool:
    """Tell whether a moment came in time."""
    with trio.move_on_after(PATIENCE):
        await moments()[moment].wait()
        return True
    return False


@server.tool
async def grow() -> str:
    """Offer one more tool from now on."""

    async def grown() -> str:
        """Exist."""
        return "here"

    server.add_tool(grown)
    return "grown"


if __name__ == "__main__":
    if sys.argv[1] == "http":
        server.run("http", port=0)
    else:
        server.run("stdio")
