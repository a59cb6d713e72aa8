"""An MCP server behind a guard that wants tokens, over sockets, with its authorization server."""

from contextlib import asynccontextmanager

import attrs
import trio

import mcp_trio
from mcp_trio.wire.content import ResourceContents
from mcp_trio.wire.resources import ReadResourceResult
from tests.auth.world import World
from tests.http.serving_tools import read_body, served


@attrs.define(slots=False)
class Readers(World):
    """A world that counts how often something private was read."""

    reads: int = 0


@asynccontextmanager
async def guarded(**changes):
    """An MCP server behind a guard; gives its world, which knows the URLs."""
    server = mcp_trio.MCPServer("guarded")

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.resource("who:///am-i")
    async def who(ctx: mcp_trio.Context) -> ReadResourceResult:
        """What is answered to one person only, for an hour."""
        world.reads += 1
        contents = [ResourceContents(uri="who:///am-i", text=ctx.principal.subject)]
        return ReadResourceResult(contents=contents, ttl_ms=3_600_000, cache_scope="private")

    def identify(head):
        return mcp_trio.Principal(subject=head.headers.get("authorization", ""))

    inner = server.asgi_app(mcp_trio.HTTPOptions(identify=identify))
    world = None

    async def app(scope, receive, send):
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        protected = scope["path"] in {"/mcp", "/sse", "/messages"}
        if protected and world.refusal(headers) is None:
            await inner(scope, receive, send)
            return
        query = scope["query_string"].decode()
        url = f"{world.server}{scope['path']}?{query}".rstrip("?")
        body = await read_body(receive)
        answer = world.refusal(headers) if protected else None
        answer = answer or world.respond(scope["method"], url, headers, body)
        await reply(send, *answer)

    async with trio.open_nursery() as nursery:
        await nursery.start(inner.run)
        async with served(app) as port:
            base = f"http://127.0.0.1:{port}"
            world = Readers(server=base, url=f"{base}/mcp", issuer=base, **changes)
            yield world
        nursery.cancel_scope.cancel()


async def reply(send, status, headers, body):
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    pairs.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})
