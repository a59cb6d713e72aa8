"""A long call that holds no connection: `python examples/resuming.py` serves and calls over HTTP.

The tool lets its client go; the client comes back with `Last-Event-ID` and misses nothing.
"""

import trio

import mcp_trio

server = mcp_trio.MCPServer("resuming", version="1.0.0")


@server.tool
async def bake(ctx: mcp_trio.Context, minutes: int, seconds: float = 0.02) -> str:
    """Bake a cake; the connection is let go in each minute."""
    for minute in range(1, minutes + 1):
        await ctx.close_stream(retry_ms=10)
        await trio.sleep(seconds)
        await ctx.progress(minute, minutes)
    return "the cake is done"


async def main() -> None:
    """Bake in a session, which is what can be come back to."""
    options = mcp_trio.ClientOptions(revisions=("2025-11-25",))
    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(server.serve_http, "127.0.0.1", 0)
        async with mcp_trio.MCPClient(url, options=options) as client:
            result = await client.call_tool("bake", {"minutes": 3}, on_progress=print)
            print(result.content[0].text)
        server.drain()


if __name__ == "__main__":
    trio.run(main)
