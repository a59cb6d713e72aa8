"""What a client does: `python examples/client.py` uses the server of `tools.py` over HTTP."""

import trio
from tools import server

import mcp_trio


async def main() -> None:
    """Connect, look around, call, and give up on something."""
    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(server.serve_http, "127.0.0.1", 0)
        async with mcp_trio.MCPClient(url) as client:
            print(client.server_info.name, client.server_info.version, client.revision)
            print([tool.name async for tool in client.tools()])
            result = await client.call_tool("weather", {"city": "Rome"})
            print(result.structured_content)
            result = await client.call_tool("weather", {"city": "Atlantis"})
            print(result.is_error, result.content[0].text)
            try:
                await client.call_tool("no_such_tool")
            except mcp_trio.RemoteError as error:
                print(error.rpc_code, error.code, error)
            try:
                await client.call_tool("count", {"to": 1000}, timeout=0.15)
            except mcp_trio.RequestTimeoutError as error:
                print(error)
            patient = mcp_trio.TimeLimit(idle=5, total=60)  # progress extends the first only
            result = await client.call_tool("add", {"a": 1, "b": 2}, timeout=patient)
            print(result.structured_content)
        # Under a name of ours, beside others; the one that is away is in nobody's way.
        servers = {"ours": url, "away": "tcp://127.0.0.1:9"}
        async with mcp_trio.ClientGroup(servers) as group:
            result = await group.call_tool("ours__weather", {"city": "Oslo"})
            print(result.structured_content, list(group.failures))
        server.drain()


if __name__ == "__main__":
    trio.run(main)
