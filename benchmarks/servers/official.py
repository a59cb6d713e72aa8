"""The official SDK with the tools of `ours`, on uvicorn, on Hypercorn under Trio or over stdio.

Runs in the peers' environment. Arguments: `uvicorn`, `uvicorn-fast` (uvloop and httptools),
`hypercorn` or `stdio`; for HTTP then `json` or `sse`, the form of its answers, and the URL of
the upstream.
"""

from __future__ import annotations

import functools
import sys
import time
from collections import defaultdict

import anyio
import httpx2
from hosting import on_hypercorn, on_uvicorn
from mcp.server.mcpserver import Context, MCPServer

PATIENCE = 2.0
"""Seconds to wait for the end of a call; then it counts as never ended."""

server = MCPServer("bench", log_level="ERROR")


@functools.cache
def began() -> defaultdict[str, anyio.Event]:
    """The calls of `hold` that began, by name."""
    return defaultdict(anyio.Event)


@functools.cache
def ended() -> defaultdict[str, anyio.Event]:
    """The calls of `hold` whose `finally` ran, by name."""
    return defaultdict(anyio.Event)


upstreams: list[str] = []
"""Where the upstream is, once it is known."""


@functools.cache
def http() -> httpx2.AsyncClient:
    """The client of the upstream; made in the event loop."""
    return httpx2.AsyncClient(base_url=upstreams[0])


times: dict[str, float] = {}
"""When each of them did, on the clock that all processes of the machine share."""


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
async def hold(name: str, talk: bool, ctx: Context) -> str:  # noqa: FBT001 - a JSON argument
    """Run until cancelled; with `talk` the answer begins as a stream."""
    if talk:
        await ctx.report_progress(1)
    began()[name].set()
    try:
        await anyio.sleep_forever()
    finally:
        times[name] = time.monotonic()
        ended()[name].set()
    raise AssertionError


@server.tool()
async def wait_begun(name: str) -> bool:
    """Wait until a call of `hold` runs."""
    with anyio.move_on_after(PATIENCE):
        await began()[name].wait()
        return True
    return False


@server.tool()
async def wait_ended(name: str) -> float:
    """Wait until a call of `hold` ended, and tell when; 0 for never."""
    with anyio.move_on_after(PATIENCE):
        await ended()[name].wait()
    return times.pop(name, 0.0)


def main(host: str, form: str = "json", upstream: str = "") -> None:
    """Serve until terminated, or over stdio until the input ends."""
    upstreams.append(upstream)
    if host == "stdio":
        server.run("stdio")
        return
    app = server.streamable_http_app(json_response=form == "json")
    if host == "hypercorn":
        on_hypercorn(app)
    else:
        on_uvicorn(app, fast=host == "uvicorn-fast")


if __name__ == "__main__":
    main(*sys.argv[1:])
