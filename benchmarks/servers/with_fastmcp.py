"""FastMCP with the tools of `ours`, on uvicorn as it installs it or over stdio.

Runs in FastMCP's environment. Arguments: `uvicorn` or `stdio`; for HTTP then `json` or `sse`, the
form of its answers, and the URL of the upstream; or `http+sse` for the transport of 2024-11-05 at
`/sse`. `add_openapi` is made of a description of the
upstream, as `add_rest` of ours is made of an operation.
"""

from __future__ import annotations

import sys
from typing import Any

import anyio
from anyio_tools import add, add_rest, upstreams, work
from fastmcp import Context, FastMCP
from fastmcp.server.providers.openapi import OpenAPIProvider
from hosting import on_uvicorn
from telling import BEGAN, ENDED, tell, tell_tasks_when_asked

server = FastMCP("bench")
NUMBER = {"type": "integer"}


server.tool(add)


@server.tool
async def add_talking(a: int, b: int, ctx: Context) -> int:
    """Add two numbers, and tell of it before the answer."""
    await ctx.report_progress(1)
    return a + b


server.tool(add_rest)


@server.tool
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


server.tool(work)


def one_of(schema: dict[str, Any]) -> dict[str, Any]:
    """What a body of JSON is called in OpenAPI."""
    return {"content": {"application/json": {"schema": schema}}}


def described(upstream: str) -> dict[str, Any]:
    """The upstream in OpenAPI."""
    given = {"type": "object", "properties": {"a": NUMBER, "b": NUMBER}, "required": ["a", "b"]}
    told = {"type": "object", "properties": {"result": NUMBER}, "required": ["result"]}
    operation = {
        "operationId": "add_openapi",
        "summary": "Have the upstream add two numbers.",
        "requestBody": {"required": True, **one_of(given)},
        "responses": {"200": {"description": "The sum.", **one_of(told)}},
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Adding", "version": "1"},
        "servers": [{"url": upstream}],
        "paths": {"/add": {"post": operation}},
    }


def main(host: str, form: str = "json", upstream: str = "") -> None:
    """Serve until terminated, or over stdio until the input ends."""
    tell_tasks_when_asked()
    if host == "stdio":
        server.run("stdio", show_banner=False)
        return
    if upstream:
        upstreams.append(upstream)
        server.add_provider(OpenAPIProvider(described(upstream)))
    if form == "http+sse":
        app = server.http_app(path="/sse", transport="sse")
    else:
        app = server.http_app(path="/mcp", json_response=form == "json")
    on_uvicorn(app)


if __name__ == "__main__":
    main(*sys.argv[1:])
