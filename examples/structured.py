"""Tools with typed arguments and structured results: `python examples/structured.py` (stdio)."""

import datetime as dt
import enum
import itertools
from dataclasses import dataclass
from typing import Annotated, Literal, TypedDict

import attrs
import msgspec

import mcp_trio
from mcp_trio.wire.tools import ToolAnnotations

server = mcp_trio.MCPServer("structured", version="1.0.0")
BOOKED: dict[str, "Ticket"] = {}


class Comfort(enum.Enum):
    """An `Enum` travels as its value."""

    SECOND = "second"
    FIRST = "first"


class Passenger(TypedDict):
    """A `TypedDict` arrives as a dict."""

    name: str
    born: dt.date


@attrs.frozen
class Leg:
    """An attrs class or a dataclass arrives as an object of it."""

    origin: str
    destination: str
    leaves: dt.datetime


@dataclass
class Ticket:
    """What `book` answers, and the schema of its `structuredContent`."""

    number: str
    legs: list[Leg]
    comfort: Comfort
    euros: float


@server.tool(
    title="Book a journey",
    annotations=ToolAnnotations(destructive_hint=False, idempotent_hint=False),
    icons=[mcp_trio.wire.Icon(src="https://example.org/ticket.png", mime_type="image/png")],
)
async def book(
    passenger: Passenger,
    legs: Annotated[list[Leg], msgspec.Meta(min_length=1, max_length=5)],
    comfort: Comfort = Comfort.SECOND,
    seats: Annotated[int, msgspec.Meta(ge=1, le=9)] = 1,
    pay: Literal["now", "on board"] = "now",
) -> Ticket:
    """Book a journey.

    Args:
        passenger: who travels.
        legs: in their order.
        comfort: of every leg.
        seats: how many.
        pay: when.
    """
    for before, after in itertools.pairwise(legs):
        if before.destination != after.origin:
            raise mcp_trio.ToolError(f"No way from {before.destination} to {after.origin}")
    number = f"{passenger['name'][:3].upper()}-{len(BOOKED) + 1}"
    price = 20.0 * len(legs) * seats + (5.0 if pay == "on board" else 0.0)
    BOOKED[number] = Ticket(number, legs, comfort, price * (1 + (comfort is Comfort.FIRST)))
    return BOOKED[number]


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def numbers() -> list[str]:
    """List the tickets. What is no object is wrapped: `{"result": [...]}`."""
    return list(BOOKED)


@server.tool
async def picture() -> list[mcp_trio.wire.ContentBlock]:
    """Answer with blocks of content instead of a structure."""
    return [
        mcp_trio.wire.TextContent(text="The line map:"),
        mcp_trio.wire.ImageContent(data="iVBORw0KGgo=", mime_type="image/png"),
    ]


if __name__ == "__main__":
    server.run()
