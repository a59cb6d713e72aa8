"""A server that asks: `python examples/asking.py` books a table with a client of its own.

The handlers are the same for every client. One that opened a session is asked while the
call runs; one that did not gets the questions as the result and calls again.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec
import trio

import mcp_trio
from mcp_trio.client.answers import prefilled
from mcp_trio.wire.elicitation import ElicitParams
from mcp_trio.wire.sampling import CreateMessageParams, CreateMessageResult

server = mcp_trio.MCPServer("restaurant", version="1.0.0")
charged: list[int] = []


@dataclass
class Booking:
    """What the user fills in. The defaults are shown."""

    guests: Annotated[int, msgspec.Meta(ge=1, le=12)] = 2
    seating: Literal["inside", "terrace"] = "inside"


async def charge(cents: int) -> str:
    """Take the deposit. It must not happen twice, so it is called through `once`."""
    await trio.lowlevel.checkpoint()
    charged.append(cents)
    return f"receipt {len(charged)}"


@server.tool
async def book(ctx: mcp_trio.Context, restaurant: str) -> str:
    """Book a table."""
    wish = await ctx.elicit(f"A table at {restaurant}: for whom?", Booking)
    if wish.content is None:  # declined, or the window was closed
        return "Nothing was booked"
    receipt = await ctx.once("deposit", charge, 500 * wish.content.guests)
    note = await ctx.sample(f"Confirm a table for {wish.content.guests} politely", max_tokens=50)
    return f"{note.text} ({wish.content.seating}, {receipt})"


@server.tool
async def pay(ctx: mcp_trio.Context) -> str:
    """Pay. Card numbers go to a page of the restaurant and never through the client."""
    visit = await ctx.elicit_url("Enter your card there", "https://restaurant.example/pay")
    return "Thank you" if visit.accepted else "Pay at the table, then"


def fill(params: ElicitParams) -> dict[str, object]:
    """Stand in for the user: the defaults, but more guests, and outside."""
    return {**prefilled(params), "guests": 4, "seating": "terrace"}


def think(params: CreateMessageParams) -> CreateMessageResult:
    """Stand in for the model."""
    text = mcp_trio.wire.TextContent(text="Your table is waiting"[: 4 * params.max_tokens])
    return CreateMessageResult(role="assistant", content=[text], model="example")


async def main() -> None:
    """Book once in each era."""
    callbacks = mcp_trio.ClientCallbacks(elicitation=fill, sampling=think)
    for revision in mcp_trio.wire.REVISIONS[:2]:
        options = mcp_trio.ClientOptions(revisions=(revision,))
        async with mcp_trio.MCPClient(server, callbacks=callbacks, options=options) as client:
            result = await client.call_tool("book", {"restaurant": "Chez Trio"})
            print(result.content[0].text)


if __name__ == "__main__":
    trio.run(main)
