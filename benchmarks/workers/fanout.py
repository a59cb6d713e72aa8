"""One change told to many listeners, all of one client in memory. Prints JSON.

For a number of listeners: seconds of the processor from the change until every one of them has
heard of it, the median of some changes, and the bytes of memory that each listener holds.
"""

from __future__ import annotations

import json
import statistics
import sys
import time

import trio

import mcp_trio
from benchmarks.workers.storm import resident
from mcp_trio.client.client import ClientOptions, MCPClient
from mcp_trio.session.limits import LoadLimits

CHANGES = 5
URI = "bench://one"


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


async def main(size: int) -> None:
    """Measure and print."""
    load = LoadLimits(max_in_flight=size + 10, max_listeners=size + 10)
    server = mcp_trio.MCPServer("fanout", options=mcp_trio.ServerOptions(load=load))

    @server.resource(URI)
    async def one() -> str:
        """Something that changes."""
        return "one"

    crowd, taken = Crowd(size), []
    async with MCPClient(server, options=ClientOptions()) as client, trio.open_nursery() as nursery:
        before = resident()
        for _ in range(size):
            nursery.start_soon(crowd.listen, client)
        await crowd.all_listen.wait()
        held = (resident() - before) / size
        for _ in range(CHANGES):
            crowd.heard, crowd.all_heard = 0, trio.Event()
            began = time.process_time()
            server.notify_resource_updated(URI)
            with trio.fail_after(120):
                await crowd.all_heard.wait()
            taken.append(time.process_time() - began)
        nursery.cancel_scope.cancel()
    sys.stdout.write(json.dumps({"seconds": statistics.median(taken), "held": held}))


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]))
