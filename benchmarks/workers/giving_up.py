"""What a client that gives calls up does alike in every package of Python; see `client_ours`.

Runs in the environments of the peers too.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from telling import GAVE_UP, tell

Order = dict[str, Any]


async def orders(lines: AsyncIterator[str]) -> AsyncIterator[Order]:
    """What is said on standard input."""
    async for line in lines:
        yield json.loads(line)


def give_up(order: Order, at: float | None = None) -> None:
    """Tell that a call is given up."""
    tell(order["arguments"]["port"], order["arguments"]["name"], GAVE_UP, at)


async def add(client: Any) -> None:
    """Be one of the others."""
    while (await client.call_tool("add", {"a": 2, "b": 40})).structured_content == {"result": 42}:
        pass
    raise AssertionError


async def follow(
    inbox: AsyncIterator[Order], call: Any, scope: Callable[[], Any], calls: Any
) -> None:
    """Do what is said, until the client is to be left.

    Args:
        inbox: what is said.
        call: makes a call, of an order and in a scope.
        scope: makes one.
        calls: the nursery, or the group of tasks, for calls.
    """
    running: list[tuple[Order, Any]] = []
    async for order in inbox:
        if order["do"] == "call":
            running.append((order, scope()))
            calls.start_soon(call, *running[-1])
            continue
        for given_up, around in running:
            give_up(given_up)
            if order["do"] == "cancel":
                around.cancel()
        running.clear()
        if order["do"] == "leave":
            break
