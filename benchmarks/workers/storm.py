"""Thousands of calls in flight in memory, ended at once: what is left?

`cancel SIZE REVISION` cancels the scope around all of them, `timeout SIZE REVISION` has the
deadline of each one pass. Prints one JSON object. A first storm that is not judged lets memory
pools grow to their size. Memory is told twice: as what the process holds, which the allocator
rounds and keeps, and as the number of Python's own blocks, which is exact and is what gets judged.
"""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path

import trio
import trio.testing

import mcp_trio
from benchmarks.workers.processor import Processor, Taken
from mcp_trio.client.client import ClientOptions, MCPClient
from mcp_trio.session.limits import LoadLimits
from mcp_trio.wire.revisions import BY_DATE

PATIENCE = 600.0
"""Seconds for one storm."""


def blocks() -> int:
    """Blocks of memory that Python objects occupy."""
    gc.collect()
    return sys.getallocatedblocks()


def resident() -> int:
    """Bytes of memory this process holds."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


class Storm:
    """A server whose calls never end by themselves, and the count of those that run."""

    def __init__(self, what: str, size: int) -> None:
        self.what = what
        self.size = size
        self.running = 0
        self.all_run = trio.Event()
        self.none_runs = trio.Event()
        options = mcp_trio.ServerOptions(load=LoadLimits(max_in_flight=size + 1))
        self.server = mcp_trio.MCPServer("storm", options=options)
        self.server.add_tool(self.hold)

    async def hold(self) -> str:
        """Run until cancelled."""
        self.running += 1
        if self.running == self.size:
            self.all_run.set()
        try:
            await trio.sleep_forever()
        finally:
            self.running -= 1
            if self.running == 0:
                self.none_runs.set()
        raise AssertionError

    async def once(self, client: MCPClient, processor: Processor) -> Taken:
        """Start all calls, end them, and tell what that takes until the last `finally`."""
        self.all_run, self.none_runs = trio.Event(), trio.Event()
        scopes = [trio.CancelScope() for _ in range(self.size)]

        async def call(scope: trio.CancelScope) -> None:
            with scope:
                await client.call_tool("hold")

        with trio.fail_after(PATIENCE):
            async with trio.open_nursery() as nursery:
                for number in range(self.size):
                    if self.what == "timeout":
                        nursery.start_soon(call, scopes[number])
                    else:
                        nursery.start_soon(client.call_tool, "hold")
                await self.all_run.wait()
                processor.begin()
                if self.what == "timeout":
                    for scope in scopes:
                        scope.deadline = trio.current_time()
                else:
                    nursery.cancel_scope.cancel()
            await self.none_runs.wait()
        return processor.taken()


async def main(what: str, size: int, revision: str) -> None:
    """Run two storms and print what the second one left behind."""
    storm = Storm(what, size)
    ours, theirs = mcp_trio.MemoryTransport.pair()
    options = ClientOptions(revisions=(BY_DATE[revision],))
    async with trio.open_nursery() as nursery:
        dispatcher = await nursery.start(storm.server.serve, theirs)
        async with MCPClient(ours, options=options) as client:
            with Processor() as processor:
                await storm.once(client, processor)
            await client.ping()
            tasks = trio.lowlevel.current_statistics().tasks_living
            blocks_before, bytes_before = blocks(), resident()
            with Processor() as processor:
                took = await storm.once(client, processor)
            # One more round trip: everything sent before it has been dealt with.
            await client.ping()
            await trio.testing.wait_all_tasks_blocked()
            here, there = client.session.statistics(), dispatcher.statistics()
            report = {
                "seconds": took.work,
                "collector": took.collector,
                "orphan_tasks": trio.lowlevel.current_statistics().tasks_living - tasks,
                "pending": here.pending,
                "in_flight": there.in_flight,
                "blocks_before": blocks_before,
                "blocks_after": blocks(),
                "bytes_before": bytes_before,
                "bytes_after": resident(),
            }
        nursery.cancel_scope.cancel()
    sys.stdout.write(json.dumps(report))


if __name__ == "__main__":
    trio.run(main, sys.argv[1], int(sys.argv[2]), sys.argv[3])
