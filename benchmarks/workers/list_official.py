"""As `list_ours`, for the official SDK and FastMCP: `COUNT ROUNDS WHOSE MODE`.

`official` or `fastmcp`, each in its own environment, on asyncio, its default. The mode is that of
the client: `legacy` for the handshake over streams, `auto` for the newest revision, in which the
official client hands over objects unencoded.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import anyio


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def all_of_official(client: Any) -> list[Any]:
    """Every page of the official client."""
    page = await client.list_tools()
    tools = list(page.tools)
    while page.next_cursor is not None:
        page = await client.list_tools(cursor=page.next_cursor)
        tools += page.tools
    return tools


async def all_of_fastmcp(client: Any) -> list[Any]:
    """Every page of FastMCP's client."""
    tools: list[Any] = await client.list_tools()
    return tools


def official(count: int, mode: str) -> tuple[Any, Callable[[Any], Awaitable[list[Any]]]]:
    """The official client on a server with so many tools."""
    from mcp.client import Client
    from mcp.server.mcpserver import MCPServer

    server = MCPServer("bench", log_level="ERROR")
    for number in range(count):
        server.add_tool(add, name=f"add_{number}")
    return Client(server, mode=mode, cache=None), all_of_official


def fastmcp(count: int, mode: str) -> tuple[Any, Callable[[Any], Awaitable[list[Any]]]]:
    """The same of FastMCP."""
    from fastmcp import Client, FastMCP
    from fastmcp.tools import Tool

    server = FastMCP("bench")
    for number in range(count):
        server.add_tool(Tool.from_function(add, name=f"add_{number}"))
    return Client(server, mode=mode), all_of_fastmcp


async def main(count: str, rounds: str, whose: str, mode: str) -> None:
    """Measure and print."""
    make = {"official": official, "fastmcp": fastmcp}[whose]
    unopened, every = make(int(count), mode)
    walks: list[float] = []
    async with unopened as client:
        for _ in range(int(rounds)):
            used = time.process_time()
            tools = await every(client)
            walks.append(time.process_time() - used)
            if {tool.name for tool in tools} != {f"add_{number}" for number in range(int(count))}:
                raise AssertionError(f"{len(tools)} tools listed, not {count}")
    sys.stdout.write(json.dumps(walks))


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
