"""A server and a client inside one Trio program, in the program's own nursery."""

import trio

import mcp_trio

server = mcp_trio.MCPServer("embedded")


@server.tool
async def slow() -> str:
    """Take a minute, unless told not to."""
    try:
        await trio.sleep(60)
    finally:
        print("the tool has ended")
    return "done"


async def main() -> None:
    """Serve on a free port, call over HTTP, and give up after a moment."""
    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(server.serve_http, "127.0.0.1", 0)
        async with mcp_trio.MCPClient(url) as client:
            print([tool.name async for tool in client.tools()])
            with trio.move_on_after(0.2) as scope:
                await client.call_tool("slow")
            print("given up:", scope.cancelled_caught)
        server.drain()


if __name__ == "__main__":
    trio.run(main)
