"""Our client, which makes calls and gives them up when it is told: `TARGET REVISION OTHERS`.

The target is a URL, a command as a JSON array, or `memory` for the server in this process. So many
others call `add` all the time. Prints a line once it is connected. Standard input then has a line
of JSON for each thing to do, until it ends: `call` makes a call of `tool` with `arguments`, and
with a timeout of so many `seconds`; `cancel` cancels the scope of all calls; `leave` leaves the
client's block while they run. When a call is given up is told as a handler tells of it.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import ours
import trio
from telling import GAVE_UP, tell, tell_tasks_when_asked

from mcp_trio import MCPClient, MCPError
from mcp_trio.client.client import ClientOptions
from mcp_trio.wire.revisions import BY_DATE

Order = dict[str, Any]


async def orders() -> AsyncIterator[Order]:
    """What is said on standard input."""
    async for line in trio.wrap_file(sys.stdin):
        yield json.loads(line)


async def call(client: MCPClient, order: Order, scope: trio.CancelScope) -> None:
    """Make a call that is given up sooner or later."""
    seconds = order.get("seconds")
    if seconds is not None:
        give_up(order, time.monotonic() + seconds)
    with scope, contextlib.suppress(MCPError):
        await client.call_tool(order["tool"], order["arguments"], timeout=seconds)


def give_up(order: Order, at: float | None = None) -> None:
    """Tell that a call is given up."""
    tell(order["arguments"]["port"], order["arguments"]["name"], GAVE_UP, at)


async def add(client: MCPClient) -> None:
    """Be one of the others."""
    while (await client.call_tool("add", {"a": 2, "b": 40})).structured_content == {"result": 42}:
        pass
    raise AssertionError


async def follow(inbox: AsyncIterator[Order], client: MCPClient, calls: trio.Nursery) -> None:
    """Do what is said, until the client is to be left."""
    running: list[tuple[Order, trio.CancelScope]] = []
    async for order in inbox:
        if order["do"] == "call":
            running.append((order, trio.CancelScope()))
            calls.start_soon(call, client, *running[-1])
            continue
        for given_up, scope in running:
            give_up(given_up)
            if order["do"] == "cancel":
                scope.cancel()
        running.clear()
        if order["do"] == "leave":
            break


async def main(target: str, revision: str, others: str) -> None:
    """Connect, do what is said, and stay until the input ends."""
    tell_tasks_when_asked()
    options = ClientOptions(revisions=(BY_DATE[revision],))
    server: Any = target
    if target == "memory":
        server = ours.server
    elif target.startswith("["):
        server = json.loads(target)
    inbox = orders()
    async with trio.open_nursery() as calls:
        async with MCPClient(server, options=options) as client, trio.open_nursery() as busy:
            for _ in range(int(others)):
                busy.start_soon(add, client)
            print("connected", flush=True)
            await follow(inbox, client, calls)
            busy.cancel_scope.cancel()
        calls.cancel_scope.cancel()
    async for _ in inbox:
        pass


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
