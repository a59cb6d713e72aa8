"""The official Python client, driven through one session; what it saw is printed as JSON.

Runs with the interpreter of the peers' environment, where mcp_trio does not exist. Takes one
JSON argument: `{"mode", "url" or "command", "plan": "interop" or "demo", ...}`. Nothing is
judged here; the tests do that.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import anyio
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

DEADLINE = 30.0
"""Seconds for the whole session."""


def connect(task: dict[str, Any]) -> Client:
    """Make the client that the task describes."""
    if "url" in task:
        return Client(task["url"], mode=task["mode"])
    program, *arguments = task["command"]
    return Client(StdioServerParameters(command=program, args=arguments), mode=task["mode"])


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


async def demo(client: Client, task: dict[str, Any]) -> dict[str, Any]:
    """Call the given tools in turn."""
    return {name: plain(await client.call_tool(name, args)) for name, args in task["calls"].items()}


PLANS = {"interop": interop, "demo": demo}


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
    sys.stdout.write(json.dumps(report))


if __name__ == "__main__":
    anyio.run(main, json.loads(sys.argv[1]))
