"""The clients of the official SDK and of FastMCP: `official` or `fastmcp`, then as `client_ours`.

Runs in the environment of the package, on asyncio, the default of both. A revision is also
`direct`, for a server in this process that is handed Python objects instead of messages.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import anyio
import anyio.abc
from telling import GAVE_UP, tell, tell_tasks_when_asked

Order = dict[str, Any]
MODES = {"2025-11-25": "legacy", "direct": "auto"}
"""What a revision is called here, where it is not called by its date."""


async def orders() -> AsyncIterator[Order]:
    """What is said on standard input."""
    async for line in anyio.wrap_file(sys.stdin):
        yield json.loads(line)


def official(target: str, mode: str) -> Any:
    """The official client."""
    from mcp.client import Client
    from mcp.client.sse import sse_client
    from mcp.client.stdio import StdioServerParameters

    if target == "memory":
        import official as program

        return Client(program.server, mode=mode)
    if target.startswith("["):
        command, *arguments = json.loads(target)
        return Client(StdioServerParameters(command=command, args=arguments), mode=mode)
    return Client(sse_client(target) if target.endswith("/sse") else target, mode=mode)


def fastmcp(target: str, mode: str) -> Any:
    """The client of FastMCP."""
    from fastmcp import Client
    from fastmcp.client.transports import StdioTransport

    if target == "memory":
        import with_fastmcp as program

        return Client(program.server, mode=mode)
    if target.startswith("["):
        command, *arguments = json.loads(target)
        return Client(StdioTransport(command, arguments), mode=mode)
    return Client(target, mode=mode)


PACKAGES = {"official": (official, "read_timeout_seconds"), "fastmcp": (fastmcp, "timeout")}
"""What makes a client, and what it calls the timeout of a call."""


async def call(client: Any, limit: str, order: Order, scope: anyio.CancelScope) -> None:
    """Make a call that is given up sooner or later."""
    seconds = order.get("seconds")
    if seconds is not None:
        give_up(order, time.monotonic() + seconds)
    with scope:
        try:
            await client.call_tool(order["tool"], order["arguments"], **{limit: seconds})
        except Exception as error:  # noqa: BLE001 - however it fails, it is over
            print(f"the call ended: {error!r}", file=sys.stderr)


def give_up(order: Order, at: float | None = None) -> None:
    """Tell that a call is given up."""
    tell(order["arguments"]["port"], order["arguments"]["name"], GAVE_UP, at)


async def add(client: Any) -> None:
    """Be one of the others."""
    while (await client.call_tool("add", {"a": 2, "b": 40})).structured_content == {"result": 42}:
        pass
    raise AssertionError


async def follow(
    inbox: AsyncIterator[Order], client: Any, limit: str, calls: anyio.abc.TaskGroup
) -> None:
    """Do what is said, until the client is to be left."""
    running: list[tuple[Order, anyio.CancelScope]] = []
    async for order in inbox:
        if order["do"] == "call":
            running.append((order, anyio.CancelScope()))
            calls.start_soon(call, client, limit, *running[-1])
            continue
        for given_up, scope in running:
            give_up(given_up)
            if order["do"] == "cancel":
                scope.cancel()
        running.clear()
        if order["do"] == "leave":
            break


async def main(package: str, target: str, revision: str, others: str) -> None:
    """Connect, do what is said, and stay until the input ends."""
    tell_tasks_when_asked()
    made, limit = PACKAGES[package]
    inbox = orders()
    async with anyio.create_task_group() as calls:
        client = made(target, MODES.get(revision, revision))
        async with client, anyio.create_task_group() as busy:
            for _ in range(int(others)):
                busy.start_soon(add, client)
            print("connected", flush=True)
            await follow(inbox, client, limit, calls)
            busy.cancel_scope.cancel()
        calls.cancel_scope.cancel()
    async for _ in inbox:
        pass


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
