"""mcp_trio: the tools under measurement, and those that are compiled operations.

Argument: `stdio`, `unix` or `tcp`; or for HTTP the URL of the upstream, if there is one. Over HTTP
there is WebSocket at the same path, and HTTP+SSE at `/sse`.
"""

from __future__ import annotations

import functools
import sys
import tempfile
from pathlib import Path

import trio
from telling import BEGAN, CHILD, ENDED, STEP, STEP_SECONDS, tell, tell_tasks_when_asked

import mcp_trio
from mcp_trio import Context
from mcp_trio.catalog.operation import parse
from mcp_trio.config import make_connections
from mcp_trio.runtime.compiler import Compiler
from mcp_trio.runtime.connections import Connections
from mcp_trio.runtime.http_sections import HttpSection

server = mcp_trio.MCPServer("bench", version="1.0.0")


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
async def hold(name: str, port: int, talk: bool, ctx: Context) -> str:  # noqa: FBT001 - JSON
    """Run until cancelled; with `talk` the answer begins as a stream."""
    if talk:
        await ctx.progress(1)
    tell(port, name, BEGAN)
    try:
        await trio.sleep_forever()
    finally:
        tell(port, name, ENDED)
    raise AssertionError


@server.tool
async def work(name: str, port: int, steps: int) -> int:
    """Work in steps of a millisecond, beside a program and a task of its own."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.run_process, CHILD)
        nursery.start_soon(trio.sleep_forever)
        tell(port, name, BEGAN)
        try:
            for _ in range(steps):
                await trio.sleep(STEP_SECONDS)
                tell(port, name, STEP)
        finally:
            tell(port, name, ENDED)
        nursery.cancel_scope.cancel()
    return steps


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


async def on_lines(kind: str) -> None:
    """Serve one message per line on a socket until terminated."""
    async with trio.open_nursery() as nursery:
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            if kind == "unix":
                url = await nursery.start(server.serve_unix, Path(folder) / "socket")
            else:
                (url,) = await nursery.start(server.serve_tcp, "127.0.0.1", 0)
            print(url, file=sys.stderr, flush=True)
            await trio.sleep_forever()


def main(where: str = "") -> None:
    """Serve over HTTP or on sockets, or over stdio until the input ends."""
    tell_tasks_when_asked()
    if where == "stdio":
        server.run("stdio")
    elif where in {"unix", "tcp"}:
        trio.run(on_lines, where)
    else:
        trio.run(over_http, where)


if __name__ == "__main__":
    main(*sys.argv[1:])
