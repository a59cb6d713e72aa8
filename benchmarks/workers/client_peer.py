"""The clients of the official SDK and of FastMCP: `official` or `fastmcp`, then as `client_ours`.

Runs in the environment of the package, on asyncio, the default of both. A revision is also
`direct`, for a server in this process that is handed Python objects instead of messages.
"""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from typing import Any

import anyio
from giving_up import Order, add, follow, give_up, orders
from telling import tell_tasks_when_asked

MODES = {"2025-11-25": "legacy", "direct": "auto"}
"""What a revision is called here, where it is not called by its date."""


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


async def main(package: str, target: str, revision: str, others: str) -> None:
    """Connect, do what is said, and stay until the input ends."""
    tell_tasks_when_asked()
    made, limit = PACKAGES[package]
    inbox = orders(anyio.wrap_file(sys.stdin))
    async with anyio.create_task_group() as calls:
        client = made(target, MODES.get(revision, revision))
        async with client, anyio.create_task_group() as busy:
            for _ in range(int(others)):
                busy.start_soon(add, client)
            print("connected", flush=True)
            await follow(inbox, partial(call, client, limit), anyio.CancelScope, calls)
            busy.cancel_scope.cancel()
        calls.cancel_scope.cancel()
    async for _ in inbox:
        pass


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
