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
from typing import cast

import trio

from benchmarks.workers.storm import resident
from mcp_trio import MCPServer, ServerOptions
from mcp_trio.catalog.actor import CatalogActor
from mcp_trio.catalog.registries.schema import create_registry, seed
from mcp_trio.catalog.registries.sqlite import SqliteRegistry
from mcp_trio.cli import collector
from mcp_trio.cli.demo import CREATE_LEAD, GET_PROFILE, LIST_ITEMS
from mcp_trio.client.client import MCPClient
from mcp_trio.config import make_connections
from mcp_trio.engine.paging import CursorKey
from mcp_trio.runtime.compiler import Compiler
from mcp_trio.runtime.connections import Connections
from mcp_trio.runtime.http_sections import HttpSection
from mcp_trio.server.shelf import page_of
from mcp_trio.wire import REVISIONS, JSONObject

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


async def page(client: MCPClient, cursor: str | None = None) -> tuple[int, str | None]:
    """List one page, of the server and not of the client's cache; how many, and what follows."""
    params = None if cursor is None else {"cursor": cursor}
    answer = await client.call("tools/list", params, cache=False)
    return len(cast("list[object]", answer["tools"])), cast("str | None", answer.get("nextCursor"))


async def walk(client: MCPClient, count: int) -> None:
    """List everything."""
    found, cursor = await page(client)
    while cursor is not None:
        more, cursor = await page(client, cursor)
        found += more
    if found != count:
        raise AssertionError(f"{found} tools listed, {count} published")


class Bench:
    """A catalog that runs, and the file behind it."""

    def __init__(self, file: Path, count: int) -> None:
        self.file = file
        self.count = count
        create_registry(file)
        for first in range(0, count, BATCH):
            last = min(first + BATCH, count)
            seed(file, (operation(n) for n in range(first, last)), status="published")
        upstreams = {"demo": HttpSection(base_url="http://127.0.0.1:9", vars={"tenant": "acme"})}
        compiler = Compiler(Connections(make_connections(upstreams, file.parent)))
        self.actor = CatalogActor(SqliteRegistry(file), compiler, interval=86_400.0)
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
            first = await timed(lambda: page(client))
            pages = [await timed(lambda: page(client)) for _ in range(rounds)]
            walks = [await timed(lambda: walk(client, self.count)) for _ in range(2)]
        return {"first_page": first, "page": pages, "walk": walks, "cut": self.cut(1000)}

    def cut(self, rounds: int) -> float:
        """The time in which the server alone finds a page by its cursor."""
        key, shelf = CursorKey(bytes(32)), self.server.tools
        places = [key.make(shelf.listing.revision, n * 200 % self.count) for n in range(rounds)]
        used = time.process_time()
        for place in places:
            listing, start = shelf.place(place, key)
            page_of(listing, start, 200, REVISIONS[0], key)
        return (time.process_time() - used) / rounds


async def main(count: int, rounds: int) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(prefix="mcp-trio-bench-") as folder:
        bench = Bench(Path(folder) / "registry.sqlite", count)
        gc.collect()
        before = resident()
        collector.relax()
        pauses = Pauses()
        async with trio.open_nursery() as nursery:
            load: tuple[float, float]

            async def loading() -> None:
                nonlocal load
                load = await timed(lambda: bench.load(nursery))

            pause = await pauses.during(loading)
            await collector.settle(bench.actor.ready)
            held = resident() - before
            figures: JSONObject = {"load": load, "load_pause": pause, "held": held}
            figures |= await bench.refreshes(rounds)
            figures |= await bench.listing(20 * rounds)
            nursery.cancel_scope.cancel()
    sys.stdout.write(json.dumps(figures))


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]), int(sys.argv[2]))
