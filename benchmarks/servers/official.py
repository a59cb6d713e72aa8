"""The official SDK with the tools of `ours`, on uvicorn, on Hypercorn under Trio or over stdio.

Runs in the peers' environment. Arguments: `uvicorn`, `uvicorn-fast` (uvloop and httptools),
`hypercorn` or `stdio`; for HTTP then `json` or `sse`, the form of its answers, and the URL of
the upstream; or `http+sse` for the transport of 2024-11-05 at `/sse`.
"""

from __future__ import annotations

import functools
import sys

import anyio
import httpx2
from hosting import on_hypercorn, on_uvicorn
from mcp.server.mcpserver import Context, MCPServer
from telling import BEGAN, CHILD, ENDED, STEP, STEP_SECONDS, tell, tell_tasks_when_asked

server = MCPServer("bench", log_level="ERROR")


upstreams: list[str] = []
"""Where the upstream is, once it is known."""


@functools.cache
def http() -> httpx2.AsyncClient:
    """The client of the upstream; made in the event loop."""
    return httpx2.AsyncClient(base_url=upstreams[0])


@server.tool()
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
async def add_talking(a: int, b: int, ctx: Context) -> int:
    """Add two numbers, and tell of it before the answer."""
    await ctx.report_progress(1)
    return a + b


@server.tool()
async def add_rest(a: int, b: int) -> int:
    """Have the upstream add two numbers."""
    response = await http().post("/add", json={"a": a, "b": b})
    return int(response.raise_for_status().json()["result"])


@server.tool()
async def hold(name: str, port: int, talk: bool, ctx: Context) -> str:  # noqa: FBT001 - JSON
    """Run until cancelled; with `talk` the answer begins as a stream."""
    if talk:
        await ctx.report_progress(1)
    tell(port, name, BEGAN)
    try:
        await anyio.sleep_forever()
    finally:
        tell(port, name, ENDED)
    raise AssertionError


@server.tool()
async def work(name: str, port: int, steps: int) -> int:
    """Work in steps of a millisecond, beside a program and a task of its own."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.run_process, CHILD)
        tasks.start_soon(anyio.sleep_forever)
        tell(port, name, BEGAN)
        try:
            for _ in range(steps):
                await anyio.sleep(STEP_SECONDS)
                tell(port, name, STEP)
        finally:
            tell(port, name, ENDED)
        tasks.cancel_scope.cancel()
    return steps


def main(host: str, form: str = "json", upstream: str = "") -> None:
    """Serve until terminated, or over stdio until the input ends."""
    tell_tasks_when_asked()
    upstreams.append(upstream)
    if host == "stdio":
        server.run("stdio")
        return
    if form == "http+sse":
        app = server.sse_app()
    else:
        app = server.streamable_http_app(json_response=form == "json")
    if host == "hypercorn":
        on_hypercorn(app)
    else:
        on_uvicorn(app, fast=host == "uvicorn-fast")


if __name__ == "__main__":
    main(*sys.argv[1:])
