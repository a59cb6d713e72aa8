"""One server on five lines at once: `python examples/sockets.py` calls it over each of them."""

import tempfile

import trio

import mcp_trio

server = mcp_trio.MCPServer("sockets", version="1.0.0")


@server.tool
async def shout(text: str) -> str:
    """Say it louder."""
    return text.upper()


async def main() -> None:
    """Serve, then connect by URL; a server of the same process needs none."""
    with tempfile.TemporaryDirectory() as folder:
        async with trio.open_nursery() as nursery:
            (http,) = await nursery.start(server.serve_http, "127.0.0.1", 0)
            (tcp,) = await nursery.start(server.serve_tcp, "127.0.0.1", 0)
            unix = await nursery.start(server.serve_unix, f"{folder}/socket")
            web_socket = http.replace("http://", "ws://")  # the same port and path
            for target in (http, web_socket, tcp, unix, server):
                async with mcp_trio.MCPClient(target) as client:
                    line = target.partition(":")[0] if isinstance(target, str) else "memory"
                    result = await client.call_tool("shout", {"text": f"hello over {line}"})
                    print(result.content[0].text)
            server.drain()


if __name__ == "__main__":
    trio.run(main)
