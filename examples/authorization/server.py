"""An MCP server that wants tokens of `authorization_server.py`, and for some tools more scopes.

    python server.py [PORT] [ISSUER]

Then, with a browser at hand:

    mcp-trio call http://127.0.0.1:8000/mcp read_note --login
    mcp-trio call http://127.0.0.1:8000/mcp write_note --arg text=hello --login

The first one asks for leave to read, the second for leave to write, too.
"""

import sys

import mcp_trio
from mcp_trio.auth.resource_server import JWTTokens, ResourceServer

server = mcp_trio.MCPServer("notes", version="1.0.0")
notes: dict[str, str] = {}


@server.tool(required_scopes=["notes:read"])
async def read_note(ctx: mcp_trio.Context) -> str:
    """Read your note."""
    return notes.get(ctx.principal.subject, "nothing yet")


@server.tool(required_scopes=["notes:write"])
async def write_note(text: str, ctx: mcp_trio.Context) -> str:
    """Write your note."""
    notes[ctx.principal.subject] = text
    return "written"


def options(url: str, issuer: str) -> mcp_trio.HTTPOptions:
    """What makes the endpoint at `url` a protected resource."""
    return mcp_trio.HTTPOptions(
        auth=ResourceServer(
            resource=url,
            authenticators=[JWTTokens(issuer=issuer, access_tokens_only=True)],
            # Who says nothing of scopes is asked for the least; the rest is asked for when needed.
            scopes_supported=["notes:read"],
            implies={"notes:write": ["notes:read"]},
            name="Notes",
        )
    )


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8000
    issuer = sys.argv[2] if len(sys.argv) > 2 else "http://127.0.0.1:9000"
    url = f"http://127.0.0.1:{port}/mcp"
    server.run("http", port=port, options=options(url, issuer))
