"""Exchanges that break off at every byte, and clients who want everything cancelled."""

import json

import attrs
import pytest
import trio

from tests.hardening.attackers import (
    ask,
    call,
    connect,
    crowd,
    each,
    head,
    is_served,
    opening,
    post,
    read_all,
    read_answer,
    reset,
)
from tests.hardening.target import back_to_baseline, size, until

EXCHANGES = {
    "call": post(call("hello")),
    "slow call": post(call("slow")),
    "session": opening(),
    "chunks": head(None, "Transfer-Encoding: chunked") + b'5\r\n{"a":\r\n2\r\n1}\r\n0\r\n\r\n',
    "upgrade": head(
        None,
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        method="GET",
    )
    + b"\x81\x85\x00\x00\x00\x00hello",
    "HTTP-2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00",
}


@pytest.mark.parametrize("how", ["reset", "closed", "half closed"])
@pytest.mark.parametrize("name", EXCHANGES)
async def test_an_exchange_may_break_off_at_every_byte(target, name, how):
    before = target.footprint()
    said = EXCHANGES[name]

    async def break_off(cut):
        stream = await connect(target)
        try:
            await stream.send_all(said[:cut])
            if how == "reset":
                reset(stream)
            elif how == "half closed":
                await stream.send_eof()
                with trio.move_on_after(2):  # who may still listen is answered
                    await read_all(stream)
        except trio.BrokenResourceError:
            pass  # the server was quicker
        finally:
            stream.socket.close()

    await each([*range(0, len(said), size(5, 1)), len(said)], break_off)
    await is_served(target)
    if name == "session":
        # What was broken off after its last byte may have opened one, of a few tasks.
        before = attrs.evolve(before, sessions=before.sessions + 1, tasks=before.tasks + 4)
    await back_to_baseline(target, before)


async def test_a_storm_of_calls_that_are_left_ends_them_here_and_at_the_upstream(target, upstream):
    """They close or reset; the upstream sees each of them go."""
    before = target.footprint()
    at_once = 100
    for number in range(size(2, 20)):
        async with crowd(target, at_once) as streams:
            for stream in streams:
                await stream.send_all(post(call("slow")))
            await until(lambda: upstream.counts().get("slow now", 0) == at_once)
            if number % 2:
                for stream in streams:
                    reset(stream)
        await until(lambda: upstream.counts()["slow now"] == 0)
    await is_served(target)
    await back_to_baseline(target, before)


async def test_a_storm_of_cancellations_in_sessions(target, upstream):
    """Each call of a session is told to end as soon as it was made, each told of twice."""
    before = target.footprint()

    async def storm(number):
        async with await connect(target) as stream:
            await stream.send_all(opening())
            _, fields, _ = await read_answer(stream)
            session = (
                f"Mcp-Session-Id: {fields['mcp-session-id']}",
                "MCP-Protocol-Version: 2025-11-25",
            )
            initialized = {"jsonrpc": "2.0", "method": "notifications/initialized"}
            await ask(target, post(initialized, *session))
            for id_ in range(20):
                slow = {
                    "jsonrpc": "2.0",
                    "id": id_,
                    "method": "tools/call",
                    "params": {"name": "slow", "arguments": {}},
                }
                cancel = {
                    "jsonrpc": "2.0",
                    "method": "notifications/cancelled",
                    "params": {"requestId": id_},
                }
                async with await connect(target) as calling:
                    await calling.send_all(post(slow, *session))
                    for _ in range(2):
                        status, _, _ = await ask(target, post(cancel, *session))
                        assert status == 202
            status, _, _ = await ask(target, head(None, *session, method="DELETE"))
            assert status == 204

    await each(range(size(10, 200)), storm, at_once=20)
    await is_served(target)
    await back_to_baseline(target, before)
    await until(lambda: upstream.counts().get("slow now", 0) == 0)


async def test_sessions_by_the_thousand_are_opened_and_dropped(target):
    """As many as the issue of a careless client: opened, told to end, or just left."""
    before = target.footprint()
    request = opening()
    rounds = size(10, 500)

    async def open_and_drop(_):
        async with await connect(target) as stream:
            for _ in range(rounds):
                await stream.send_all(request)
                status, fields, body = await read_answer(stream)
                assert status == 200
                assert json.loads(body)["result"]["serverInfo"]["name"] == "target"
                session = fields["mcp-session-id"]
                await stream.send_all(head(None, f"Mcp-Session-Id: {session}", method="DELETE"))
                status, _, _ = await read_answer(stream)
                assert status == 204

    await each(range(100), open_and_drop, at_once=20)
    await is_served(target)
    await back_to_baseline(target, before, within=60)
