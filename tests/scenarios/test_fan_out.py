"""One change, told to everybody who wants it, once; a peer that does not read delays nobody."""

import contextlib

import pytest
import trio
import trio.testing

from mcp_trio import ClientOptions, MCPClient, MCPServer, RemoteError, ServerOptions
from mcp_trio.testing import ScriptedPeer
from mcp_trio.transports.memory import MemoryTransport
from mcp_trio.wire import REVISIONS
from mcp_trio.wire.revisions import R2025_11_25, R2026_07_28
from tests.http.asgi import META, serving
from tests.messages import initialize

URI = "test://watched"
UPDATED = "notifications/resources/updated"


def make_server(**options):
    server = MCPServer("s", options=ServerOptions(**options))
    server.add_resource(URI, lambda: "x", name="watched")
    server.add_resource("test://more/{x}", lambda x: x, name="more")
    return server


@contextlib.asynccontextmanager
async def hearing(target, revision, heard, **what):
    """Have a client that notes every change it is told of."""
    options = ClientOptions(revisions=(revision,))
    async with MCPClient(target, options=options) as client:
        async with client.listen(**(what or {"resource": URI})) as changes:
            async with trio.open_nursery() as nursery:

                async def note():
                    async for change in changes:
                        heard.append(change)
                        heard_more.set()

                heard_more = trio.Event()
                nursery.start_soon(note)
                yield
                nursery.cancel_scope.cancel()


async def until(condition):
    """Wait until other tasks have made it true; over sockets that takes some turns."""
    with trio.fail_after(5):
        while not condition():
            await trio.testing.wait_all_tasks_blocked(0.005)


@pytest.mark.parametrize("scheme", ["memory", "http", "ws"])
async def test_an_update_reaches_watchers_of_both_eras_each_once(scheme):
    server = make_server()
    heard = {(revision, n): [] for revision in REVISIONS for n in range(2)}
    others = []
    async with trio.open_nursery() as nursery, contextlib.AsyncExitStack() as stack:
        target = server
        if scheme != "memory":
            (url,) = await nursery.start(server.serve_http, "127.0.0.1", 0)
            target = url.replace("http", scheme)
        for (revision, _), events in heard.items():
            await stack.enter_async_context(hearing(target, revision, events))
        await stack.enter_async_context(
            hearing(target, R2026_07_28, others, resource="test://more/1")
        )
        for count in (1, 2):
            server.notify_resource_updated(URI)
            await until(lambda: all(len(events) >= count for events in heard.values()))  # noqa: B023 - awaited here
        await trio.testing.wait_all_tasks_blocked(0.02)
        assert all(events == [f"{UPDATED} {URI}"] * 2 for events in heard.values())
        assert others == []
        await stack.aclose()
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("revision", REVISIONS, ids=str)
async def test_a_burst_is_told_once(revision):
    server, heard = make_server(), []
    async with hearing(server, revision, heard):
        for _ in range(1000):
            server.notify_resource_updated(URI)
        await trio.testing.wait_all_tasks_blocked()
        assert heard == [f"{UPDATED} {URI}"]
    heard = []
    server.add_tool(lambda: "x", name="first")
    async with hearing(server, revision, heard, tools=True):
        for number in range(50):
            server.add_tool(lambda: "x", name=f"t{number}")
            server.remove_tool(f"t{number}")
        await trio.testing.wait_all_tasks_blocked()
        assert heard == ["notifications/tools/list_changed"]


def listen_params(count):
    uris = [f"test://more/{number}" for number in range(count)]
    return {"notifications": {"resourceSubscriptions": uris}, "_meta": META}


