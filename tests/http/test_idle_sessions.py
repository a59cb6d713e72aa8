"""What a session holds while nothing goes on in it: there may be a hundred thousand of them."""

import gc
import sys

import trio
import trio.testing

from mcp_trio import HTTPOptions
from tests.http.asgi import serving
from tests.http.tools import make_server

SESSIONS = 100
BLOCKS = 105
"""Blocks of memory that one may hold. They were 160 when nothing was made lazily."""


def tasks():
    """All tasks that are kept by anything, those that have ended too."""
    gc.collect()
    return sum(isinstance(each, trio.lowlevel.Task) for each in gc.get_objects())


async def opened(client):
    """Open sessions, and forget everything about them on this side."""
    for _ in range(SESSIONS):
        await client.open_session()
    await trio.testing.wait_all_tasks_blocked()
    gc.collect()


async def test_an_idle_session_is_one_task_and_keeps_no_other():
    server, _ = make_server()
    async with serving(server, HTTPOptions(max_sessions=1000)) as client:
        await opened(client)
        kept, living = tasks(), trio.lowlevel.current_statistics().tasks_living
        await opened(client)
        assert trio.lowlevel.current_statistics().tasks_living - living == SESSIONS
        assert tasks() - kept == SESSIONS


async def test_an_idle_session_holds_few_blocks_of_memory():
    server, _ = make_server()
    async with serving(server, HTTPOptions(max_sessions=1000)) as client:
        await opened(client)
        before = sys.getallocatedblocks()
        await opened(client)
        assert (sys.getallocatedblocks() - before) / SESSIONS < BLOCKS


async def test_what_went_as_json_is_not_kept_for_a_client_that_comes_back():
    server, _ = make_server()
    async with serving(server) as client:
        session = await client.open_session()
        kept = next(iter(client.app.sessions)).streams.replay
        assert (await session.call("add", {"a": 1, "b": 2})).json()["result"]["content"]
        assert [kept.after(stream, 0) for stream in range(4)] == [[], [], [], []]
        streamed = await session.call("report", {"steps": 2}, token=1)
        assert streamed.is_stream
        assert sum(len(kept.after(stream, 0)) for stream in range(8)) == 3
