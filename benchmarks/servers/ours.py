"""mcp_trio: the tools under measurement, and those that are compiled operations.

Argument: `stdio`, or for HTTP the URL of the upstream, if there is one.
"""

from __future__ import annotations

import functools
import sys
import time
from collections import defaultdict
from pathlib import Path

import trio

import mcp_trio
from mcp_trio import Context
from mcp_trio.catalog.operation import parse
from mcp_trio.config import make_connections
from mcp_trio.runtime.compiler import Compiler
from mcp_trio.runtime.connections import Connections
from mcp_trio.runtime.http_sections import HttpSection

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
async def add_talking(a: int, b: int, ctx: Context) -> int:
    """Add two numbers, and tell of it before the answer."""
    await ctx.progress(1)
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

REST: dict[str, object] = {
    **STATIC,
    "operation_id": "bench.add_rest",
    "name": "add_rest",
    "protocol": "rest",
    "target": {"connection": "bench", "method": "POST", "path": "/add", "content_type": "json"},
    "input_mapping": {"body": {"a": "=args.a", "b": "=args.b"}},
    "output_mapping": {},
    "execution_config": {"timeout_ms": {"total": 5000}, "idempotent": True},
    "tool_description": "Have the upstream add two numbers.",
}
"""The same, asked of an upstream."""


async def over_http(upstream: str) -> None:
    """Serve until terminated."""
    sections = {"bench": HttpSection(base_url=upstream)} if upstream else {}
    async with (
        Connections(make_connections(sections, Path())) as connections,
        trio.open_nursery() as nursery,
    ):
        compiler = Compiler(connections)
        for operation in [STATIC, REST] if upstream else [STATIC]:
            server.add_entry(compiler.compile(parse(operation)))
        serve = functools.partial(
            server.serve_http,
            port=0,
            options=mcp_trio.HTTPOptions(max_sessions=100_000),
            settings=mcp_trio.ServingSettings(
                max_requests_per_connection=10**9, max_connections_per_address=1000
            ),
        )
        (url,) = await nursery.start(serve)
        print(url, file=sys.stderr, flush=True)


def main(where: str = "") -> None:
    """Serve over HTTP, or over stdio until the input ends."""
    if where == "stdio":
        server.run("stdio")
    else:
        trio.run(over_http, where)


if __name__ == "__main__":
    main(*sys.argv[1:])
