"""FastMCP with the tools of `ours`, on uvicorn as it installs it or over stdio.

Runs in FastMCP's environment. Arguments: `uvicorn` or `stdio`; for HTTP then `json` or `sse`, the
form of its answers, and the URL of the upstream; or `http+sse` for the transport of 2024-11-05 at
`/sse`. `add_openapi` is made of a description of the
upstream, as `add_rest` of ours is made of an operation.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

import anyio
import httpx2
from fastmcp import Context, FastMCP
from fastmcp.server.providers.openapi import OpenAPIProvider
from hosting import on_uvicorn
from telling import BEGAN, CHILD, ENDED, STEP, STEP_SECONDS, tell, tell_tasks_when_asked

server = FastMCP("bench")
upstreams: list[str] = []
"""Where the upstream is, once it is known."""
NUMBER = {"type": "integer"}


@functools.cache
def http() -> httpx2.AsyncClient:
    """The client of the upstream; made in the event loop."""
    return httpx2.AsyncClient(base_url=upstreams[0])


@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool
async def add_talking(a: int, b: int, ctx: Context) -> int:
    """Add two numbers, and tell of it before the answer."""
    await ctx.report_progress(1)
    return a + b


@server.tool
async def add_rest(a: int, b: int) -> int:
    """Have the upstream add two numbers."""
    response = await http().post("/add", json={"a": a, "b": b})
    return int(response.raise_for_status().json()["result"])


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


@server.tool
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
