"""A soak: mixed load by every way in, with random faults, counted from all ends.

Here are the callers and those who break things; what became of the calls stands in the `ledger`.
"""

import functools
import json
import random

import trio
from h2.errors import ErrorCodes

from mcp_trio import MCPError
from tests.hardening.attackers import LISTEN, Answers, call, post, read_all, reset
from tests.hardening.ledger import ANSWERED, FAILED, LEFT, UNSENT
from tests.hardening.places import TOOLS
from tests.http.serving_tools import H2Client

PATIENCE = 60
"""Seconds for an answer that comes."""
FAST = ("hello", "keep", "bulk", "half", "junk", "told")
"""Tools that answer soon."""


# -- clients of ours ---------------------------------------------------------------


def patience_for(tool, rng):
    """Seconds that a caller waits."""
    return 0.3 if tool == "slow" else rng.choice((0.02, 0.1, PATIENCE, PATIENCE))


async def call_by_client(door, client, ledger, tool, patience):
    """One call, which is given up after a while."""
    made, told = ledger.ask(door.place, door.way, tool), []
    try:
        with trio.move_on_after(patience):
            result = await client.call_tool(
                tool, {"mark": made.mark}, on_progress=lambda *what: told.append(what)
            )
            made.close(FAILED if result.is_error else ANSWERED)
            ledger.streamed[door.way] += bool(told)
            return
        assert patience < PATIENCE, f"{made} was not answered"
    finally:
        if made.end is None:
            made.close(LEFT)


async def conversation(door, ledger, rng):
    """Several calls at a time; some clients leave, or lose their line, in the middle of all."""
    lost = False

    async def caller(its_rng):
        for _ in range(its_rng.randrange(1, 6)):
            tool = its_rng.choice(TOOLS)
            patience = patience_for(tool, its_rng)
            await call_by_client(door, client, ledger, tool, patience)

    try:
        async with door.client(rng) as (client, stream):
            await call_by_client(door, client, ledger, "told", PATIENCE)
            async with trio.open_nursery() as nursery:
                for _ in range(rng.randrange(1, 4)):
                    nursery.start_soon(caller, random.Random(rng.random()))
                if rng.random() < 0.2:
                    await trio.sleep(rng.uniform(0, 0.3))
                    if stream is None or rng.random() < 0.5:
                        nursery.cancel_scope.cancel()
                    else:
                        lost = True
                        reset(stream)
    except* MCPError:
        if not lost:
            raise


# -- bytes over HTTP ---------------------------------------------------------------


def request_of(made):
    """The POST of a call, whose id is its mark."""
    return post(call(made.tool, {"mark": made.mark}, id_=made.mark))


def take(made, body):
    """Note an answer. Its id says that it is this call's, and no other one's."""
    answer = json.loads(body)
    assert answer["id"] == made.mark
    made.close(FAILED if answer["result"].get("isError") else ANSWERED)


async def posts(place, stream, ledger, rng):
    """Whole requests on one connection, answered one by one."""
    answers = Answers(stream)
    for _ in range(rng.randrange(1, 10)):
        made = ledger.ask(place.name, f"raw {place.name}", rng.choice(FAST))
        await stream.send_all(request_of(made))
        status, _, body = await answers.next()
        assert status == 200
        take(made, body)


async def post_in_part(place, stream, ledger, rng):
    """A request that breaks off."""
    made = ledger.ask(place.name, f"raw {place.name}", rng.choice(FAST))
    request = request_of(made)
    await stream.send_all(request[: rng.randrange(len(request))])
    made.close(UNSENT)
    reset(stream)


async def post_and_reset(place, stream, ledger, rng):
    """A request whose connection is reset, at once or while it is answered."""
    await say_and_reset(place, stream, ledger, rng, request_of)


async def say_and_reset(place, stream, ledger, rng, bytes_of):
    """The bytes of a call, and a reset, at once or while it is answered."""
    made = ledger.ask(place.name, f"raw {place.name}", rng.choice(TOOLS))
    await stream.send_all(bytes_of(made))
    await trio.sleep(rng.choice((0, 0.005, 0.05)))
    made.close(LEFT)
    reset(stream)


async def post_and_half_close(place, stream, ledger, rng):
    """All that is asked is answered, once, although the client will say no more."""
    calls = [
        ledger.ask(place.name, f"raw {place.name}", rng.choice(("hello", "keep", "bulk")))
        for _ in range(rng.randrange(1, 4))
    ]
    await stream.send_all(b"".join(request_of(made) for made in calls))
    await stream.send_eof()
    answers = Answers(stream)
    for made in calls:
        status, _, body = await answers.next()
        assert status == 200
        take(made, body)
    assert await answers.end() == b""


async def streams(place, stream, ledger, rng):
    """Calls at once over HTTP/2, some of whose streams are reset."""
    client, asked = H2Client(stream), {}
    for _ in range(rng.randrange(2, 8)):
        made = ledger.ask(place.name, f"raw {place.name}", rng.choice(FAST))
        head, _, body = request_of(made).partition(b"\r\n\r\n")
        lines = [line.split(": ") for line in head.decode().lower().split("\r\n")[1:]]
        fields = [(name, value) for name, value in lines if name not in {"host", "content-length"}]
        number = await client.ask(body, path="/mcp", authority="127.0.0.1", fields=fields)
        asked[number] = made
    for number in [number for number in asked if rng.random() < 0.2]:
        client.h2.reset_stream(number, ErrorCodes.CANCEL)
        asked.pop(number).close(LEFT)
    await client.flush()
    while not asked.keys() <= client.ended:
        assert await client.pump()
    for number, made in asked.items():
        assert client.status[number] == "200"
        take(made, client.bodies[number])
    assert (client.resets, client.gone_away) == ({}, False)