async def test_a_listener_that_does_not_read_is_dropped_and_told(autojump_clock):
    server, heard = make_server(listener_patience=7.0), []
    ours, theirs = MemoryTransport.pair(buffer=3)
    peer = ScriptedPeer(ours)
    async with trio.open_nursery() as nursery, hearing(server, R2026_07_28, heard):
        nursery.start_soon(server.serve, theirs)
        await peer.ask("listen", "subscriptions/listen", listen_params(100))
        assert (await peer.hear()).method == "notifications/subscriptions/acknowledged"
        for number in range(100):
            server.notify_resource_updated(f"test://more/{number}")
        began = trio.current_time()
        server.notify_resource_updated(URI)
        await trio.testing.wait_all_tasks_blocked()
        assert heard == [f"{UPDATED} {URI}"]  # nobody else waited
        assert trio.current_time() == began
        await trio.sleep(8)
        assert server.notices.dropped == 1
        assert len(server.notices) == 3  # the other listener, and both sessions
        # Whoever reads again finds what was sent before, and why there is no more.
        told = [await peer.hear() for _ in range(4)]
        assert [message.params["uri"] for message in told[:3]] == [
            f"test://more/{number}" for number in range(3)
        ]
        assert told[3].id == "listen"
        assert "too slowly" in told[3].message
        assert told[3].data["reason"] == "overloaded"
        await peer.hear_nothing()
        # And it may listen again.
        await peer.ask("again", "subscriptions/listen", listen_params(1))
        assert (await peer.hear()).method == "notifications/subscriptions/acknowledged"
        nursery.cancel_scope.cancel()


async def test_over_http_a_listener_that_does_not_read_is_dropped_and_told(autojump_clock):
    server = make_server(listener_patience=7.0)
    async with serving(server) as client:
        response = client.start_stateless("subscriptions/listen", listen_params(10))
        await response.event(0)
        client.stalled = True
        for number in range(10):
            server.notify_resource_updated(f"test://more/{number}")
        await trio.sleep(8)
        client.resume()
        await response.ended.wait()
        assert server.notices.dropped == 1
        assert len(server.notices) == 0
        assert "too slowly" in response.events()[-1]["error"]["message"]


async def test_a_session_that_does_not_read_holds_one_notice_of_each_kind_and_delays_nobody():
    server, heard = make_server(), []
    ours, theirs = MemoryTransport.pair(buffer=1)
    peer = ScriptedPeer(ours)
    async with trio.open_nursery() as nursery, hearing(server, R2025_11_25, heard):
        nursery.start_soon(server.serve, theirs)
        await peer.ask(0, "initialize", initialize("2025-11-25")["params"])
        await peer.hear_result()
        for number in range(3):
            await peer.ask(number + 1, "resources/subscribe", {"uri": f"test://more/{number}"})
            await peer.hear_result()
        for _ in range(500):
            for number in range(3):
                server.notify_resource_updated(f"test://more/{number}")
            server.notify_resource_updated(URI)
            await trio.lowlevel.checkpoint()
        await trio.testing.wait_all_tasks_blocked()
        assert heard
        # What was on its way when it stopped reading, and then one of each.
        told = [(await peer.hear()).params["uri"] for _ in range(5)]
        assert set(told[2:]) == {f"test://more/{number}" for number in range(3)}
        await peer.hear_nothing()
        nursery.cancel_scope.cancel()


async def test_a_drain_ends_listening_with_its_result():
    server = make_server()
    ours, theirs = MemoryTransport.pair()
    peer = ScriptedPeer(ours)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve, theirs)
        await peer.ask("listen", "subscriptions/listen", listen_params(1))
        await peer.hear()
        server.drain()
        ended = await peer.hear_result()
        assert ended.id == "listen"
        assert ended.result["resultType"] == "complete"
        nursery.cancel_scope.cancel()


async def test_nobody_is_told_of_what_he_may_not_read():
    server, heard = make_server(), []
    server.authorize(lambda context: context.target != URI)
    async with MCPClient(server) as client:
        async with client.listen(resource=URI) as changes:
            server.notify_resource_updated(URI)
            with pytest.raises(StopAsyncIteration):
                heard.append(await anext(changes))
    options = ClientOptions(revisions=(R2025_11_25,))
    async with MCPClient(server, options=options) as client:
        with pytest.raises(RemoteError, match="may not"):
            async with client.listen(resource=URI):
                pass
    assert heard == []
