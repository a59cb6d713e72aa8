"""A tool that works where the client lets it: `python examples/roots.py` (stdio)."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

import trio

import mcp_trio

server = mcp_trio.MCPServer("roots", version="1.0.0")


@server.tool
async def count_files(ctx: mcp_trio.Context, suffix: str) -> dict[str, int]:
    """Count files in each root of the client. A root is a promise of nothing: check it."""
    counted: dict[str, int] = {}
    for root in await ctx.list_roots():
        folder = trio.Path(unquote(urlsplit(root.uri).path))
        if await folder.is_dir():
            found: list[Path] = list(await folder.glob(f"*{suffix}"))
            counted[root.name or folder.name] = len(found)
    return counted


if __name__ == "__main__":
    server.run()
