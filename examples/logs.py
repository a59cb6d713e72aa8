"""Lines for the client's log: `python examples/logs.py` (stdio)."""

import mcp_trio

server = mcp_trio.MCPServer("logs", version="1.0.0")
FEW = 10


@server.tool
async def tidy(ctx: mcp_trio.Context, disk_free: int) -> str:
    """Tidy up, and say what was found: any JSON value, under one of the eight levels."""
    await ctx.log("debug", {"free": disk_free}, logger="disk")
    if disk_free < FEW:
        await ctx.log("warning", f"only {disk_free} GB are free", logger="disk")
    await ctx.log("info", "tidied")
    return "tidy"


if __name__ == "__main__":
    server.run()
