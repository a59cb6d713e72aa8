"""One catalog of `COUNT` operations in this process: loaded, refreshed, listed. Prints JSON.

The registry is a SQLite file, the operations are REST operations like those of the demo, and the
client talks to the server in memory through the real codec. Times are seconds.
"""

from __future__ import annotations

import gc
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import trio

from benchmarks.workers.storm import resident
from mcp_trio import MCPServer, ServerOptions
from mcp_trio.catalog.actor import CatalogActor
from mcp_trio.catalog.registries.schema import create_registry, seed
from mcp_trio.catalog.registries.sqlite import SqliteRegistry
from mcp_trio.cli.demo import CREATE_LEAD, GET_PROFILE, LIST_ITEMS
from mcp_trio.client.client import MCPClient
from mcp_trio.runtime.compiler import Compiler
from mcp_trio.runtime.connections import Connection, Connections
from mcp_trio.wire import JSONObject

BATCH = 10_000
TICK = 0.001
"""Seconds that the task which watches the event loop sleeps."""


def operation(number: int, text: str = "") -> JSONObject:
    """The operation of a number: three kinds in turn, each with a name and a path of its own."""
    made = dict((CREATE_LEAD, GET_PROFILE, LIST_ITEMS)[number % 3])
    made["operation_id"] = f"bench.{number:06}"
    made["name"] = f"{made['name']}_{number:06}"
    target = dict(made["target"])  # type: ignore[call-overload]  # an object, by the demo
    target["path"] = f"/service-{number:06}{target['path']}"
    said = dict(made["tool_description"])  # type: ignore[call-overload]  # an object, by the demo
    said["text"] = f"{said['text']} Number {number}. {text}"
    return {**made, "target": target, "tool_description": said}


class Pauses:
    """The longest time for which the event loop did not come round."""

    def __init__(self) -> None:
        self.longest = 0.0

    async def watch(self) -> None:
        """Look at the clock all the time."""
        while True:
            before = time.perf_counter()
            await trio.sleep(TICK)
            self.longest = max(self.longest, time.perf_counter() - before - TICK)

    async def during(self, work: Callable[[], Awaitable[object]]) -> float:
        """Do something, and give the longest pause meanwhile."""
        self.longest = 0.0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.watch)
            await work()
            nursery.cancel_scope.cancel()
        return self.longest


async def timed(work: Callable[[], Awaitable[object]]) -> tuple[float, float]:
    """The time something takes: what passed, and what this process used of the processor."""
    used, began = time.process_time(), time.perf_counter()
    await work()
    return time.perf_counter() - began, time.process_time() - used


async def walk(client: MCPClient, count: int) -> None:
    """List everything."""
    found = [tool.name async for tool in client.tools()]
    if len(found) != count:
        raise AssertionError(f"{len(found)} tools listed, {count} published")


class Bench:
    """A catalog that runs, and the file behind it."""

    def __init__(self, file: Path, count: int) -> None:
        self.file = file
        self.count = count
        create_registry(file)
        for first in range(0, count, BATCH):
            last = min(first + BATCH, count)
            seed(file, (operation(n) for n in range(first, last)), status="published")
        upstream = Connection(name="demo", base_url="http://127.0.0.1:9", vars={"tenant": "acme"})
        self.actor = CatalogActor(
            SqliteRegistry(file), Compiler(Connections([upstream])), interval=86_400.0
        )
        self.server = MCPServer("bench", options=ServerOptions())
        self.server.add_provider(self.actor)

    async def load(self, nursery: trio.Nursery) -> None:
        """Start, and wait until everything is served."""
        await nursery.start(self.actor.run)
        await self.actor.ready.wait()
        status = self.actor.status()
        if status.operations != self.count:
            raise AssertionError(status)

    def change_one(self, turn: int) -> None:
        """Publish another version of one operation."""
        number = (turn * 7919) % self.count
        seed(self.file, [operation(number, f"Turn {turn}.")], status="published")

    async def refresh(self) -> None:
        """Look at the registry."""
        status = await self.actor.refresh()
        if status.last_error is not None:
            raise AssertionError(status)

    async def refreshes(self, rounds: int) -> JSONObject:
        """Measure looks that find nothing, one change, and what a change does to the loop."""
        idle = [await timed(self.refresh) for _ in range(rounds)]
        changed: list[tuple[float, float]] = []
        pauses: list[float] = []
        for turn in range(rounds):
            swaps = self.actor.status().swaps
            self.change_one(2 * turn)
            changed.append(await timed(self.refresh))
            self.change_one(2 * turn + 1)
            pauses.append(await Pauses().during(self.refresh))
            if self.actor.status().swaps != swaps + 2:
                raise AssertionError("a change was not seen")
        return {"idle": idle, "changed": changed, "pauses": pauses}

    async def listing(self, rounds: int) -> JSONObject:
        """Measure one page, again and again, and walks over all of them."""
        async with MCPClient(self.server) as client:

            async def page() -> None:
                await client.call("tools/list")

            first = await timed(page)
            pages = [await timed(page) for _ in range(rounds)]
            walks = [await timed(lambda: walk(client, self.count)) for _ in range(2)]
        return {"first_page": first, "page": pages, "walk": walks}


async def main(count: int, rounds: int) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(prefix="mcp-trio-bench-") as folder:
        bench = Bench(Path(folder) / "registry.sqlite", count)
        gc.collect()
        before = resident()
        async with trio.open_nursery() as nursery:
            load = await timed(lambda: bench.load(nursery))
            gc.collect()
            held = resident() - before
            figures = {"load": load, "held": held}
            figures |= await bench.refreshes(rounds)
            figures |= await bench.listing(20 * rounds)
            nursery.cancel_scope.cancel()
    sys.stdout.write(json.dumps(figures))


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]), int(sys.argv[2]))
