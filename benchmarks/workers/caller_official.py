"""As `caller_ours`, for the clients of the official SDK (`official`) and of FastMCP (`fastmcp`).

The first argument says whose; each runs in its own environment, on asyncio, its default.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import anyio
from keeping import figures


def make(whose: str, url: str, revision: str) -> Any:
    """The client, not connected yet."""
    mode = "legacy" if revision < "2026" else revision
    if whose == "fastmcp":
        from fastmcp import Client as FastMCPClient

        return FastMCPClient(url, mode=mode)
    from mcp import Client

    return Client(url, mode=mode)


async def main(whose: str, url: str, revision: str, seconds: str) -> None:
    """Measure and print."""
    async with make(whose, url, revision) as client:
        found = await figures(client, float(seconds), anyio.create_task_group)
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
