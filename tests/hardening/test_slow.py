"""Slow heads, slow bodies, readers that stall, crowds that say nothing."""

import functools

import pytest
import trio

from tests.hardening.attackers import (
    LISTEN,
    ask,
    call,
    crowd,
    each,
    head,
    is_served,
    opening,
    post,
    read_all,
    read_answer,
)
from tests.hardening.target import (
    HEADER_TIMEOUT,
    MEGABYTE,
    OPERATIONS,
    back_to_baseline,
    operation,
    program,
    size,
)


async def dribble(stream, data):
    """Send a byte every now and then, until the other end has had enough."""
    try:
        for byte in data:
            await stream.send_all(bytes([byte]))
            await trio.sleep(0.5)
    except trio.BrokenResourceError:
        pass


@pytest.mark.parametrize(
    ("begin", "rest", "said"),
    [
        (b"POST /mcp HT", b"TP/1.1\r\nHost: 127.0.0.1\r\n" * 10, b"HTTP/1.1 408 "),
        (b"", b"POST /mcp HTTP/1.1\r\n", b"HTTP/1.1 408 "),
        (head(1000), b'{"jsonrpc": "2.0", "id": 1, ', b"HTTP/1.1 408 "),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x00\x00\x00\x04\x00\x00\x00\x00\x00", b""),
    ],
    ids=["heads", "first bytes", "bodies", "HTTP-2"],
)
async def test_who_speaks_slowly_is_given_up_and_nobody_waits_for_him(target, begin, rest, said):
    before = target.footprint()
    async with crowd(target, size(150, 2000)) as streams:

        async def speak(stream):
            await stream.send_all(begin)
            with trio.fail_after(30 + HEADER_TIMEOUT):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(dribble, stream, rest)
                    heard = await read_all(stream)
                    nursery.cancel_scope.cancel()
            assert said in heard

        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: each(streams, speak, at_once=5000))
            await trio.sleep(1)
            await is_served(target)
    await back_to_baseline(target, before, megabytes=size(24, 60))


async def test_readers_that_stall_are_dropped(target):
    """Each asks for more than the kernel holds for him, and reads none of it."""
    before = target.footprint()
    requests = post(call("bulk")) * 8
    async with crowd(target, size(100, 1000), receives=4096) as streams:

        async def stall(stream):
            await stream.send_all(requests)

        await each(streams, stall)
        await is_served(target, within=60)
        # Nobody has left; the service has let go of them by itself, each once it was asked for
        # as much as the kernel does not take.
        await back_to_baseline(target, before, within=size(30, 180))


async def test_listeners_that_never_read_are_dropped_or_cost_nothing(target):
    """Event streams of both eras. Each change of the catalog is told to all of them."""
    before = target.footprint()
    count = size(60, 1000)
    async with crowd(target, count, receives=2048) as streams:
        half = count // 2
        sessions = []

        async def open_session(stream):
            await stream.send_all(opening())
            _, fields, _ = await read_answer(stream)
            session = f"Mcp-Session-Id: {fields['mcp-session-id']}"
            await stream.send_all(head(None, session, method="GET"))
            sessions.append(session)

        async def listen(stream):
            await stream.send_all(post(LISTEN))

        await each(streams[:half], open_session)
        await each(streams[half:], listen)
        for number in range(size(5, 50)):
            target.publish(*OPERATIONS, operation(f"new_{number}"))
            await target.until_catalog("published", len(OPERATIONS) + 1)
            target.publish(*OPERATIONS)
            await target.until_catalog("published", len(OPERATIONS))
        await is_served(target)
        held = target.footprint()
        assert held.memory - before.memory < (24 + count // 10) * MEGABYTE
    for session in sessions:
        status, _, _ = await ask(target, head(None, session, method="DELETE"))
        assert status == 204
    await back_to_baseline(target, before)


async def test_thousands_may_idle_and_the_next_one_is_served(target):
    before = target.footprint()
    async with crowd(target, size(600, 5000)) as streams:
        await is_served(target)  # behind all of them
        assert target.footprint().files - before.files >= len(streams)
        ends = []

        async def wait(stream):
            with trio.fail_after(30 + HEADER_TIMEOUT):
                ends.append(await read_all(stream))

        await each(streams, wait, at_once=5000)
        assert set(ends) == {b""}
    await back_to_baseline(target, before, megabytes=size(24, 120))


@pytest.mark.parametrize(
    "options",
    [["-H"], ["-B", "-s", "4000"], ["-X", "-w", "10", "-y", "20", "-k", "5"], ["-R"]],
    ids=["headers", "bodies", "reads", "ranges"],
)
async def test_slowhttptest_does_not_keep_others_out(target, options):
    before = target.footprint()
    seconds, connections = size((3, 200), (30, 3000))
    command = [program("slowhttptest"), *options, "-u", target.url, "-i", "1", "-r", "1000"]
    command += ["-l", str(seconds), "-c", str(connections), "-p", "3"]
    async with trio.open_nursery() as nursery:
        start = functools.partial(trio.run_process, command, capture_stdout=True, check=False)
        run = await nursery.start(start)
        while run.poll() is None:
            await is_served(target)
            await trio.sleep(0.2)
    await back_to_baseline(target, before)
