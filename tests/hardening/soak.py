"""A soak: mixed load over all transports with random faults, counted from both ends.

Every caller counts what it asked and how each of it ended: answered, or given up by itself. The
upstream counts what reached it and what it has ended. In the end the two agree: nothing was lost,
answered or done twice, nothing is still running, and the process holds what it held before.
"""

import functools
import json
import random
from collections import Counter

import trio

from mcp_trio import ClientOptions, MCPClient, MCPError
from mcp_trio.errors import TransportError
from mcp_trio.wire import REVISIONS
from tests.hardening.attackers import call, connect, post, read_answer, reset

TOOLS = ("hello", "place", "keep", "bulk", "half", "junk", "slow")


async def whole_clients(target, told, rng):
    """Official words over each transport: calls of all tools, some of them given up."""
    urls = [target.url, target.url.replace("http", "ws", 1)]
    options = ClientOptions(revisions=(rng.choice(REVISIONS[:2]),))
    async with MCPClient(rng.choice(urls), options=options) as client:
        for _ in range(rng.randrange(1, 10)):
            name = rng.choice(TOOLS)
            told["asked"] += 1
            told[f"asked {name}"] += 1
            patience = 0.3 if name == "slow" else rng.choice([0.02, 10])
            with trio.move_on_after(patience) as scope:
                arguments = {"name": "n"} if name == "place" else {}
                result = await client.call_tool(name, arguments)
                assert bool(result.is_error) == (name in {"half", "junk"}), name
                told["answered"] += 1
                told[f"answered {name}"] += 1
            told["given up"] += scope.cancelled_caught


async def raw_clients(target, told, rng):
    """Bytes: whole requests that are answered once each, and some that break off."""
    async with await connect(target) as stream:
        for number in range(rng.randrange(1, 10)):
            name = rng.choice(("hello", "keep", "bulk"))
            request = post(call(name, id_=number))
            told["asked"] += 1
            told[f"asked {name}"] += 1
            if rng.random() < 0.2:
                await stream.send_all(request[: rng.randrange(len(request))])
                told["given up"] += 1
                reset(stream)
                return
            await stream.send_all(request)
            status, _, body = await read_answer(stream)
            assert status == 200
            assert json.loads(body)["id"] == number  # and so none was answered twice
            told["answered"] += 1
            told[f"answered {name}"] += 1


async def soak(target, upstream, seconds, *, seed=0, callers=8):
    """Run it; return how many were `asked`, `answered` (both also by tool) and `given up`."""
    told = Counter()

    async def run(number):
        rng = random.Random(f"{seed} {number}")
        until = trio.current_time() + seconds
        while trio.current_time() < until:
            play = rng.choice((whole_clients, raw_clients))
            before = told.copy()
            try:
                await play(target, told, rng)
            except* (MCPError, TransportError, trio.BrokenResourceError) as fault:
                raise AssertionError(f"{before} to {told}: a call was lost") from fault

    async with trio.open_nursery() as nursery:
        for number in range(callers):
            nursery.start_soon(functools.partial(run, number))
    return told
