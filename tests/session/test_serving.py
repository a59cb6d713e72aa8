"""A handshake that is still being judged: what comes right behind it waits for the verdict."""

import contextlib

import pytest
import trio
import trio.testing

from mcp_trio import MCPServer, MemoryTransport, ServerOptions, UnauthorizedError
from mcp_trio.errors import ErrorCode, InvalidParamsError
from mcp_trio.jsonrpc.messages import Error, Result
from mcp_trio.testing import ScriptedPeer
from tests.messages import initialize

HELLO = initialize()["params"]


def make_server(**options):
    server, ran = MCPServer("s", options=ServerOptions(**options)), []

    @server.tool
    def secret() -> str:
        ran.append("secret")
        return "secret"

    return server, ran


@contextlib.asynccontextmanager
async def peer_of(server):
    ours, theirs = MemoryTransport.pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve, theirs)
        yield ScriptedPeer(ours)
        nursery.cancel_scope.cancel()


async def answers(peer, count):
    found = [await peer.hear() for _ in range(count)]
    return {message.id: message for message in found}


def deny(error):
    async def layer(context, call_next):
        if context.method == "initialize":
            await trio.testing.wait_all_tasks_blocked()
            raise error
        return await call_next(context)

    return layer


@pytest.mark.parametrize("error", [UnauthorizedError("no"), InvalidParamsError("no")])
async def test_a_call_right_behind_a_refused_handshake_is_not_served(error):
    server, ran = make_server()
    server.add_middleware(deny(error))
    async with peer_of(server) as peer:
        await peer.ask(1, "initialize", HELLO)
        await peer.ask(2, "tools/call", {"name": "secret"})
        await peer.ask(3, "tools/list")
        await peer.ask(4, "ping")
        heard = await answers(peer, 4)
    assert isinstance(heard[4], Result)
    assert heard[1].message == "no"
    for id_ in (2, 3):
        assert heard[id_].data["code"] == ErrorCode.NOT_INITIALIZED
    assert ran == []


async def test_a_call_right_behind_a_handshake_that_is_let_in_is_served_after_it():
    server, ran = make_server()

    @server.authorize("initialize")
    async def slow(context) -> bool:
        await trio.testing.wait_all_tasks_blocked()
        ran.append("let in")
        return True

    async with peer_of(server) as peer:
        await peer.ask(1, "initialize", HELLO)
        await peer.ask(2, "tools/call", {"name": "secret"})
        heard = await answers(peer, 2)
    assert all(isinstance(message, Result) for message in heard.values())
    assert ran == ["let in", "secret"]


async def test_a_handshake_over_its_time_is_none(autojump_clock):
    server, ran = make_server(request_timeout=1.0)

    @server.authorize("initialize")
    async def stuck(context) -> bool:
        await trio.sleep_forever()

    async with peer_of(server) as peer:
        await peer.ask(1, "initialize", HELLO)
        await peer.ask(2, "tools/call", {"name": "secret"})
        assert all(isinstance(message, Error) for message in (await answers(peer, 2)).values())
        await peer.ask(3, "tools/call", {"name": "secret"})
        assert (await peer.hear_error()).data["code"] == ErrorCode.NOT_INITIALIZED
    assert ran == []


async def test_a_second_attempt_serves_nothing_that_came_behind_the_first():
    server, ran = make_server()
    verdicts, asked = [False, True], trio.Event()

    @server.authorize("initialize")
    async def second_time(context) -> bool:
        asked.set()
        await trio.testing.wait_all_tasks_blocked()
        return verdicts.pop(0)

    async with peer_of(server) as peer:
        await peer.ask(1, "initialize", HELLO)
        await peer.ask(2, "tools/call", {"name": "secret"})
        heard = await answers(peer, 2)
        assert isinstance(heard[1], Error)
        await peer.ask(3, "initialize", HELLO)
        await peer.ask(4, "tools/call", {"name": "secret"})
        heard |= await answers(peer, 2)
    assert isinstance(heard[2], Error)
    assert isinstance(heard[3], Result)
    assert isinstance(heard[4], Result)
    assert ran == ["secret"]


async def test_a_call_that_waits_for_the_handshake_can_be_cancelled():
    server, ran = make_server()

    @server.authorize("initialize")
    async def stuck(context) -> bool:
        await trio.sleep_forever()

    async with peer_of(server) as peer:
        await peer.ask(1, "initialize", HELLO)
        await peer.ask(2, "tools/call", {"name": "secret"})
        await peer.tell("notifications/cancelled", {"requestId": 2})
        await trio.testing.wait_all_tasks_blocked()
        await peer.ask(2, "ping")
        await peer.hear_result()
    assert ran == []
