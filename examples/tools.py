"""A server with a few tools: `python examples/tools.py` (stdio) or `... http` (port 8000)."""

import sys
from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec
import trio

import mcp_trio

server = mcp_trio.MCPServer("examples", version="1.0.0")


@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@dataclass
class Weather:
    """What `weather` answers."""

    city: str
    degrees: float
    unit: Literal["C", "F"]


@server.tool(title="Weather")
async def weather(
    city: Annotated[str, msgspec.Meta(min_length=1)], unit: Literal["C", "F"] = "C"
) -> Weather:
    """Tell the weather.

    Args:
        city: where.
        unit: of the temperature.
    """
    if city == "Atlantis":
        # The text of a ToolError is for the model; of any other exception it sees only an id.
        raise mcp_trio.ToolError("There is no weather under water")
    return Weather(city, 21.0 if unit == "C" else 69.8, unit)


@server.tool
async def count(ctx: mcp_trio.Context, to: int, pause: float = 0.1) -> str:
    """Count slowly, telling how far it is. Cancel it at any time: the scope ends here."""
    for number in range(1, to + 1):
        await trio.sleep(pause)
        await ctx.progress(number, to, f"at {number}")
    return f"counted to {to}"


@server.tool
def crunch(n: int) -> int:
    """Work without awaiting: a plain function runs in a worker thread."""
    total = 0
    for number in range(n):
        if number % 1000 == 0:
            trio.from_thread.check_cancelled()
        total += number
    return total


if __name__ == "__main__":
    server.run("http" if sys.argv[1:] == ["http"] else "stdio")
