"""One change told to many listeners, all of one client in memory. Prints JSON.

For a number of listeners: seconds of the processor from the change until every one of them has
heard of it and those of Python's collector beside them, the medians of some changes, and the bytes
of memory that each listener holds.
"""

from __future__ import annotations

import json
import statistics
import sys

import trio

import mcp_trio
from benchmarks.workers.processor import Processor, Taken
from benchmarks.workers.storm import resident
from mcp_trio.client.client import ClientOptions, MCPClient
from mcp_trio.session.limits import LoadLimits

CHANGES = 5
PATIENCE = 120.0
"""Seconds for one change."""
URI = "bench://one"


def crowded(size: int) -> mcp_trio.MCPServer:
    """A server that so many may listen to."""
    load = LoadLimits(max_in_flight=size + 10, max_listeners=size + 10)
    server = mcp_trio.MCPServer("fanout", options=mcp_trio.ServerOptions(load=load))

    @server.resource(URI)
    async def one() -> str:
        """Something that changes."""
        return "one"

    return server


class Crowd:
    """The listeners, and how many of them have heard."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.listening = 0
        self.heard = 0
        self.all_listen = trio.Event()
        self.all_heard = trio.Event()

    async def listen(self, client: MCPClient) -> None:
        """Listen until cancelled."""
        async with client.listen(resource=URI) as changes:
            self.listening += 1
            if self.listening == self.size:
                self.all_listen.set()
            async for _ in changes:
                self.heard += 1
                if self.heard == self.size:
                    self.all_heard.set()

    async def gather(self, client: MCPClient, nursery: trio.Nursery) -> None:
        """Have all of them listen."""
        for _ in range(self.size):
            nursery.start_soon(self.listen, client)
        await self.all_listen.wait()

    async def hear(self, server: mcp_trio.MCPServer) -> None:
        """Tell of a change, and wait until all have heard of it."""
        self.heard, self.all_heard = 0, trio.Event()
        server.notify_resource_updated(URI)
        with trio.fail_after(PATIENCE):
            await self.all_heard.wait()


async def main(size: int) -> None:
    """Measure and print."""
    server = crowded(size)
    crowd, taken = Crowd(size), list[Taken]()
    async with MCPClient(server, options=ClientOptions()) as client, trio.open_nursery() as nursery:
        before = resident()
        await crowd.gather(client, nursery)
        held = (resident() - before) / size
        with Processor() as processor:
            for _ in range(CHANGES):
                processor.begin()
                await crowd.hear(server)
                taken.append(processor.taken())
        nursery.cancel_scope.cancel()
    found = {
        "seconds": statistics.median(each.work for each in taken),
        "collector": statistics.median(each.collector for each in taken),
        "held": held,
    }
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]))
