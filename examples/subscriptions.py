"""Changes that clients hear of: `python examples/subscriptions.py` (stdio)."""

import mcp_trio

server = mcp_trio.MCPServer("subscriptions", version="1.0.0")
STOCK = {"tea": 3, "milk": 1}


@server.resource("stock:///{item}")
def stock(item: str) -> int:
    """How many there are."""
    if item not in STOCK:
        raise mcp_trio.NotFoundError(f"no {item}")
    return STOCK[item]


@server.tool
async def sell(item: str) -> int:
    """Take one away, and tell whoever watches the item."""
    STOCK[item] -= 1
    server.notify_resource_updated(f"stock:///{item}")
    return STOCK[item]


@server.tool
async def open_till() -> str:
    """Add a tool; whoever listens for the list of tools hears of it."""

    @server.tool
    async def pay(euros: int) -> str:
        """Pay."""
        return f"{euros} euros, thank you"

    return "the till is open"


if __name__ == "__main__":
    server.run()
