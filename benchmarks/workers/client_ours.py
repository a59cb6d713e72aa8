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
from functools import partial
from typing import Any

import ours
import trio
from giving_up import Order, add, follow, give_up, orders
from telling import tell_tasks_when_asked

from mcp_trio import MCPClient, MCPError
from mcp_trio.client.client import ClientOptions
from mcp_trio.wire.revisions import BY_DATE


async def call(client: MCPClient, order: Order, scope: trio.CancelScope) -> None:
    """Make a call that is given up sooner or later."""
    seconds = order.get("seconds")
    if seconds is not None:
        give_up(order, time.monotonic() + seconds)
    with scope, contextlib.suppress(MCPError):
        await client.call_tool(order["tool"], order["arguments"], timeout=seconds)


async def main(target: str, revision: str, others: str) -> None:
    """Connect, do what is said, and stay until the input ends."""
    tell_tasks_when_asked()
    options = ClientOptions(revisions=(BY_DATE[revision],))
    server: Any = target
    if target == "memory":
        server = ours.server
    elif target.startswith("["):
        server = json.loads(target)
    inbox = orders(trio.wrap_file(sys.stdin))
    async with trio.open_nursery() as calls:
        async with MCPClient(server, options=options) as client, trio.open_nursery() as busy:
            for _ in range(int(others)):
                busy.start_soon(add, client)
            print("connected", flush=True)
            await follow(inbox, partial(call, client), trio.CancelScope, calls)
            busy.cancel_scope.cancel()
        calls.cancel_scope.cancel()
    async for _ in inbox:
        pass


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
