"""Tools that ask the user: `python examples/elicitation.py` (stdio)."""

import enum
from dataclasses import dataclass
from typing import Annotated

import msgspec

import mcp_trio

server = mcp_trio.MCPServer("elicitation", version="1.0.0")


class Size(enum.Enum):
    """One of a few."""

    SMALL = "small"
    LARGE = "large"


@dataclass
class Order:
    """The form: flat fields, whose defaults are shown."""

    flavour: Annotated[str, msgspec.Meta(min_length=1, description="of the ice")]
    scoops: Annotated[int, msgspec.Meta(ge=1, le=3)] = 1
    size: Size = Size.SMALL


@server.tool
async def order(ctx: mcp_trio.Context) -> str:
    """Order ice cream."""
    answer = await ctx.elicit("What may it be?", Order)
    match answer.action:
        case "accept" if answer.content is not None:
            wish = answer.content
            return f"{wish.scoops} of {wish.flavour}, {wish.size.value}"
        case "decline":
            return "No ice, then"
        case _:
            return "Come back when you know"


@server.tool
async def connect(ctx: mcp_trio.Context) -> str:
    """Connect an account: the password is typed into a page, never into the client."""
    visit = await ctx.elicit_url("Sign in to Ice & Co.", "https://ice.example/connect")
    return "Finish in your browser" if visit.accepted else "Not connected"


if __name__ == "__main__":
    server.run()
