"""How long a call may take: in all, and without a sign of life (LC5, X11)."""

import contextlib
import math

import pytest
import trio
import trio.testing

from mcp_trio import Dispatcher, FunctionHandler, MemoryTransport, RequestTimeoutError
from mcp_trio.jsonrpc.messages import Notification, Request, Result
from mcp_trio.session.call import TimeLimit, time_limit
from mcp_trio.testing import ScriptedPeer


async def _after_a_while(_method, params, _inbound):
    await trio.sleep(params["seconds"])
    return {}


@contextlib.asynccontextmanager
async def calling(**limit):
    """A call that the test answers, and the seconds it took with what came of it."""
    ours, theirs = MemoryTransport.pair()
    dispatcher, peer = Dispatcher(ours, FunctionHandler(_after_a_while)), ScriptedPeer(theirs)
    ended = {}

    async def call():
        began = trio.current_time()
        try:
            await dispatcher.call("work", timeout=TimeLimit(**limit))
        except RequestTimeoutError as error:
            ended["error"] = str(error)
        ended["after"] = trio.current_time() - began

    async with trio.open_nursery() as nursery:
        await nursery.start(dispatcher.run)
        nursery.start_soon(call)
        request = await peer.hear()
        yield peer, request.params["_meta"]["progressToken"], ended
        nursery.cancel_scope.cancel()


async def report(peer, token, value):
    await peer.tell("notifications/progress", {"progressToken": token, "progress": value})


async def over(peer):
    """Wait until the call has been taken back."""
    while not isinstance(message := await peer.hear(1000), Notification):
        pass
    return message.params["reason"]


async def test_silence_ends_a_call_and_progress_extends_it(autojump_clock):
    async with calling(idle=5) as (peer, token, ended):
        for value in range(4):
            await trio.sleep(4)
            await report(peer, token, value)
        assert await over(peer) == "timeout"
    assert ended == {"error": "work gave no sign of life for 5 s", "after": pytest.approx(21)}


async def test_progress_never_extends_the_total(autojump_clock):
    async with calling(idle=5, total=10) as (peer, token, ended):
        for value in range(2):
            await trio.sleep(4)
            await report(peer, token, value)
        assert await over(peer) == "timeout"
    assert ended == {"error": "work was not answered within 10 s", "after": pytest.approx(10)}


async def test_progress_that_does_not_grow_is_no_sign_of_life(autojump_clock):
    async with calling(idle=5) as (peer, token, ended):
        for _ in range(3):
            await trio.sleep(3)
            await report(peer, token, 1)
        await over(peer)
    assert ended["after"] == pytest.approx(8)


async def test_a_slow_callback_is_not_the_silence_of_the_peer(autojump_clock):
    ours, theirs = MemoryTransport.pair()
    dispatcher, peer = Dispatcher(ours), ScriptedPeer(theirs)
    async with trio.open_nursery() as nursery:
        await nursery.start(dispatcher.run)

        async def answer():
            request = await peer.hear()
            await report(peer, request.params["_meta"]["progressToken"], 1)
            await trio.sleep(21)
            await peer.say(Result(request.id, {"done": True}))

        nursery.start_soon(answer)

        async def look(*_report):
            await trio.sleep(20)

        result = await dispatcher.call("work", timeout=TimeLimit(idle=2), on_progress=look)
        assert result == {"done": True}
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(("method", "after"), [("question", 17), ("ping", 5)])
async def test_a_peer_that_waits_for_an_answer_of_ours_is_not_idle(autojump_clock, method, after):
    async with calling(idle=5) as (peer, _, ended):
        await peer.say(Request("q", method, {"seconds": 12}))
        await over(peer)
    assert ended["after"] == pytest.approx(after)


async def test_a_number_is_the_total_and_what_is_left_can_be_negative(autojump_clock):
    assert time_limit(3) == TimeLimit(total=3, idle=math.inf)
    limit = TimeLimit(total=3, idle=1)
    assert time_limit(limit) is limit
    left = limit.until(trio.current_time() - 2)
    assert (left.total, left.idle) == (pytest.approx(-2), 1)
    ours, _ = MemoryTransport.pair()
    dispatcher = Dispatcher(ours)
    async with trio.open_nursery() as nursery:
        await nursery.start(dispatcher.run)
        with pytest.raises(RequestTimeoutError):
            await dispatcher.call("late", timeout=limit.until(trio.current_time() - 2))
        nursery.cancel_scope.cancel()
