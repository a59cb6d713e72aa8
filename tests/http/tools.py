"""The server that the HTTP tests talk to, and a record of what its tools went through."""

from __future__ import annotations

from typing import Any

import trio

from mcp_trio import Context, MCPServer, ServerOptions
from mcp_trio.errors import MissingCapabilityError


class Record:
    """What the tools went through, and the means to wait for it."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.release = trio.Event()
        self._added = trio.lowlevel.ParkingLot()

    def add(self, event: str) -> None:
        self.events.append(event)
        self._added.unpark_all()

    async def until(self, *events: str) -> None:
        """Wait until exactly these events have happened."""
        with trio.fail_after(10):
            while self.events != list(events):
                await self._added.park()

    async def until_last(self, event: str) -> None:
        """Wait until this is the latest thing that happened."""
        with trio.fail_after(10):
            while self.events[-1:] != [event]:
                await self._added.park()


def make_server(**options) -> tuple[MCPServer, Record]:
    server = MCPServer("test", version="1", options=ServerOptions(**options))
    record = Record()

    @server.tool
    async def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    @server.tool
    async def wait(label: str = "wait") -> str:
        """Wait until released."""
        record.add(f"{label} started")
        try:
            await record.release.wait()
            return label
        finally:
            record.add(f"{label} over")

    @server.tool
    async def report(ctx: Context, steps: int = 2, stay: bool = False) -> str:
        """Report progress."""
        try:
            for step in range(steps):
                await ctx.progress(step + 1, steps)
            if stay:
                await record.release.wait()
            return "reported"
        finally:
            record.add("report over")

    @server.tool
    async def fail() -> str:
        """Fail."""
        raise RuntimeError("secret")

    @server.tool
    async def needs_sampling() -> str:
        """Need what no client here has."""
        raise MissingCapabilityError("sampling", data={"requiredCapabilities": {"sampling": {}}})

    @server.tool
    async def echo(value: dict[str, Any]) -> dict[str, Any]:
        """Echo."""
        return value

    return server, record
