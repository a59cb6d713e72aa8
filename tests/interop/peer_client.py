"""The official Python client, driven through one session; what it saw is printed as JSON.

Runs with the interpreter of the peers' environment, where mcp_trio does not exist. Takes one
JSON argument: `{"mode", "url" or "command", "plan", ...}`; the plans stand at the end. The
session stays open until standard input ends. Nothing is judged here; the tests do that.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import anyio
import anyio.to_thread
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp_types import ToolListChangedNotification
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

DEADLINE = 30.0
"""Seconds for the whole session."""


def connect(task: dict[str, Any]) -> Client:
    """Make the client that the task describes."""
    where = task.get("url")
    if where is None:
        program, *arguments = task["command"]
        where = StdioServerParameters(command=program, args=arguments)
    return Client(where, mode=task["mode"], message_handler=hear)


async def hear(message: Any) -> None:
    """Note that the list of tools has changed."""
    if isinstance(message, ToolListChangedNotification):
        changed.set()


changed = anyio.Event()
"""Set once the server told of a change outside any subscription."""


def plain(result: Any) -> dict[str, Any]:
    """A result as the wire had it."""
    return result.model_dump(mode="json", by_alias=True, exclude_none=True)


async def interop(client: Client, _task: dict[str, Any]) -> dict[str, Any]:
    """Call everything that `our_server.py` offers, and cancel one call."""
    progress: list[tuple[float, float | None, str | None]] = []

    async def note(value: float, total: float | None, message: str | None) -> None:
        progress.append((value, total, message))

    seen = {
        "add": plain(await client.call_tool("add", {"a": 2, "b": 40})),
        "bad_arguments": plain(await client.call_tool("add", {"a": "two", "b": 40})),
        "refuse": plain(await client.call_tool("refuse")),
        "count": plain(await client.call_tool("count", {"to": 3}, progress_callback=note)),
    }
    async with anyio.create_task_group() as tasks:

        async def call() -> None:
            await client.call_tool("hold", {"name": "held"})

        tasks.start_soon(call)
        seen["began"] = plain(await client.call_tool("wait_for", {"moment": "held began"}))
        tasks.cancel_scope.cancel()
    # The session goes on, so nothing but the cancellation can have ended the call.
    seen["ended"] = plain(await client.call_tool("wait_for", {"moment": "held ended"}))
    return {**seen, "progress": progress}


async def changes(client: Client, _task: dict[str, Any]) -> dict[str, Any]:
    """Hear of a new tool in the way of the era, and see it in the list."""
    if client.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS:
        await client.call_tool("grow")
        await changed.wait()
        heard = "notification"
    else:
        async with client.listen(tools_list_changed=True) as subscription:
            await client.call_tool("grow")
            heard = type(await anext(aiter(subscription))).__name__
    listing = await client.list_tools()
    return {"heard": heard, "tools_after": [tool.name for tool in listing.tools]}


async def demo(client: Client, task: dict[str, Any]) -> dict[str, Any]:
    """Make the given calls in turn, then one that is given up after a second."""
    seen = {name: plain(await client.call_tool(name, args)) for name, args in task["calls"]}
    with anyio.move_on_after(1) as deadline:
        await client.call_tool(*task["slow"])
    return {"calls": seen, "given_up": deadline.cancelled_caught}


PLANS = {"interop": interop, "changes": changes, "demo": demo}


async def main(task: dict[str, Any]) -> None:
    """Run one session and print what was seen."""
    with anyio.fail_after(DEADLINE):
        async with connect(task) as client:
            listing = await client.list_tools()
            report = {
                "protocol": client.protocol_version,
                "server": client.server_info.name if client.server_info else None,
                "tools": [tool.name for tool in listing.tools],
                **await PLANS[task["plan"]](client, task),
            }
            sys.stdout.write(json.dumps(report) + "\n")
            sys.stdout.flush()
            await anyio.to_thread.run_sync(sys.stdin.read)


if __name__ == "__main__":
    anyio.run(main, json.loads(sys.argv[1]))
