"""An argument that a gateway can read: `python examples/headers.py` serves HTTP on port 8000.

In 2026-07-28 a client sends the annotated argument as `Mcp-Param-Region`, too, so that
something in between can route the call without reading its body.
"""

from typing import Annotated

import msgspec

import mcp_trio

server = mcp_trio.MCPServer("headers", version="1.0.0")
Region = Annotated[str, msgspec.Meta(extra_json_schema={"x-mcp-header": "Region"})]


@server.tool
async def query(region: Region, sql: str) -> str:
    """Run a query where the data is."""
    return f"{len(sql)} characters were run in {region}"


if __name__ == "__main__":
    server.run("http")
