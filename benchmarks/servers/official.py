"""The official SDK with the tools of `ours`, on uvicorn, on Hypercorn under Trio or over stdio.

Runs in the peers' environment. Arguments: `uvicorn`, `uvicorn-fast` (uvloop and httptools),
`hypercorn` or `stdio`; for HTTP then `json` or `sse`, the form of its answers, and the URL of
the upstream; or `http+sse` for the transport of 2024-11-05 at `/sse`.
"""

from __future__ import annotations

import sys

import anyio
from anyio_tools import add, add_rest, upstreams, work
from hosting import on_hypercorn, on_uvicorn
from mcp.server.mcpserver import Context, MCPServer
from telling import BEGAN, ENDED, tell, tell_tasks_when_asked

server = MCPServer("bench", log_level="ERROR")


server.tool()(add)


@server.tool()
async def add_talking(a: int, b: int, ctx: Context) -> int:
    """Add two numbers, and tell of it before the answer."""
    await ctx.report_progress(1)
    return a + b


server.tool()(add_rest)


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


server.tool()(work)


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