async def post_and_stall(place, stream, ledger, rng):
    """More than the kernel holds is asked for, and none of it is read."""
    calls = [ledger.ask(place.name, f"raw {place.name}", "bulk") for _ in range(8)]
    await stream.send_all(b"".join(request_of(made) for made in calls))
    await trio.sleep(rng.uniform(1, 6))  # the service lets go after four seconds
    for made in calls:
        made.close(LEFT)
    reset(stream)


async def listen_and_stall(place, stream, ledger, rng):
    """A listener that reads nothing."""
    await stream.send_all(post(LISTEN))
    await trio.sleep(rng.uniform(0, 2))
    reset(stream)


# -- bytes on lines ----------------------------------------------------------------


def line_of(made):
    """The line of a call."""
    return json.dumps(call(made.tool, {"mark": made.mark}, id_=made.mark)).encode() + b"\n"


async def lines(place, stream, ledger, rng):
    """Calls at once; then the client closes its half, and what is answered is answered once."""
    made = {}
    for _ in range(rng.randrange(1, 6)):
        one = ledger.ask(place.name, f"raw {place.name}", rng.choice(("hello", "keep", "slow")))
        made[one.mark] = one
    await stream.send_all(b"".join(line_of(one) for one in made.values()))
    if rng.random() < 0.5:
        await trio.sleep(0.1)
    await stream.send_eof()
    for line in (await read_all(stream)).splitlines():
        answer = json.loads(line)
        made[answer["id"]].close(FAILED if answer["result"].get("isError") else ANSWERED)
    for one in made.values():
        if one.end is None:
            one.close(LEFT)  # half a second is what a client has that will say no more


async def line_in_part(place, stream, ledger, rng):
    """A line that breaks off."""
    made = ledger.ask(place.name, f"raw {place.name}", rng.choice(FAST))
    await stream.send_all(line_of(made)[: rng.randrange(20, 80)])
    made.close(UNSENT)
    reset(stream)


async def line_and_reset(place, stream, ledger, rng):
    """A call whose connection is reset, at once or while it is answered."""
    await say_and_reset(place, stream, ledger, rng, line_of)


OVER_TLS = (posts, post_in_part, post_and_reset, post_and_stall, listen_and_stall)
IN_BYTES = {
    "http": (*OVER_TLS, post_and_half_close, streams),
    "https": OVER_TLS,  # which has no half close
    "lines": (lines, line_in_part, line_and_reset),
    "programs": (),
}
"""What is played on connections of a place, by what it speaks."""


async def in_bytes(play, place, ledger, rng):
    """One of these on a connection of its own, which reads little at a time if it stalls."""
    receives = 4096 if play in {post_and_stall, listen_and_stall} else None
    async with await place.connect(receives) as stream:
        await play(place, stream, ledger, rng)


# -- all together ------------------------------------------------------------------


def plays_of(places, ledger):
    """Everything that a caller may do, each as a function of the ledger and a source of chance."""
    made = []
    for place in places:
        made += [functools.partial(conversation, door) for door in place.doors(ledger)]
        made += [functools.partial(in_bytes, play, place) for play in IN_BYTES[place.speaks]]
    return made


async def soak(plays, ledger, seconds, *, seed, callers=12):
    """Play everything once, and again in another order, until the time is over."""
    until = trio.current_time() + seconds
    shuffle = random.Random(seed)
    deck = shuffle.sample(plays, len(plays))

    async def run(number):
        rng = random.Random(f"{seed} {number}")
        while deck or trio.current_time() < until:
            if not deck:
                deck.extend(shuffle.sample(plays, len(plays)))
            play = deck.pop()
            try:
                await play(ledger, rng)
            except Exception as fault:
                raise AssertionError(f"{play}: a call was lost") from fault

    async with trio.open_nursery() as nursery:
        for number in range(callers):
            nursery.start_soon(run, number)


async def break_things(upstream, services, ledger, seconds, *, seed, pause):
    """Break the upstream and the registries by turns, and mend them, until the time is over.

    Args:
        upstream: is killed, and started again.
        services: whose registries are broken.
        ledger: is told when the upstream was gone.
        seconds: for how long.
        seed: of what is chance.
        pause: seconds between two faults, at most.
    """
    rng = random.Random(seed)
    until, number = trio.current_time() + seconds, 0
    while trio.current_time() < until:
        await trio.sleep(rng.uniform(pause / 4, pause))
        began = trio.current_time()
        await trio.to_thread.run_sync(upstream.kill)
        await trio.sleep(rng.uniform(0.1, 0.6))
        await trio.to_thread.run_sync(upstream.start)
        ledger.outages.append((began, trio.current_time()))
        await trio.sleep(rng.uniform(pause / 4, pause))
        await rng.choice(services).upset(number)
        number += 1
