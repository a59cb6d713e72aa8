"""Floods of HTTP/2 on a plain socket, and the load of programs that others wrote."""

import contextlib
import re

import pytest
import trio
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    HeadersFrame,
    PingFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

from tests.hardening.attackers import connect, each, is_served, post, read_all
from tests.hardening.target import back_to_baseline, program, size
from tests.http.serving_tools import H2Client

FIELDS = [
    (":method", "POST"),
    (":path", "/mcp"),
    (":scheme", "http"),
    (":authority", "127.0.0.1"),
    ("content-type", "application/json"),
    ("accept", "application/json, text/event-stream"),
]


def begun(client, stream, *, end=False):
    """The frame that begins a request, as the client's encoder writes it."""
    frame = HeadersFrame(stream, client.h2.encoder.encode(FIELDS))
    frame.flags.add("END_HEADERS")
    if end:
        frame.flags.add("END_STREAM")
    return frame.serialize()


def rapid_reset(client, number):
    stream = 2 * number + 1
    return begun(client, stream) + RstStreamFrame(stream, error_code=8).serialize()


def settings(client, number):
    return SettingsFrame(0, settings={3: number}).serialize()


def ping(client, number):
    return PingFrame(0, number.to_bytes(8, "big")).serialize()


def continuation(client, number):
    if number == 0:
        return HeadersFrame(1, client.h2.encoder.encode(FIELDS)).serialize()
    return ContinuationFrame(1, b"").serialize()


def large_continuation(client, number):
    if number == 0:
        return HeadersFrame(1, client.h2.encoder.encode(FIELDS)).serialize()
    return ContinuationFrame(1, b"\x00\x01a\x7f\x80\x7f" + b"a" * 255).serialize()


def empty_data(client, number):
    if number == 0:
        return begun(client, 1)
    return DataFrame(1, b"").serialize()


def window(client, number):
    return WindowUpdateFrame(0, window_increment=1).serialize()


def overflow(client, number):
    stream = 2 * number + 1
    return begun(client, stream) + WindowUpdateFrame(stream, window_increment=2**31 - 1).serialize()


def many(client, number):
    """More streams than were offered, none of which ends."""
    return begun(client, 2 * number + 1)


FLOODS = [
    rapid_reset,
    settings,
    ping,
    continuation,
    large_continuation,
    empty_data,
    window,
    overflow,
    many,
]


@pytest.mark.parametrize("flood", FLOODS, ids=lambda flood: flood.__name__)
async def test_a_flood_of_frames_ends_its_connection_and_nobody_elses(target, flood):
    before = target.footprint()

    async def attack(_):
        async with await connect(target) as stream:
            client = H2Client(stream)
            await client.flush()
            with trio.fail_after(60):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(read_all, stream)  # until the server ends it
                    with contextlib.suppress(trio.BrokenResourceError):
                        for number in range(size(12_000, 50_000)):
                            await stream.send_all(flood(client, number))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: each(range(size(2, 20)), attack))
        await is_served(target, within=30)
    await is_served(target)
    await back_to_baseline(target, before)


async def test_answers_that_find_no_window_are_dropped(target):
    """A hundred requests on each connection, whose answers may never be sent."""
    before = target.footprint()
    body = post({"jsonrpc": "2.0", "id": 1, "method": "ping"}).partition(b"\r\n\r\n")[2]

    async def attack(_):
        async with await connect(target) as stream:
            client = H2Client(stream)
            client.h2.update_settings({4: 0})  # INITIAL_WINDOW_SIZE
            for _ in range(100):
                await client.ask(body, path="/mcp", fields=FIELDS[4:])
            with trio.fail_after(60):
                await read_all(stream)

    await each(range(size(5, 50)), attack)
    await is_served(target)
    await back_to_baseline(target, before)


async def test_h2load_is_answered_to_the_last_request(target, tmp_path):
    before = target.footprint()
    request = post({"jsonrpc": "2.0", "id": 1, "method": "ping"})
    head, _, body = request.partition(b"\r\n\r\n")
    (tmp_path / "body").write_bytes(body)
    fields = [line.decode() for line in head.split(b"\r\n")[2:4]]
    count = size(2000, 100_000)
    command = [program("h2load"), "-n", str(count), "-c", "20", "-m", "50"]
    command += ["-d", str(tmp_path / "body"), *(f"-H{field}" for field in fields), target.url]
    done = await trio.run_process(command, capture_stdout=True)
    told = re.search(r"(\d+) done, (\d+) succeeded", done.stdout.decode())
    answered = re.search(
        r"status codes: (\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx", done.stdout.decode()
    )
    assert int(told[1]) == count
    assert sum(int(part) for part in answered.groups()) == count
    assert int(answered[4]) == 0
    await is_served(target)
    await back_to_baseline(target, before, megabytes=size(24, 60))


async def test_hey_is_answered_to_the_last_request(target, tmp_path):
    before = target.footprint()
    request = post({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": {}}})
    (tmp_path / "body").write_bytes(request.partition(b"\r\n\r\n")[2])
    count = size(1000, 50_000)
    command = [program("hey"), "-n", str(count), "-c", "50", "-m", "POST", "-T", "application/json"]
    command += ["-D", str(tmp_path / "body"), target.url]
    done = await trio.run_process(command, capture_stdout=True)
    told = re.findall(r"\[(\d+)\]\s+(\d+) responses", done.stdout.decode())
    assert sum(int(number) for _, number in told) == count
    assert [status for status, _ in told if status.startswith("5")] == []
    await is_served(target)
    await back_to_baseline(target, before)
