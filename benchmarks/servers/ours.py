"""mcp_trio over HTTP: the tools under measurement, and `add_static` from a compiled operation."""

from __future__ import annotations

import functools
import time
from collections import defaultdict

import trio

import mcp_trio
from mcp_trio import Context
from mcp_trio.catalog.operation import parse
from mcp_trio.runtime.compiler import Compiler
from mcp_trio.runtime.connections import Connections

PATIENCE = 2.0
"""Seconds to wait for the end of a call; then it counts as never ended."""

server = mcp_trio.MCPServer("bench", version="1.0.0")


@functools.cache
def began() -> defaultdict[str, trio.Event]:
    """The calls of `hold` that began, by name."""
    return defaultdict(trio.Event)


@functools.cache
def ended() -> defaultdict[str, trio.Event]:
    """The calls of `hold` whose `finally` ran, by name."""
    return defaultdict(trio.Event)


times: dict[str, float] = {}
"""When each of them did, on the clock that all processes of the machine share."""


@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool
async def hold(name: str, talk: bool, ctx: Context) -> str:  # noqa: FBT001 - a JSON argument
    """Run until cancelled; with `talk` the answer begins as a stream."""
    if talk:
        await ctx.progress(1)
    began()[name].set()
    try:
        await trio.sleep_forever()
    finally:
        times[name] = time.monotonic()
        ended()[name].set()
    raise AssertionError


@server.tool
async def wait_begun(name: str) -> bool:
    """Wait until a call of `hold` runs."""
    with trio.move_on_after(PATIENCE):
        await began()[name].wait()
        return True
    return False


@server.tool
async def wait_ended(name: str) -> float:
    """Wait until a call of `hold` ended, and tell when; 0 for never."""
    with trio.move_on_after(PATIENCE):
        await ended()[name].wait()
    return times.pop(name, 0.0)


STATIC: dict[str, object] = {
    "operation_id": "bench.add",
    "name": "add_static",
    "protocol": "static",
    "target": {},
    "input_schema": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
    "output_schema": {
        "type": "object",
        "properties": {"result": {"type": "integer"}},
        "required": ["result"],
    },
    "input_mapping": {},
    "output_mapping": {"result": {"result": "=sum([args.a, args.b])"}},
    "execution_config": {},
    "tool_description": "Add two numbers.",
}
"""The same shape of work as `add`, published as data: five stages instead of a function."""

server.add_entry(Compiler(Connections()).compile(parse(STATIC)))


if __name__ == "__main__":
    server.run(
        "http",
        port=0,
        options=mcp_trio.HTTPOptions(max_sessions=100_000),
        settings=mcp_trio.ServingSettings(
            max_requests_per_connection=10**9, max_connections_per_address=1000
        ),
    )
